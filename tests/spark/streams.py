"""A stream that a test runs batch by batch."""

import json
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logfs.spark.options import parse_options
from logfs.spark.schema import chosen
from tests.spark.logs import Logs

if TYPE_CHECKING:
    pass


Places = dict[str, list[int]]


class Stream:
    """A query without a JVM: the reader is asked in the order in which Spark asks it.

    Attributes:
        offset: Where the last batch ended, as in the checkpoint.
    """

    def __init__(self, logs: Logs | Path, offset: object = None, **options: str) -> None:
        from logfs.spark.streaming import LogfsStreamReader

        named = {name.replace("_", "."): text for name, text in options.items()}
        path = logs if isinstance(logs, Path) else logs.path
        parsed = parse_options({"path": str(path), **named}, UTC, is_stream=True)
        wanted = [("topic", "string"), ("partition", "int"), ("offset", "bigint")]
        self.reader = LogfsStreamReader(parsed, chosen(wanted))
        first = self.reader.initialOffset() if offset is None else offset
        self.offset: dict[str, Any] = self.checkpointed(first)

    @staticmethod
    def checkpointed(offset: object) -> dict[str, Any]:
        found = json.loads(json.dumps(offset))
        assert isinstance(found, dict)
        return found

    def batch(self, *, is_all: bool = False) -> Places | None:
        """Read the next batch; None if there is none."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        limit = ReadAllAvailable() if is_all else self.reader.getDefaultReadLimit()
        end = self.checkpointed(self.reader.latestOffset(self.offset, limit))
        if end == self.offset:
            return None
        found = self.read(self.offset, end)
        self.offset = end
        return found

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> Places:
        import pickle

        found: Places = {}
        for partition in self.reader.partitions(start, end):
            worker = pickle.loads(pickle.dumps(self.reader))
            for batch in worker.read(partition):
                for row in batch.to_pylist():
                    name = f"{row['topic']}/{row['partition']}"
                    found.setdefault(name, []).append(row["offset"])
        return found


def without_ids(offset: dict[str, Any]) -> dict[str, Any]:
    """Return the offsets of a checkpoint without the ids of its topics."""
    return {topic: row for topic, row in offset.items() if not topic.startswith("@id ")}


def offsets(first: int, behind: int) -> list[int]:
    return list(range(first, behind))
