"""Idempotent and transactional producers: their state, its snapshots, the transaction index."""
