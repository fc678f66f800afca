"""Records that were staged get their places in the logs, exactly once: how jobs write.

    staging   a task's records as plain files in the partition directories
    ledger    what of a query was published and what is about to be: a plain file in the root
    publish   from the one to the other, over any stop in between
    leftovers what was stopped half-way, and what nobody will come back for

A *query* is what writes batch after batch under numbers that never go back; a batch is published
whole or not at all, whoever tries however often. The order of things:

    1 tasks stage files, durable, under names that nobody else has
    2 the ledger gets an *intent*: which files, where each log ends, which sequence numbers
    3 their batches are appended as those of an idempotent producer, the query; then flushed
    4 the ledger gets *done*: the number of the batch; the files go

Before 2 nothing has happened. After it only the files of the intent count, whatever else a job that
was started again has staged. A stop inside 3 leaves a beginning of the files in each log, and the
sequence numbers in the headers of the batches say how long it is: they are where the records are,
so that a power cut cannot part them. After 4 the number alone is enough.

Source: Kafka KIP-98, the idempotent producer; Spark's contract of sinks: a batch is tried again
with its number until it is committed.
"""
