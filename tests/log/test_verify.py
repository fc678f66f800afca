"""Checking: nothing is found in what is whole, and every damage where it is."""

import errno
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logfs.config import TopicConfig
from logfs.log.names import LEADER_EPOCH_CHECKPOINT, LOCK_FILE, RECOVERY_POINT_CHECKPOINT
from logfs.records.record import Record
from logfs.services.compaction.rounds import clean
from logfs.services.verifying.findings import Level
from logfs.services.verifying.segments import SegmentReport, SegmentTask, verify_segment
from logfs.services.verifying.verify import MAX_ROUNDS, verify
from logfs.types import TopicPartition
from tests.fakes import START_MS
from tests.kafka.scenarios import SCENARIOS
from tests.log.compaction import CompactedLog, dirty_range_of, tools
from tests.log.legacy import foreign
from tests.log.support import DIRECTORY, Bench, batches_in, contents
from tests.log.verifying import DAMAGES, SMALL, check, compacted, flip, killed, places, plain
from tests.records.messages import message


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_undamaged_log_has_no_findings(name: str) -> None:
    scenario = SCENARIOS[name]
    bench = Bench(scenario.config)
    expected = scenario.write(bench.log)
    assert check(bench.disk).damages == []
    bench.disk.kill()
    assert check(bench.disk).damages == []
    bench.store = bench.open()
    bench.restart()
    bench.store.close(bench.now_ms)
    verified = check(bench.disk)
    assert verified.findings == []
    assert (verified.partitions, verified.records >= len(expected.records)) == (1, True)


@pytest.mark.parametrize("make", [plain, killed, compacted])
def test_the_logs_are_whole_before_they_are_damaged(make: Callable[[], Bench]) -> None:
    bench = make()
    assert check(bench.disk).damages == []
    assert len(bench.names(".log")) > 3


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_where_it_is(name: str) -> None:
    make, damage = DAMAGES[name]
    bench = make()
    place = damage(bench)
    findings = check(bench.disk).damages
    assert place in places(findings), [str(finding) for finding in findings]
    for finding in findings:
        assert finding.problem
        assert finding.remedy
        assert "\n" not in str(finding)


@pytest.mark.parametrize("name", [n for n in DAMAGES if n.startswith(("base offset", "a record"))])
def test_a_wrong_batch_is_one_finding(name: str) -> None:
    make, damage = DAMAGES[name]
    bench = make()
    place = damage(bench)
    found = [f for f in check(bench.disk).damages if f.file.endswith(".log")]
    assert places(found) == [place]


@pytest.mark.parametrize("kind", ["log", "index", "textindex"])
def test_bytes_that_the_disk_cannot_read_are_a_finding(kind: str) -> None:
    bench = plain()
    name = f"{bench.names('.log')[1][:20]}.{kind}"
    bench.disk.fail_next("pread", f"*/{name}")
    found = check(bench.disk).damages
    assert places(found) == [(name, 0 if kind == "log" else None)]
    assert "Input/output error" in found[0].problem
    bench.disk.fail_next("pread", f"*/{name}", errno.EACCES)
    with pytest.raises(PermissionError):
        check(bench.disk)


@pytest.mark.allow_log("for a test")
@pytest.mark.parametrize("operation", ["open", "pread"])
def test_each_file_that_the_disk_cannot_read_is_a_finding_beside_the_others(operation: str) -> None:
    bench = plain()
    bench.store = bench.open()
    bench.store.create_topic("other", 1, {}, START_MS)
    bench.log.add_loss("line", "x.cut", 0, 5, "for a test", START_MS)
    bench.store.attributes.set("t", 0, mode=0o640)
    bench.store.close(START_MS)
    other = TopicPartition("other", 0).directory
    bench.disk.replace(f"{other}/{LEADER_EPOCH_CHECKPOINT}", b"damaged")
    [damage] = check(bench.disk).damages
    asked = {name for name in contents(bench.disk) if not name.startswith(other)}
    assert len(asked) > 30
    for name in asked - {LOCK_FILE}:
        bench.disk.fail(operation, name)
        found = check(bench.disk).damages
        bench.disk.heal()
        assert {finding.file for finding in found} == {name, damage.file}, name
        assert any("it cannot be read: Input/output error" in f.problem for f in found), name


@pytest.mark.parametrize("operation", ["list", "stat", "open", "pread"])
def test_a_directory_that_the_disk_cannot_read_is_a_finding_beside_the_others(
    operation: str,
) -> None:
    bench = plain()
    bench.store = bench.open()
    bench.store.create_topic("other", 1, {}, START_MS)
    bench.store.close(START_MS)
    bench.disk.replace(f"other-0/{LEADER_EPOCH_CHECKPOINT}", b"damaged")
    bench.disk.fail(operation, f"{DIRECTORY}*")
    found = check(bench.disk).damages
    assert any(finding.file.startswith(DIRECTORY) for finding in found)
    assert any(finding.file.startswith("other-0") for finding in found)


def test_a_torn_end_is_one_finding_that_says_what_the_next_start_does() -> None:
    bench = Bench({"index.interval.bytes": "100"})
    bench.write(*(b"line %d" % n for n in range(40)))
    bench.disk.kill()
    name = bench.names(".log")[0]
    data = bench.file(name)
    bench.put(name, data[:-9])
    [finding] = check(bench.disk).damages
    assert places([finding]) == [(name, batches_in(data)[-1][0])]
    assert "the next start cuts the log here, and keeps what it cuts" in finding.remedy
    bench.put(name, data[: batches_in(data)[20][0]])
    found = check(bench.disk).damages
    assert {f.file.rpartition(".")[2] for f in found} == {"index", "textindex"}
    assert {f.remedy for f in found} == {"the next start rebuilds it"}


@pytest.mark.parametrize("byte", [1, 8, 11, 16, 66])
def test_no_damage_hides_another(byte: int) -> None:
    """Batches after the next index entry are checked after any damage to a batch."""
    bench = Bench({"index.interval.bytes": "100"})
    bench.write(*(b"line %d" % n for n in range(40)))
    bench.store.close(bench.now_ms)
    name = bench.names(".log")[0]
    starts = [position for position, _ in batches_in(bench.file(name))]
    flip(bench, name, starts[5] + byte)
    flip(bench, name, starts[30] + 66)
    assert {(name, starts[5]), (name, starts[30])} <= set(places(check(bench.disk).damages))


@pytest.mark.parametrize("is_closed", [False, True])
def test_zeros_of_a_preallocated_file_are_no_damage(is_closed: bool) -> None:
    bench = Bench({"preallocate": "true", "internal.segment.bytes": "3000"})
    bench.write(*(b"line %d" % n for n in range(50)))
    if is_closed:
        bench.store.close(bench.now_ms)
    else:
        bench.disk.kill()
    assert check(bench.disk).findings == []


def _of_a_killed_cleaner() -> Bench:
    """What a broker leaves that dies before it notes how far it has compacted."""
    log = CompactedLog(SMALL)
    for n in range(60):
        key = b"own %d" % n if n % 3 else b"shared"
        log.append([Record(0, START_MS + n, key, b"value %d" % n)])
    log.roll()
    log.clean()
    names = [name for name in log.bench.names(".log") if log.bench.file(name)]
    bench = foreign(*((int(name[:20]), log.bench.file(name)) for name in names))
    assert _missing(bench)
    return bench


def _missing(bench: Bench) -> list[str]:
    found = check(bench.disk).damages
    return [finding.file for finding in found if "records are missing" in finding.remedy]


@pytest.mark.parametrize("segment", [0, 1])
def test_a_segment_that_was_just_compacted_shows_that_records_may_be_gone(segment: int) -> None:
    bench = _of_a_killed_cleaner()
    bench.put(f"{bench.names('.log')[segment]}.deleted", b"")
    assert _missing(bench) == []


def test_a_segment_that_was_just_deleted_does_not_explain_missing_records() -> None:
    bench = _of_a_killed_cleaner()
    first, *_ = bench.names(".log")
    bench.disk.rename(f"{DIRECTORY}/{first}", f"{DIRECTORY}/{first}.deleted")
    assert _missing(bench)


def test_compaction_may_be_further_than_its_checkpoint() -> None:
    bench = _of_a_killed_cleaner()
    bench.disk.replace("cleaner-offset-checkpoint", b"0\n1\nt 0 1\n")
    assert _missing(bench) == []


@pytest.mark.allow_log("are no whole batch")
def test_positions_that_start_after_a_loss_are_no_damage() -> None:
    bench = Bench(SMALL)
    bench.write(*(b"line %d" % n for n in range(30)))
    name = bench.names(".log")[-1]
    bench.disk.kill()
    flip(bench, name, batches_in(bench.file(name))[1][0] + 66)
    bench.new_boot()
    bench.store = bench.open()
    bench.write(b"and on")
    assert bench.log.losses
    assert check(bench.disk).damages == []
    bench.store.close(bench.now_ms)
    found = check(bench.disk).findings
    assert {finding.level for finding in found} == {Level.NOTE}
    assert {finding.file.rpartition(".")[2] for finding in found} == {"losses", "cut"}


@pytest.mark.parametrize("magic", [0, 1])
def test_damage_in_message_sets_of_old_formats_is_found(magic: int) -> None:
    messages = [message(magic, record) for record in keyed(0, 40)]
    bench = foreign((0, b"".join(messages[:20])), (20, b"".join(messages[20:])))
    assert check(bench.disk).damages != []  # it has no index yet
    bench.store = bench.open()
    bench.store.close(bench.now_ms)
    verified = check(bench.disk)
    assert (verified.damages, verified.records) == ([], 40)
    flip(bench, bench.names(".log")[0], len(messages[0]) + len(messages[1]) + 20)
    place = bench.names(".log")[0], len(messages[0]) + len(messages[1])
    assert place in places(check(bench.disk).damages)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_byte_of_a_log_that_is_changed_is_found(data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(["uncompressed", "zstd", "lz4"]))
    bench = Bench({"compression.type": codec, **SMALL})
    for first in range(0, 24, 3):
        bench.writer().write(b"".join(b"line %d\n" % n for n in range(first, first + 3)), 1)
    if data.draw(st.booleans()):
        bench.store.close(bench.now_ms)
    else:
        bench.disk.kill()
    name = data.draw(st.sampled_from(bench.names(".log")))
    content = bench.file(name)
    at = data.draw(st.integers(0, len(content) - 1))
    flip(bench, name, at, data.draw(st.integers(1, 255)))
    batch = max(position for position, _ in batches_in(content) if position <= at)
    assert (name, batch) in places(check(bench.disk).damages)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_byte_of_a_compacted_log_that_is_changed_is_found(data: st.DataObject) -> None:
    bench = compacted()
    name = data.draw(st.sampled_from([n for n in bench.names(".log") if bench.file(n)]))
    at = data.draw(st.integers(0, len(bench.file(name)) - 1))
    flip(bench, name, at, data.draw(st.integers(1, 255)))
    assert check(bench.disk).damages != []


class Meanwhile:
    """Has something done to a store while its directory is looked at, every few operations."""

    def __init__(self, bench: Bench, every: int, *actions: Callable[[], object]) -> None:
        self._disk = bench.disk
        self._every = every
        self._actions = actions
        self._count = self._done = 0
        self._is_busy = False
        bench.disk.before = self._look
        bench.disk.locked.add(".lock")

    def _look(self, _operation: str, _name: str, _size: int) -> None:
        if self._is_busy:
            return
        self._count += 1
        if self._count % self._every:
            return
        self._is_busy = True
        self._actions[self._done % len(self._actions)]()
        self._done += 1
        self._is_busy = False

    @property
    def done(self) -> int:
        """How often something was done."""
        return self._done


@pytest.mark.parametrize("every", [2, 3, 5, 7, 11, 17, 29])
def test_a_running_writer_causes_no_findings(every: int) -> None:
    """Between any two operations of the check the log grows, rolls, is compacted or trimmed."""
    log = CompactedLog(SMALL | {"file.delete.delay.ms": "0"})
    bench = log.bench
    for first in range(0, 60, 3):
        log.append(keyed(first, 3))
    log.roll()
    numbers = iter(range(60, 1_000_000, 3))

    def write() -> None:
        bench.append(keyed(next(numbers), 3))

    def roll() -> None:
        bench.log.roll(bench.now_ms)

    def compact() -> None:
        first = bench.log.log_start_offset
        clean(bench.log, dirty_range_of(bench.log, first, bench.now_ms), bench.now_ms, tools())
        bench.log.remove_due_files(bench.now_ms + 1)

    meanwhile = Meanwhile(bench, every, write, roll, write, write, compact)
    for _ in range(3):
        assert [str(finding) for finding in check(bench.disk).damages] == []
    assert meanwhile.done > 3


@pytest.mark.parametrize("every", [2, 3, 5, 11, 23])
def test_segments_that_retention_deletes_meanwhile_are_no_damage(every: int) -> None:
    bench = Bench(SMALL | {"file.delete.delay.ms": "0"})
    bench.write(*(b"line %d" % n for n in range(60)))

    def trim() -> None:
        start = bench.log.snapshot.segments[min(1, len(bench.log.snapshot.segments) - 1)]
        bench.log.advance_log_start_offset(start.base_offset, bench.now_ms)
        bench.log.remove_due_files(bench.now_ms + 1)
        bench.write(b"more", b"and more")

    meanwhile = Meanwhile(bench, every, trim)
    for _ in range(3):
        assert [str(finding) for finding in check(bench.disk).damages] == []
    assert meanwhile.done > 3


def test_lasting_damage_is_found_while_a_writer_runs() -> None:
    bench = Bench(SMALL)
    bench.write(*(b"line %d" % n for n in range(60)))
    name = bench.names(".log")[2]
    flip(bench, name, 70)
    waits: list[int] = []
    meanwhile = Meanwhile(bench, 7, lambda: bench.write(b"more"))
    found = check(bench.disk, wait=waits.append).damages
    assert (name, 0) in places(found)
    assert meanwhile.done > 3
    assert waits == [1, 2]


def test_a_finding_of_the_last_round_alone_is_not_reported() -> None:
    bench = Bench(SMALL)
    bench.write(*(b"line %d" % n for n in range(60)))
    bench.disk.locked.add(".lock")
    first, looks = bench.names(".log")[0], 0

    def run(tasks: Sequence[SegmentTask]) -> list[SegmentReport]:
        nonlocal looks
        looks += 1
        reports = [verify_segment(bench.disk, task) for task in tasks]
        if looks < MAX_ROUNDS:  # until then it is replaced whenever it is to be read
            reports = [replace(r, is_gone=r.base_offset == 0) for r in reports]
        return reports

    def wait(number: int) -> None:
        if number == MAX_ROUNDS - 1:
            flip(bench, first, 70)

    found = verify(bench.disk, TopicConfig.from_properties({}), None, run, wait)
    assert looks == MAX_ROUNDS
    assert found.damages == []


def test_a_segment_that_was_whole_is_read_once() -> None:
    bench = Bench(SMALL)
    bench.write(*(b"line %d" % n for n in range(60)))
    flip(bench, bench.names(".log")[2], 70)
    reads: list[str] = []
    bench.disk.locked.add(".lock")
    bench.disk.before = lambda operation, name, _size: (
        reads.append(name) if operation == "pread" and name.endswith(".log") else None
    )
    check(bench.disk)
    whole, damaged = (f"t-0/{name}" for name in bench.names(".log")[1:3])
    assert (reads.count(whole), reads.count(damaged) > 2) == (1, True)


def test_a_topic_that_is_deleted_meanwhile_has_no_findings() -> None:
    bench = plain()

    def delete(operation: str, name: str, _size: int) -> None:
        if operation == "list" and name == DIRECTORY and bench.disk.exists(name):
            bench.disk.remove_tree(name)

    bench.disk.before = delete
    verified = check(bench.disk)
    assert (verified.partitions, verified.damages) == (0, [])


def keyed(first: int, count: int) -> list[Record]:
    return [
        Record(n, START_MS + n, b"k%d" % (n % 7), b"value %d" % n)
        for n in range(first, first + count)
    ]


def test_small_files_that_are_too_large_are_findings() -> None:
    bench = plain()
    names = [RECOVERY_POINT_CHECKPOINT, f"{DIRECTORY}/{LEADER_EPOCH_CHECKPOINT}"]
    for name in names:
        bench.disk.open(name, write=True).truncate(1 << 40)
    found = {finding.file: finding.problem for finding in check(bench.disk).findings}
    for name in names:
        assert found[name] == "1099511627776 bytes; a file of this kind has at most 8388608"


@pytest.mark.parametrize("topic", [b"o\0\fers", "a\x85b".encode(), b"a\x1cb"])
def test_a_checkpoint_with_a_topic_name_of_control_characters_is_verified(topic: bytes) -> None:
    bench = Bench()
    bench.disk.replace(RECOVERY_POINT_CHECKPOINT, b"0\n1\n%s 0 1\n" % topic)
    assert check(bench.disk).damages == []
