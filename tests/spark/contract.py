"""Spark's contract with a source and a sink, without a JVM, so that a test has time for many kills.

    python -m tests.spark.contract DATA CHECKPOINT FINISH SEED

A driver notes ``offsets/N`` before a batch and ``commits/N`` after it, and reads a batch without a
commit again between the same offsets. Each task and commit is a process; one that dies is tried
again, and some tasks run twice at once. Reader and writer are those of logfs; they copy what
``tests.spark.copied`` says. The program forks a driver whenever the last one has died, and ends
when the file FINISH is there and nothing is left to read.
"""

import importlib
import json
import os
import pickle
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.types import BinaryType, StructType, TimestampType

from logfs.spark.source import LogfsDataSource
from tests.spark.copied import is_kept

T = TypeVar("T")

MOST_OFFSETS = 300
"""The offsets in a batch, at most."""
_TRIES = 4
_QUERY = "11111111-2222-3333-4444-555555555555"
_SCHEMA = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("timestamp", TimestampType())
)


def replace(path: Path, text: str) -> None:
    """Write a file as a whole, as Spark writes those of a checkpoint."""
    new = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    new.write_text(text)
    new.rename(path)


class DiedError(Exception):
    """A process has ended without an answer, or with an error."""


class Child:
    """A process that does some work, and answers with what it returns."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._pipe, answers = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(answers)
            return
        os.close(self._pipe)
        try:
            with os.fdopen(answers, "wb") as pipe:
                pickle.dump(_answer_of(work), pipe)
        finally:  # also if the driver has been killed, which read the pipe
            os._exit(0)

    def answer(self) -> Any:  # noqa: ANN401 - what it returned
        """Wait for the end of the process; raise DiedError."""
        with os.fdopen(self._pipe, "rb") as pipe:
            data = pipe.read()
        os.waitpid(self._pid, 0)
        found = pickle.loads(data) if data else DiedError("killed")
        if isinstance(found, DiedError):
            raise found
        return found


class Driver:
    """Runs one query from where its checkpoint is."""

    def __init__(self, data: str, checkpoint: Path, finish: Path, chance: random.Random) -> None:
        read = {"subscribe": "in", "startingOffsets": "earliest", "minPartitions": "3"}
        read["maxOffsetsPerTrigger"] = str(MOST_OFFSETS)
        self._reader = LogfsDataSource({"path": data, **read}).streamReader(_SCHEMA)
        self._writer = LogfsDataSource({"path": data, "topic": "out"}).streamWriter(_SCHEMA, False)
        self._offsets, self._commits = checkpoint / "offsets", checkpoint / "commits"
        for directory in (self._offsets, self._commits):
            directory.mkdir(parents=True, exist_ok=True)
        self._initial = checkpoint / "initial"
        self._finish = finish
        self._chance = chance

    def run(self) -> None:
        """Read all there is, until the file is there that ends it."""
        last, done = last_of(self._offsets), last_of(self._commits)
        if not self._initial.exists():
            replace(self._initial, json.dumps(self._reader.initialOffset()))
        while True:
            if last == done:
                is_last = self._finish.exists()
                start = self._end_of(last)
                end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
                if end == start:
                    if is_last:
                        return
                    time.sleep(0.02)
                    continue
                last += 1
                replace(self._offsets / str(last), json.dumps(end))
            self._run_batch(last, self._end_of(last - 1), self._end_of(last))
            done = last

    def _end_of(self, batch: int) -> dict[str, Any]:
        path = self._offsets / str(batch) if batch >= 0 else self._initial
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def _run_batch(self, batch: int, start: dict[str, Any], end: dict[str, Any]) -> None:
        tasks = list(self._reader.partitions(start, end))
        messages: list[WriterCommitMessage | None] = [None] * len(tasks)
        try:
            for number, task in enumerate(tasks):
                messages[number] = self._try_task(task, number, batch)
            Child(lambda: self._writer.commit(messages, batch)).answer()
        except DiedError:
            Child(lambda: self._writer.abort(messages, batch)).answer()
            raise
        time.sleep(0.3 * self._chance.random())  # so that some drivers die just here
        replace(self._commits / str(batch), "{}")

    def _try_task(self, task: InputPartition, number: int, batch: int) -> WriterCommitMessage:
        """Return the message of an attempt that succeeds; sometimes two of them run at once."""
        for _ in range(_TRIES):
            count = 2 if self._chance.random() < 0.2 else 1
            copies = [Child(lambda: self._do_task(task, number, batch)) for _ in range(count)]
            answers = [found for copy in copies if (found := _unless_died(copy.answer))]
            if answers:
                return self._chance.choice(answers)
        raise DiedError(f"a task of batch {batch}")

    def _do_task(self, task: InputPartition, number: int, batch: int) -> WriterCommitMessage:
        context = TaskContext._getOrCreate()
        context._partitionId = number
        context._localProperties = {
            "sql.streaming.queryId": _QUERY,
            "streaming.sql.batchId": str(batch),
        }
        return self._writer.write(self._rows(task))

    def _rows(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in self._reader.read(task):
            values = batch.column("value").to_pylist()
            yield batch.filter(pa.array([is_kept(value) for value in values]))


def last_of(directory: Path) -> int:
    """Return the number of the last batch in a directory of a checkpoint; -1 if there is none."""
    return max((int(one.name) for one in directory.iterdir() if one.name.isdigit()), default=-1)


def _answer_of(work: Callable[[], Any]) -> object:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - it is told to the driver
        return DiedError(f"{type(error).__name__}: {error}")


def _unless_died(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except DiedError:
        return None


def main(data: str, checkpoint: str, finish: str, seed: str) -> None:
    """Run drivers until one has read all."""
    for module in ("pyarrow.compute", "logfs.spark.streaming", "logfs.spark.staging"):
        importlib.import_module(module)  # once, before each process would
    chance = random.Random(int(seed))
    code = 1
    while code:
        number = chance.random()
        driver = os.fork()
        if not driver:
            try:
                Driver(data, Path(checkpoint), Path(finish), random.Random(number)).run()
            except BaseException as error:  # noqa: BLE001 - the next driver continues
                print(f"{type(error).__name__}: {error}", flush=True)
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(driver, 0)
        code = os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
