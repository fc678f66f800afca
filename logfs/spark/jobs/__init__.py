"""Maintenance that outgrows one machine, as Spark jobs over the code of the local commands.

    session      a Spark session: the active one, spark-submit's, or a new one
    running      run a function over pieces of work as a job: distribution, progress, errors
    verify       check the segments on the executors
    verify       check the segments on the executors, and that they have the partitions
    compact      the last offset of each key, of more keys than fit into one machine's memory
    keys         the steps that find these offsets                                      numpy

What goes through Spark is what is to be done and what was found, a few rows of pickled bytes:
records stay in Python. The driver resolves everything and decides everything; a task takes plain
data, opens files below a path that every machine has, and returns plain data. A job that is killed
leaves a directory as it would be without it, or further on; started again it continues.
"""
