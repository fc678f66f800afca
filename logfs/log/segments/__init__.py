"""The segments of a partition: the files, the table of them, and what readers see.

batches        the batches of a ``.log``, a piece at a time, and the verdict on each
segment        one ``.log`` with its indexes, described without being opened
abortedruns    the aborted records of a segment, as far as they have been looked up
scan           a whole segment: checks every batch, collects index entries
table          ``logfs.segments``: size, offsets, times and positions of every segment
snapshot       what readers see at one moment: immutable, replaced by every append
"""
