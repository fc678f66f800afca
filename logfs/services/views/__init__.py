"""What a name of the mount shows: from an address to a file that is read.

    buffers          the memory that readers keep between two reads
    resolve          from an address to positions, at the moment it is looked up
    files            what one open file reads: growing, fixed and raw files
    rendering        records in memory as lines of a view
    merging          several partitions as one file, merged by time
    matched_lines    the records that a query matches, as lines of a view
    kafkaoffsets     what a Kafka broker answers to ListOffsets
    lag              what a consumer group has not read yet

``logfs cat``, the mount and the library read through these, so that all three show the same bytes.
"""
