"""From the files of a partition directory to a partition; recovery after an unclean stop.

swaps           segment files that replace others, and a replacement that was interrupted
context         what is known before a partition is loaded, and its state meanwhile
tiered          the segments that ``logfs.tiered`` names
missing         segments that the table has and the directory has not
producers       producers and aborted transactions
offsetrepair    a damaged base offset is repaired
split           a segment with too many offsets for its index is divided
recovery        the segments after the recovery point are scanned
logend          where the next record goes, and what must be durable before it
loader          all of it, for one partition
preloading      what a successor reads while its predecessor still serves
"""
