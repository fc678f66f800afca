"""Capacity: the disk and memory that a topic needs, from its rate, records and configuration.

    footprint    sizes of batches, segments and index entries
    steady       the largest size on the disk, when retention deletes as fast as records arrive
    measuring    rates and sizes of an existing directory

All but ``measuring`` is pure. The size of a batch is found by encoding one. Sizes and intervals of
index entries are those of the code that writes them.
"""
