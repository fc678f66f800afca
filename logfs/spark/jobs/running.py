"""A function over pieces of work, as a Spark job.

The pieces are packed into tasks of a useful size, an executor calls the function with each piece,
and the answers are returned in the order of the pieces. Arguments and answers are pickled, so they
should be small.
"""

import contextlib
import functools
import gc
import itertools
import os
import pickle
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.functions import arrow_udf

from logfs.errors import SparkJobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Piece = TypeVar("Piece")
Answer = TypeVar("Answer")

Progress = Callable[[int, int], object]
"""Told how much is done, and how much there is."""

_LOOK_EVERY_S = 0.2
_REASON = re.compile(r"^(?:[\w.]*\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_TASKS_A_CORE = 4
_LEAST_BYTES = 8 << 20
_MOST_BYTES = 256 << 20
_LEAST_TASKS = 32
"""For a cluster that does not say how many cores it has."""
_numbers = itertools.count()


class SparkJob:
    """Runs functions on a cluster.

    Functions in Arrow, which need no pandas, unlike ``mapInArrow``.

    Args:
        progress: Called with the progress, in the unit of the sizes; in another thread.
    """

    def __init__(self, spark: "SparkSession", name: str, progress: Progress) -> None:
        self.spark = spark
        self._name = name
        self._progress = progress

    @property
    def cores(self) -> int:
        """How many tasks run at the same time."""
        context = _context(self.spark)
        return _LEAST_TASKS if context is None else int(context.defaultParallelism)

    def map(
        self,
        function: Callable[[Piece], Answer],
        pieces: Sequence[Piece],
        sizes: Sequence[int],
    ) -> list[Answer]:
        """Return what a function answers for each piece.

        Args:
            function: A function of a module, or a ``partial`` of one: a worker imports it.
            pieces: Plain data.

        Raises:
            SparkJobError: A task failed, and again when Spark tried it again.
        """
        if not pieces:
            return []
        groups = [[(n, pieces[n]) for n in group] for group in pack(sizes, self.cores)]

        def answer(numbers: Iterator[pa.Array]) -> Iterator[pa.Array]:
            set_imports_aside()
            for some in numbers:
                found = ([(n, function(piece)) for n, piece in groups[i]] for i in some.to_pylist())
                yield pa.array(map(pickle.dumps, found), pa.binary())

        rows = self.numbers(len(groups)).select(arrow_udf(answer, "binary")("id"))
        collected = self.collect(rows, sum(sizes)).column(0).to_pylist()
        answers = dict(pair for group in collected for pair in pickle.loads(group))  # of our own
        return [answers[n] for n in range(len(pieces))]

    def numbers(self, count: int) -> "DataFrame":
        """Return the numbers below a count as a column ``id``, each in its own task."""
        return self.spark.range(0, count, 1, count)

    def collect(self, rows: "DataFrame", total: int) -> pa.Table:
        """Run a query and return its rows.

        Raises:
            SparkJobError: A task failed, and again when Spark tried it again.
            KeyboardInterrupt: Ctrl-C; the job is cancelled.
        """
        try:
            with self._watched(total):
                return rows.toArrow()
        except Exception as error:
            if _was_interrupted(error):
                raise KeyboardInterrupt from error
            if not type(error).__module__.startswith(("pyspark", "py4j")):
                raise
            raise SparkJobError(reason_of(error)) from error

    @contextlib.contextmanager
    def _watched(self, total: int) -> Iterator[None]:
        """Tell how many of the tasks are done; Connect has no way to ask."""
        context = _context(self.spark)
        self._progress(0, total)
        if context is None:
            yield
            self._progress(total, total)
            return
        group, is_over = f"logfs-{os.getpid()}-{next(_numbers)}", threading.Event()
        context.setJobGroup(group, self._name, interruptOnCancel=True)
        watcher = threading.Thread(
            target=self._watch, args=(context.statusTracker(), group, total, is_over), daemon=True
        )
        watcher.start()
        try:
            yield
            self._progress(total, total)
        finally:
            is_over.set()
            watcher.join()

    def _watch(self, tracker: Any, group: str, total: int, is_over: threading.Event) -> None:  # noqa: ANN401 - py4j's
        while not is_over.wait(_LOOK_EVERY_S):
            jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
            stages = {number for job in jobs for number in job.stageIds}
            found = list(filter(None, map(tracker.getStageInfo, stages)))
            tasks = sum(stage.numTasks for stage in found)
            done = sum(stage.numCompletedTasks for stage in found)
            if tasks and not is_over.is_set():
                self._progress(total * done // tasks, total)


@functools.cache
def set_imports_aside() -> None:
    """Take what a worker has imported away from its garbage collector, once.

    A worker collects garbage after each task, and goes through all that: 40 ms of a core.

    Source: pyspark.daemon, manager.
    """
    gc.freeze()


def pack(sizes: Sequence[int], cores: int) -> list[list[int]]:
    """Share out pieces to tasks, neighbours together; return the numbers of those in each.

    A task costs 30 ms of a core besides what it does; a few for each core even out what takes
    longer than its size says.
    """
    most = min(max(sum(sizes) // (_TASKS_A_CORE * cores), _LEAST_BYTES), _MOST_BYTES)
    groups: list[list[int]] = []
    held = 0
    for number, size in enumerate(sizes):
        if not groups or held + size > most:
            groups.append([])
            held = 0
        groups[-1].append(number)
        held += size
    return groups


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C came first, which cancels the job; PySpark tells of that instead."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def reason_of(error: BaseException) -> str:
    """Return what went wrong in a task, without the stacks of two languages around it."""
    found = _REASON.findall(str(error))
    ours = [text for kind, text in found if not kind.startswith(("Spark", "Python", "Py4J"))]
    if ours:
        return str(ours[-1])
    return " ".join(str(error).split("\n", 1)[0].split())


def _context(spark: "SparkSession") -> Any:  # noqa: ANN401 - pyspark is not typed here
    """Return the context of a session; None of one that is reached through Connect."""
    return None if "connect" in type(spark).__module__ else spark.sparkContext
