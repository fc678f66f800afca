"""The offsets of a stream, as Spark's Kafka source writes them into its checkpoint. Pure.

    {"orders": {"0": 123, "1": 45}}        the next offset of each partition

Source: Spark JsonUtils.partitionOffsets.
"""

from collections.abc import Mapping

from logfs.errors import InvalidConfigError
from logfs.types import TopicPartition

Json = dict[str, dict[str, int]]


def to_json(offsets: Mapping[TopicPartition, int]) -> Json:
    """Return offsets as they go into a checkpoint, in order."""
    found: Json = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return offsets as they come from a checkpoint.

    Raises:
        InvalidConfigError: That is not what ``to_json`` writes.
    """
    try:
        return {
            TopicPartition(topic, int(number)): int(offset)
            for topic, row in offsets.items()
            for number, offset in row.items()
        }
    except (ValueError, TypeError, AttributeError):
        raise InvalidConfigError(
            f'the checkpoint holds {offsets!r}: expected {{"TOPIC": {{"PARTITION": OFFSET}}}}; '
            "it belongs to another source"
        ) from None
