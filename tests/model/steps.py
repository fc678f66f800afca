"""What the programs and the store of a ``Machine`` do, one step after the other.

Each step is a name and its own seed, from which it draws everything, so that steps can be
left out of a schedule without a change of the others.
"""

import copy
import errno
from collections.abc import Callable
from random import Random

from logfs.errors import DeletedError, LogfsError
from logfs.log.lines.append import append_lines
from logfs.log.lines.form import LineForm
from logfs.log.publishing.publish import publish
from logfs.log.publishing.staging import StagedFile, StagingWriter
from logfs.log.reading.lookup import positions_of_offset
from logfs.records._encoding import encode_records
from logfs.records.encoded import EncodeOptions
from logfs.records.record import Record
from logfs.services.compaction.manual import compact_now
from logfs.services.packing.packer import pack_now
from logfs.services.retention.logs import apply_retention
from logfs.services.retention.trimming import trim
from logfs.types import TopicPartition
from tests.log.compaction import tools
from tests.model.account import UID_BYTES, Account, Defect, Line, StopKind
from tests.model.backups import back_up_and_restore
from tests.model.machine import ALL, T0, T1, TRIMMED, Batch, C, D, Machine, Writer

MAX_WRITERS = 5
NATIVE_WRITES = 0.6
"""The share of the writes that native code is asked to do first, as a daemon asks it."""
FILES = ("*.log", "*.unfinished", "*/logfs.segments", "*index", "*-checkpoint*", "*")
_OPTIONS = EncodeOptions(1 << 20)

# Writing


def open_writer(m: Machine, random: Random) -> None:
    if len(m.writers) < MAX_WRITERS:
        m.new_writer(random.choice(m.present()))


def write(m: Machine, random: Random) -> None:
    """Write some lines, or pieces of them."""
    if not m.writers:
        return open_writer(m, random)
    writer = random.choice(m.writers)
    for _ in range(random.randint(0, 3) + (not writer.queue)):
        line = m.new_line(writer.topic_partition, random, writer.number)
        writer.queue.append(line)
    stream = writer.stream
    size = random.choice([len(stream), *(random.randint(1, len(stream)) for _ in range(2))])
    is_native = random.random() < NATIVE_WRITES
    return _write(m, writer, stream[: _readable(writer, size)], is_native=is_native)


def _readable(writer: Writer, size: int) -> int:
    """Make a write longer if it would end within the number of a line."""
    end, at = size + writer.sent, 0
    for line in writer.queue:
        head = line.data.rfind(b"\t") + 1 + UID_BYTES
        if at < end < at + head:
            return at + head - writer.sent
        at += line.full
    return size


def _write(m: Machine, writer: Writer, data: bytes, *, is_native: bool) -> None:
    writer.offer(len(data))
    try:
        accepted = m.write(writer, data, is_native=is_native)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            m.close_writer(writer)
            raise
        accepted = 0
        m.counts["writes without room"] += 1
    except LogfsError:
        m.close_writer(writer)
        raise
    writer.accept(accepted)


def bulk(m: Machine, random: Random) -> None:
    """Append whole lines at once."""
    tp = random.choice(m.present())
    lines = [m.new_line(tp, random) for _ in range(random.randint(1, 12))]
    for line in lines:
        line.offer(line.full)
    data = b"".join(line.data + b"\n" for line in lines)
    done = append_lines(m.log(tp), data, LineForm(m.accounts[tp].view), m.now_ms)
    refusal = done.refusal
    is_clear = refusal is None or getattr(refusal, "errno", None) == errno.ENOSPC
    end = done.accepted
    for line in lines:
        if end >= line.full or is_clear:
            line.accept(line.full if end >= line.full else 0)
        end -= line.full
    if refusal is not None and not is_clear:
        raise refusal


def close(m: Machine, random: Random) -> None:
    if m.writers:
        m.close_writer(random.choice(m.writers))


# Durability


def sync(m: Machine, random: Random) -> None:
    if not m.writers:
        return
    writer = random.choice(m.writers)
    is_native = random.random() < NATIVE_WRITES and writer.file.is_all_records
    if is_native and writer.file.native.sync():
        m.counts["native syncs"] += 1
    else:
        writer.file.sync()
    m.flushed(writer.topic_partition)
    writer.synced()


def flush(m: Machine, random: Random) -> None:
    tp = random.choice(m.present())
    m.log(tp).flush()
    m.flushed(tp)


def roll(m: Machine, random: Random) -> None:
    m.log(random.choice(m.present())).roll(m.now_ms)


def maintain(m: Machine, _random: Random) -> None:
    m.maintain()


def checkpoint(m: Machine, _random: Random) -> None:
    m.store.checkpoint()


def tick(m: Machine, random: Random) -> None:
    m.pass_time(random.randint(1, 100_000))
    m.store.remove_due_files(m.now_ms)
    m.store.tidy(m.now_ms)
    m.store.expire_producers(m.now_ms)


def reopen(m: Machine, random: Random) -> None:
    """Close the store, with or without a flush, and open it again."""
    for writer in list(m.writers):
        m.close_writer(writer)
    is_durable = random.random() < 0.5
    m.store.close(m.now_ms, is_durable=is_durable)
    if is_durable:
        for tp in m.present():
            m.flushed(tp)
    m.disk.kill()
    m.store = m.open(m.disk)
    if not m.store.was_clean:
        raise Defect("the stop was clean, and it was recovered")


# Removing


def trim_some(m: Machine, random: Random) -> None:
    tp = random.choice(TRIMMED)
    m.learn()
    log, account = m.log(tp), m.accounts[tp]
    offset = random.randint(log.log_start_offset, log.log_end_offset)
    position = positions_of_offset(log.snapshot, offset)[account.view]
    account.gives_up(position)
    trim(log, offset, m.now_ms, at_once=random.random() < 0.3)
    account.gave_up(log.snapshot.start.positions[account.view])  # with no room, less than asked


def retain(m: Machine, random: Random) -> None:
    tp = random.choice(TRIMMED)
    m.learn()
    log, account = m.log(tp), m.accounts[tp]
    trimmed_most = account.given_up_most  # a trim that failed may still be found done
    account.gives_up(account.shown)
    m.store.alter_topic("t", {"retention.bytes": random.choice(["0", "500", "2000"])})
    apply_retention(log, m.now_ms)
    account.gave_up(log.snapshot.start.positions[account.view])
    account.given_up_most = max(account.given_up, trimmed_most)
    m.store.alter_topic("t", {"retention.bytes": "-1"})


def compact(m: Machine, random: Random) -> None:
    m.learn()
    compact_now(m.log(C), m.now_ms, tools(), roll=random.random() < 0.6)


def pack(m: Machine, random: Random) -> None:
    """Write sealed segments once more, smaller; nothing may be different after it."""
    m.learn()
    pack_now(m.log(random.choice([T0, T1])), m.now_ms, tools(), roll=random.random() < 0.5)


def delete(m: Machine, random: Random) -> None:
    """Delete a topic, with files of it open, and perhaps make it again."""
    if D in m.accounts:
        stale = [writer for writer in m.writers if writer.topic_partition == D]
        m.writers = [writer for writer in m.writers if writer not in stale]
        m.topic.begin_deleting()
        m.store.delete_topic("d", m.now_ms)
        m.topic.deleted()
        del m.accounts[D]
        for writer in stale:
            _expect_refusal(m, writer)
    if random.random() < 0.8:
        make(m, random)


def _expect_refusal(m: Machine, writer: Writer) -> None:
    try:
        writer.file.write(b"late\n", m.now_ms)
    except DeletedError:
        writer.file.close(m.now_ms)
    else:
        raise Defect("an append to a deleted topic was accepted")


def make(m: Machine, _random: Random) -> None:
    if D not in m.accounts:
        m.topic.begin_making()
        m.store.create_topic("d", 1, m.properties, m.now_ms)
        m.accounts[D] = Account(str(D), m.accounts[T0].view)
        m.topic.made(m.accounts[D])


# Publishing


def publish_some(m: Machine, random: Random) -> None:
    """Publish a batch, or try again to publish the one that failed."""
    if m.batch is None:
        query = random.choice(["a", "b"])
        m.batch = Batch(query, m.published[query])
        there = [tp for tp in ALL if tp in m.accounts]
        for tp in random.sample(there, random.randint(1, 2)):
            lines = [m.new_line(tp, random) for _ in range(random.randint(1, 15))]
            m.batch.rows.append((tp, m.accounts[tp], lines))
    batch = m.batch
    # A job stages for topics that are there, as they are now.
    rows = [row for row in batch.rows if m.accounts.get(row[0]) is row[1]]
    for _, _, lines in rows:
        for line in lines:
            line.is_pending, line.is_gone = True, False
            line.offer(line.full)
    staged = [_stage(m, random, batch, tp, lines) for tp, _, lines in rows]
    publish(m.store, batch.query, batch.number, staged, m.now_ms)
    m.batch = None
    m.published[batch.query] += 1
    m.learn()
    for _, _, lines in rows:
        for line in lines:
            line.accept(line.full)
            line.is_pending, line.is_durable = False, True


def _stage(
    m: Machine, random: Random, batch: Batch, tp: TopicPartition, lines: list[Line]
) -> StagedFile:
    writer = StagingWriter(m.disk, tp, batch.query, batch.number, m.new_id())
    step = random.randint(1, 4)
    for first in range(0, len(lines), step):
        records = []
        for line in lines[first : first + step]:
            value = line.data.rpartition(b"\t")[2]
            records.append(Record(0, m.now_ms, line.key, value))
        writer.write(encode_records(records, first, m.now_ms, _OPTIONS).batches)
    return writer.finish()


# Failures


def fill(m: Machine, random: Random) -> None:
    """Have the disk run full while other things continue; some of these make room."""
    m.disk.fill(names_need_room=random.random() < 0.5)
    m.disk.space_bytes = m.disk.used_bytes + random.choice([0, 10, 100, 1000])
    steps = (
        write,
        write,
        bulk,
        bulk,
        roll,
        compact,
        pack,
        checkpoint,
        close,
        maintain,
        trim_some,
        retain,
    )
    for step in random.choices(steps, k=random.randint(2, 6)):
        _without_room(m, random, step)
    if random.random() < 0.3:
        m.stop(random, StopKind.KILL, is_full=True)
    m.disk.space_bytes = None
    for log in m.store.all_partitions():
        if log.offline is not None:
            raise Defect(f"{log.topic_partition} is offline: {log.offline}; the disk was full")


def lack_room(m: Machine, random: Random) -> None:
    """Have single writes fail with ENOSPC."""
    for _ in range(random.randint(1, 3)):
        after = random.randint(0, 200)
        m.disk.fail_next_write(random.choice(FILES), errno.ENOSPC, after_bytes=after)
    for step in random.choices(
        (write, write, bulk, roll, compact, pack, checkpoint, publish_some), k=3
    ):
        _without_room(m, random, step)
    m.disk.heal()


def _without_room(m: Machine, random: Random, step: "Step") -> None:
    try:
        step(m, random)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    m.learn()


def fail(m: Machine, random: Random) -> None:
    """Have the disk fail with EIO while other things continue, then load what went offline."""
    m.has_failed = True
    name = random.choice(FILES)
    match random.randrange(4):
        case 0:
            m.disk.fail_next_sync(name)
        case 1:
            m.disk.fail_next_write(name, after_bytes=random.randint(0, 200))
        case 2:
            m.disk.fail_next(random.choice(["pread", "open", "truncate"]), name)
        case _:
            # Not sync_directory: a journal that cannot be written ends the file system.
            m.disk.fail_next(random.choice(["rename", "remove", "open"]))
    steps = (
        *(write, write, bulk, sync, sync, flush, maintain, roll, compact, pack, close, checkpoint),
        *(trim_some, retain, publish_some),
    )
    for step in random.choices(steps, k=3):
        try:
            step(m, random)
            m.learn()
        except Defect:
            raise
        except (OSError, LogfsError):
            m.counts["errors of a failing disk"] += 1
    m.disk.heal()
    _load_again(m, random)


def _load_again(m: Machine, random: Random) -> None:
    offline = [log.topic_partition for log in m.store.all_partitions() if log.offline is not None]
    m.counts["taken offline"] += len(offline)
    if random.random() < 0.3:
        m.stop(random, random.choice([StopKind.KILL, StopKind.POWER]))
        return
    for tp in offline:
        for writer in [writer for writer in m.writers if writer.topic_partition == tp]:
            m.close_writer(writer)
        m.settle_one(m.store.reload(tp, m.now_ms), m.accounts[tp], StopKind.KILL)
    if offline:
        m.has_failed = False


def back_up(m: Machine, random: Random) -> None:
    """Take a backup while files are open, restore it, and compare."""
    is_restored = random.random() < 0.5
    store = back_up_and_restore(m, is_restored=is_restored)
    # A read-only store makes no records of unfinished lines.
    m.settle(store, copy.deepcopy(m.accounts), StopKind.KILL, may_wait=not is_restored)
    store.close(m.now_ms)
    m.counts["backups"] += 1


Step = Callable[[Machine, Random], None]
WEIGHTS: dict[Step, int] = {
    write: 30,
    sync: 6,
    flush: 3,
    close: 4,
    open_writer: 4,
    bulk: 8,
    roll: 3,
    maintain: 6,
    checkpoint: 4,
    tick: 3,
    reopen: 2,
    trim_some: 2,
    retain: 2,
    compact: 5,
    pack: 4,
    delete: 2,
    make: 1,
    publish_some: 4,
    fill: 2,
    lack_room: 2,
    fail: 2,
    back_up: 1,
}
STEPS = {step.__name__: step for step in WEIGHTS}
