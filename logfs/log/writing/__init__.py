"""The parts of a log that is written here; ``partition.PartitionLog`` puts them together.

_end                  native: the end of the active segment, and appends to it
state                 what the parts share; whether the partition takes appends
reservation           a durable bound that no size ever shown exceeds
unfinished            the bytes of an unfinished line, in a file
linefiles             the files of unfinished lines
active                the active segment
appender              appends, rolls, positions
producerbatches       batches of producers, and the markers that end transactions
replication           batches of another log, taken over as they are
flusher               fsyncs, shared by callers that ask at the same time
truncation            removing the end of a log
segmentremoval        removing the oldest segments
segmentreplacement    a compacted or packed segment in the place of others
"""
