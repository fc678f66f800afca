"""Compaction in the daemon: beside the appends, told to stop, and by hand through the socket."""

import trio

from logfs.fs.upkeep.compaction import Compaction
from logfs.log.names import CLEANER_OFFSET_CHECKPOINT
from logfs.machine.host import Clock
from logfs.types import View
from tests.log.compaction import CompactedLog, filled, records
from tests.log.support import kept_runs_of


def compaction_of(log: CompactedLog) -> Compaction:
    return Compaction(log.bench.store, Clock(lambda: log.bench.now_ms, lambda: 0.0, lambda: 0.0))


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
        log.append(records(60, 1))  # appends go on
        nursery.cancel_scope.cancel()
    left = b"".join(data for _, data in kept_runs_of(log.log, View.JSONL)).splitlines()
    assert len(left) == 6 < lines


async def test_a_stop_aborts_a_running_compaction() -> None:
    log = filled()
    work = compaction_of(log)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work.run)
        nursery.cancel_scope.cancel()
    assert not work.cleaner.clean_dirtiest(log.bench.now_ms, work.tools)
    assert not log.bench.disk.exists(CLEANER_OFFSET_CHECKPOINT)
    assert log.log.cleaning.uncleanable is None
