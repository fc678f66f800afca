"""A file that was removed is not open any more once its readers are closed, however it went."""

import contextlib
import gc
from collections.abc import Callable, Iterator
from datetime import UTC

import pytest

from logfs.log.reading.address import parse_partition_name
from logfs.records.record import Record
from logfs.services.compaction.manual import compact_now
from logfs.services.packing.packer import pack_now
from logfs.services.retention.logs import apply_retention
from logfs.services.retention.trimming import trim
from logfs.services.views.files import FixedFile, GrowingFile
from logfs.services.views.resolve import resolve
from tests.log.compaction import tools
from tests.remote.tiering import TIERED, TieredBench

PAGED = {"internal.segment.bytes": "50000", "index.interval.bytes": "0", "retention.ms": "-1"}
"""Indexes of which a page is read at a time."""
DELAY_MS = 60_000


@pytest.fixture(autouse=True)
def no_garbage_collector() -> Iterator[None]:
    """Nothing may be closed by it alone: an idle daemon does not run it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def by_trim(bench: TieredBench) -> None:
    trim(bench.log, bench.log.log_end_offset, bench.now_ms)


def by_retention(bench: TieredBench) -> None:
    bench.store.alter_topic("t", {"retention.bytes": "0"})
    apply_retention(bench.log, bench.now_ms)


def by_compaction(bench: TieredBench) -> None:
    bench.store.alter_topic("t", {"cleanup.policy": "compact"})
    compact_now(bench.log, bench.now_ms, tools(piece_bytes=1 << 16), roll=True)


def by_packing(bench: TieredBench) -> None:
    bench.store.alter_topic("t", {"logfs.sealed.compression.type": "zstd"})
    pack_now(bench.log, bench.now_ms, tools(piece_bytes=1 << 16), roll=True)


def by_tiering(bench: TieredBench) -> None:
    bench.log.roll(bench.now_ms)
    bench.log.flush()
    bench.log.maintain()
    bench.tiering.copy(lambda _: None)
    bench.tiering.drop(bench.now_ms)


def by_topic(bench: TieredBench) -> None:
    bench.store.delete_topic("t", bench.now_ms)


WAYS = [by_trim, by_retention, by_compaction, by_packing, by_tiering, by_topic]


@pytest.mark.allow_log("fell behind retention")
@pytest.mark.parametrize("name", ["0", "0@-1d..now", "0@earliest..latest.jsonl"])
@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("delete", WAYS)
def test_no_removed_file_is_open_after_its_last_reader(
    delete: Callable[[TieredBench], None], is_flushed: bool, name: str
) -> None:
    bench = TieredBench(PAGED if delete is not by_tiering else {**TIERED, **PAGED})
    for n in range(1800):
        bench.append([Record(0, bench.now_ms, b"key %d" % (n % 7), b"a line of text", ())])
    if is_flushed:
        bench.log.flush()
        bench.log.maintain()
    log, disk = bench.log, bench.disk
    resolved = resolve(log, parse_partition_name(name, UTC), bench.now_ms + 1)
    file = GrowingFile(log, resolved.view, 0) if resolved.grows else FixedFile(resolved)
    log.pin(resolved.segments)
    out = memoryview(bytearray(1000))
    done = file.read_into(out, 0)
    delete(bench)
    bench.now_ms += DELAY_MS
    bench.store.remove_due_files(bench.now_ms)
    with contextlib.suppress(FileNotFoundError):  # a growing name, and its topic is gone
        while got := file.read_into(out, done):
            done += got
    file.close()
    log.unpin(resolved.segments)
    del file, resolved
    bench.now_ms += DELAY_MS
    bench.store.remove_due_files(bench.now_ms)
    assert disk.removed_but_open() == 0
