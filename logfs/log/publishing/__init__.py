"""Append staged records to the logs exactly once: how jobs write.

    staging   a task's records, in plain files in the partition directories
    ledger    the last published batch of a query and the current one: a plain file in the root
    publish   append staged records, over any stop in between
    leftovers batches that were stopped half-way, and files of abandoned jobs

A *query* is a job that writes batch after batch under growing numbers. A batch is published whole
or not at all, however often it is tried. The steps are:

    1 tasks stage files, durable, under unique names
    2 the ledger gets an *intent*: the files, the end of each log, the sequence numbers
    3 the batches of the files are appended with the query as idempotent producer; then flushed
    4 the ledger gets *done*: the number of the batch; the files are removed

Before step 2 nothing has happened. After it only the files of the intent are published, even if a
restarted job has staged others. A stop inside step 3 leaves a first part of the files in each log.
The sequence numbers in the batch headers tell its length. They are written with the records, so
that a power cut cannot separate them. After step 4 the number alone is enough.

Source: Kafka KIP-98, the idempotent producer; Spark's contract of sinks: a batch is tried again
with its number until it is committed.
"""
