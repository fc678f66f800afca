"""Compaction: keep the last record of each key.

``cleaner`` chooses a log and compacts it, ``manual`` compacts one on request. Both run ``rounds``:
``offsetmap`` finds the last offset of each key, ``rewriting`` writes the segments.

Source: Kafka LogCleaner, LogCleanerManager, Cleaner.
"""
