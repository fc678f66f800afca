"""Maintenance that outgrows one machine, as Spark jobs over the code of the local commands.

    session      a Spark session: the one that is there, spark-submit's, or a new one
    running      a function over pieces of work, as a job: shared out, watched, its errors told
    verify       every segment is checked by whoever is free
    reindex      the indexes of every segment are recreated by whoever is free
    export       every range of offsets is written to Parquet by whoever is free
    compact      the last offset of each key, of more keys than fit into one machine's memory
    keys         how those are found, step by step                                      numpy

What goes through Spark is what is to be done and what was found, a few rows of pickled bytes:
records stay in Python. The driver resolves everything and decides everything; a task takes plain
data, opens files below a path that every machine has, and returns plain data. A job that is killed
leaves a directory as it would be without it, or further on; started again it goes on.
"""
