"""The partition that Kafka's producers choose for a key."""

from logfs.records._encoding import murmur2


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key. Source: Kafka BuiltInPartitioner.partitionForKey."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions
