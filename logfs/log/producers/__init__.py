"""Idempotent and transactional producers.

state        what is known of each producer, and the rules for its next batch
snapshots    Kafka's ``.snapshot`` files
replay       the producers at an offset: from a snapshot and the batches after it
"""
