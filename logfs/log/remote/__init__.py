"""What the log has in an object store: its objects and the file that names them.

A segment is *tiered* when the head of its partition names it. Keys are never used twice, and no
object is ever changed, except the head, which is changed by compare-and-swap.

    PREFIX/logfs-store                                       which store it is
    PREFIX/TOPIC-TOPICID/PARTITION/logfs-head                the head
                                  /logfs-table-FIRST20-ID    entries that have left the head
                                  /BASE20-SEGMENTID.log      the .log, byte for byte
                                  /BASE20-SEGMENTID.indexes  what belongs to it

The modules, each imports only those above it::

    keys       the names of the objects; pure
    entries    what is known of one tiered segment: 200 bytes; pure
    framing    the frame of heads and of objects of the journal; pure
    head       the head of a partition; pure
    reading    a head and its tables, from the store
    rows       ``logfs.tiered``: the tiered segments of a partition directory
    catalog    the files that a partition directory has in the store alone
    directory  ``logfs.remote``: the store of a data directory
    status     how far a partition is copied
    parallel   several requests at once
    checking   whether the objects are those that a head names
    headfiles  the files of a partition directory, made from its head; pure
    brokerfiles   the same of what a broker has tiered
    bucket     all partitions of a store as a read-only data directory
    of_disk    the store of a disk; most disks have none

Source of the layout: the keys of Aiven's tiered storage plugin for Kafka.
"""
