"""Compaction in the daemon: beside the appends, told to stop, and by hand through the socket."""

from dataclasses import replace

import pytest
import trio
import trio.testing

from logfs.errors import CleaningAbortedError
from logfs.fs.upkeep.rewriting import Rewriting
from logfs.log.names import CLEANER_OFFSET_CHECKPOINT
from logfs.machine.host import Clock
from logfs.types import View
from tests.log.compaction import CompactedLog, filled, records, rewrite_next
from tests.log.support import kept_runs_of


def compaction_of(log: CompactedLog) -> Rewriting:
    return Rewriting(log.bench.store, Clock(lambda: log.bench.now_ms, lambda: 0.0, lambda: 0.0))


async def wait_until_cleaned(log: CompactedLog) -> None:
    with trio.fail_after(10):
        while not log.bench.disk.exists(CLEANER_OFFSET_CHECKPOINT):  # noqa: ASYNC110 - of a thread
            await trio.sleep(0.01)


async def test_a_dirty_log_is_compacted_in_the_background() -> None:
    log = filled()
    lines = len(log.model.records)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(compaction_of(log).run)
        await wait_until_cleaned(log)
        log.append(records(60, 1))  # appends continue
        nursery.cancel_scope.cancel()
    left = b"".join(data for _, data in kept_runs_of(log.log, View.JSONL)).splitlines()
    assert len(left) == 6 < lines


async def test_a_stop_aborts_a_running_packing_also_if_compaction_is_switched_off() -> None:
    log = filled()
    log.bench.store.config = replace(log.bench.store.config, log_cleaner_enable=False)
    work = compaction_of(log)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    with pytest.raises(CleaningAbortedError):
        work.tools.spend(1)


async def test_a_stop_aborts_a_running_compaction() -> None:
    log = filled()
    work = compaction_of(log)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work.run)
        nursery.cancel_scope.cancel()
    assert not rewrite_next(work.cleaner, log.bench.now_ms, work.tools)
    assert not log.bench.disk.exists(CLEANER_OFFSET_CHECKPOINT)
    assert log.log.cleaning.uncleanable is None
