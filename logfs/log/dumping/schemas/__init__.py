"""Schemas of the messages that Kafka keeps in logs of its own; facts of version 4.1."""
