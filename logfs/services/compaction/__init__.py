"""Compaction: keep the last record of each key.

    tools           what a compaction gets from its caller, and the numbers it reports
    transactions    the state of transactions while a log is read
    dirtyrange      which part of a log is dirty, and whether it is due
    offsetmap       the last offset of each key
    cleanedfiles    the ``.cleaned`` files of a segment that will replace others
    rewriting       the segments are written
    rounds          both of it, as often as memory for the keys makes necessary
    rewriter        background work on segments: which log is next, what follows a failure
    cleaner         chooses a log and compacts it
    manual          compacts one on request

Source: Kafka LogCleaner, LogCleanerManager, Cleaner.
"""
