"""Promise 3 of SEMANTICS.md, isolation levels; each docstring is the sentence that is run."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from logfs.log.partition import PartitionLog
from logfs.records.batch import BatchFields, encode_batch
from logfs.records.record import Record
from tests.log.transactions import ABORT, COMMIT, append_batch, marker
from tests.mounting import Mount, now_ms, opened_store, output
from tests.records import oracle
from tests.semantics.programs import append, attribute, meta

pytestmark = pytest.mark.fuse

PLAIN = 0
LEVELS = ("read_uncommitted", "read_committed", "high_watermark")


@dataclass
class Written:
    """What was written to ``orders/0``, in pieces of a transaction, or of none.

    Attributes:
        log: The partition while it is written.
        pieces: Producer and line of each record, in order.
        hidden: Numbers of the aborted ones.
        sequences: The sequences of each producer's next record.
        open: Numbers of the pieces of each open transaction, by producer.
    """

    log: PartitionLog
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    hidden: set[int] = field(default_factory=set)
    sequences: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[int]] = field(default_factory=dict)

    def put(self, producer: int, count: int) -> None:
        """Append a batch of records."""
        log, number = self.log, len(self.pieces)
        lines = [b"line %d of %d" % (n, producer) for n in range(number, number + count)]
        base = log.log_end_offset
        records = [Record(base + n, now_ms(), None, line) for n, line in enumerate(lines)]
        sequence = self.sequences.get(producer, 0)
        fields = BatchFields(
            producer_id=producer or 99,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=producer != PLAIN,
        )
        append_batch(log, encode_batch(records, fields), oracle.lengths(records), now_ms())
        self.sequences[producer] = sequence + count
        if producer != PLAIN:
            self.open.setdefault(producer, []).extend(range(number, number + count))
        self.pieces += [(producer, line + b"\n") for line in lines]

    def end(self, producer: int, kind: int) -> None:
        """End the transaction of a producer."""
        data = marker(producer, self.log.log_end_offset, kind, now_ms())
        append_batch(self.log, data, (0, 0, 0), now_ms())
        numbers = self.open.pop(producer)
        self.hidden.update(numbers if kind == ABORT else ())

    @property
    def stable(self) -> int:
        """How many pieces lie before the oldest open transaction."""
        return min([len(self.pieces), *(numbers[0] for numbers in self.open.values())])

    def shown(self, level: str) -> list[tuple[int, bytes]]:
        """Positions and lines that a level shows."""
        found, position = [], 0
        for number, (_, line) in enumerate(self.pieces):
            if level != "read_committed" or (number < self.stable and number not in self.hidden):
                found.append((position, line))
            position += len(line)
        return found

    def end_of(self, level: str) -> int:
        """The position at which a level ends."""
        count = self.stable if level == "read_committed" else len(self.pieces)
        return sum(len(line) for _, line in self.pieces[:count])


def text_of(shown: list[tuple[int, bytes]]) -> bytes:
    return b"".join(line for _, line in shown)


def write(data: Path, steps: Callable[[Written], None], before: Written | None = None) -> Written:
    with opened_store(data) as store:
        if before is None:
            store.create_topic("orders", 1, {"internal.segment.bytes": "20000"}, now_ms())
        log = store.partition("orders", 0)
        written = before or Written(log)
        written.log = log
        steps(written)
    return written


def mixed(written: Written) -> None:
    """Committed, aborted and plain records, over many segments; at the end one is open."""
    for turn in range(300):
        written.put(PLAIN, 3)
        written.put(1 + turn % 3, 10)
        if turn % 7 == 6 and 1 + turn % 3 in written.open:
            written.end(1 + turn % 3, COMMIT if turn % 2 else ABORT)
    for producer in list(written.open):
        written.end(producer, ABORT)
    written.put(1, 5)
    written.end(1, COMMIT)
    written.put(2, 5)
    written.put(PLAIN, 20)


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Written, dict[str, Path]]]:
    """``orders`` at every level, and what was written to it."""
    directory = tmp_path_factory.mktemp("isolation")
    (directory / "data").mkdir()
    written = write(directory / "data", mixed)
    points = {}
    opened = []
    try:
        for level in LEVELS:
            mount = Mount(directory / "data", directory / level, "ro", f"isolation.level={level}")
            mount.start()
            opened.append(mount)
            points[level] = mount.point / "orders"
        yield written, points
    finally:
        for mount in opened:
            mount.clear()


def test_what_read_committed_shows(mounts: tuple[Written, dict[str, Path]]) -> None:
    """With `isolation.level=read_committed` every name shows the records of committed transactions,
    and those outside of any, up to the first record of a transaction that is still open. An aborted
    record is never shown."""
    written, points = mounts
    orders, shown = points["read_committed"], written.shown("read_committed")
    expected, last = text_of(shown), [line for _, line in shown[-10:]]
    assert len(shown) < len(written.pieces) - 500
    assert output("cat", orders / "0") == output("dd", f"if={orders / '0'}", "bs=77",
                                                 "status=none") == expected  # fmt: skip
    assert output("grep", "-c", "line", orders / "0").strip() == b"%d" % len(shown)
    fixed = orders / "0@earliest..latest"
    assert fixed.stat().st_size == len(expected)
    assert output("tac", fixed).splitlines()[:10] == [line[:-1] for line in last[::-1]]
    assert output("tail", "-n", "10", orders / "0").splitlines(keepends=True) == last
    segments = sorted((orders.parent / ".segments" / "orders-0").glob("*.log"))
    assert len(segments) > 5
    assert b"".join(p.with_suffix(".txt").read_bytes() for p in segments) == expected


def test_what_the_others_show(mounts: tuple[Written, dict[str, Path]]) -> None:
    """With `high_watermark`, files end at the high watermark. In a directory that logfs owns this
    is the end of the log. The default, `read_uncommitted`, shows everything."""
    written, points = mounts
    for level in ("high_watermark", "read_uncommitted"):
        assert output("cat", points[level] / "0") == text_of(written.shown("read_uncommitted"))
        assert len(written.shown("read_uncommitted")) == len(written.pieces)


def test_positions_are_those_of_all_levels(mounts: tuple[Written, dict[str, Path]]) -> None:
    """Positions do not depend on the level: aborted records are holes, and the size is the position
    at which the level ends."""
    written, points = mounts
    for level, orders in points.items():
        assert (orders / "0").stat().st_size == written.end_of(level)
        assert attribute(orders / "0", "end") == written.end_of(level)
        with (orders / "0").open("rb", buffering=0) as file:
            for position, line in written.shown(level)[::31]:
                assert os.pread(file.fileno(), len(line), position) == line
    assert written.end_of("read_committed") < written.end_of("read_uncommitted")
    shown = dict(written.shown("read_committed"))
    everything = written.shown("read_uncommitted")
    with (points["read_committed"] / "0").open("rb", buffering=0) as file:
        behind = b""
        for position, line in reversed([x for x in everything if x[0] < max(shown)]):
            if position in shown:
                behind = line
            elif position % 13 == 0 and behind:  # inside what is hidden: the next one, but its end
                assert os.pread(file.fileno(), 1, position) == behind[:1]


def test_the_facts_of_the_levels(mounts: tuple[Written, dict[str, Path]]) -> None:
    """`user.logfs.last_stable_offset`, `high_watermark` and `isolation_level`, and `.meta`, say
    where the levels end and which one is shown."""
    written, points = mounts
    ends = set()
    for level, orders in points.items():
        facts = meta(orders / "0")
        assert facts["isolation_level"] == level
        assert os.getxattr(orders / "0", "user.logfs.isolation_level").decode() == level
        assert facts["positions"]["text"]["end"] == written.end_of(level)
        assert facts["high_watermark"] == facts["log_end_offset"]
        ends.add((attribute(orders / "0", "last_stable_offset"), facts["log_end_offset"]))
    [(stable, end)] = ends
    assert end - stable == len(written.pieces) - written.stable


def test_when_a_transaction_ends(tmp_path: Path) -> None:
    """The size stays the same while a transaction is open, and jumps when it ends."""
    (tmp_path / "data").mkdir()
    written = write(tmp_path / "data", mixed)
    mount = Mount(tmp_path / "data", tmp_path / "mnt", "isolation.level=read_committed")
    orders = mount.point / "orders"
    with mount:
        size = (orders / "0").stat().st_size
        assert size == written.end_of("read_committed")
        append(orders / "0", b"behind the open one\n")
        assert (orders / "0").stat().st_size == size
        mount.stop()
        written.pieces.append((PLAIN, b"behind the open one\n"))
        write(tmp_path / "data", lambda each: each.end(2, ABORT), written)
        mount.start()
        assert (orders / "0").stat().st_size == written.end_of("read_committed") > size
        assert output("cat", orders / "0") == text_of(written.shown("read_committed"))
        append(orders / "0", b"and so on\n")
        assert output("tail", "-n", "1", orders / "0") == b"and so on\n"
