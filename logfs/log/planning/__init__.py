"""Capacity: what a topic will take, worked out from its rate, its records and its configuration.

    footprint    what records become: batches, segments, entries of indexes
    steady       what is on the disk at most once retention deletes as fast as records come
    measuring    rates and sizes of a directory that is there

Pure but for ``measuring``, which reads. Sizes of batches are not worked out but tried: a batch of
records of that size is encoded. Sizes of entries, and when there is one, are those of the code that
writes them.
"""
