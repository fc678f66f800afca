"""Deleting topics: which ones hold nothing."""

from collections.abc import Iterable

from logfs.errors import TopicNotEmptyError
from logfs.log.partition import PartitionLog
from logfs.log.writing.lines import has_unfinished


def check_empty(logs: Iterable[PartitionLog]) -> None:
    """Refuse to delete a topic that holds records or unfinished lines.

    Args:
        logs: The partitions of one topic.

    Raises:
        TopicNotEmptyError: It holds some, or a partition cannot tell because it is offline.
        OSError: A partition directory could not be read.
    """
    for log in logs:
        records = log.log_end_offset - log.log_start_offset
        if log.offline is not None:
            found = f"is offline ({log.offline})"
        elif records:
            found = f"holds offsets {log.log_start_offset} to {log.log_end_offset - 1}"
        elif has_unfinished(log):
            found = "holds an unfinished line of an open file"
        else:
            continue
        raise TopicNotEmptyError(
            f"{log.topic_partition} {found}; 'logfs topic delete' deletes a topic with its records"
        )
