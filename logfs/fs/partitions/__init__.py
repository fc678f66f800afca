"""The partitions of the mount: where their calls run, and what users may take of them.

    executor     the calls of one partition, in order
    partition    a partition: its log, its executor, its open files
    quotas       limits of users

A log may be replaced by one that was loaded again. The partition and its executor stay.
"""
