"""What a job has staged, published through the control socket of the daemon."""

import errno
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from logfs.errors import ControlError, DataLossError, NoSuchTopicError, ReadOnlyError
from logfs.log.publishing.ledger import read_ledger
from logfs.log.publishing.leftovers import LOOK_INTERVAL_MS
from logfs.log.publishing.staging import PublishOptions, StagedFile, StagingWriter, encode_staged
from logfs.records._encoding import encode_records
from logfs.records.encoded import EncodeOptions
from logfs.records.record import Record
from logfs.types import TopicPartition
from tests.fs.served import Served
from tests.fs.world import START_MS, World

run = trio.to_thread.run_sync
ORDERS = TopicPartition("orders", 0)
QUERY = "8a2f"
_ids = iter(range(1, 1 << 30))


@pytest.fixture
async def served(orders: World, tmp_path: Path, nursery: trio.Nursery) -> Served:
    return Served(orders, tmp_path, nursery)


def stage(served: Served, values: Sequence[bytes], batch: int = 0) -> StagedFile:
    unique_id = next(_ids).to_bytes(16, "big")
    writer = StagingWriter(served.world.disk, ORDERS, QUERY, batch, unique_id)
    records = [Record(0, START_MS, None, value) for value in values]
    writer.write(encode_records(records, 0, START_MS, EncodeOptions(1 << 20)).batches)
    return writer.finish()


async def publish(served: Served, batch: int, staged: Sequence[StagedFile]) -> bool:
    def ask() -> bool:
        with served.daemon() as daemon:
            return daemon.publish(QUERY, batch, staged)

    return await run(ask)


async def test_published_records_are_seen_at_once_and_durable(served: Served) -> None:
    await served.world.append("orders/0", b"before\n")
    assert await publish(served, 0, [stage(served, [b"one", b"two"])])
    assert await served.world.cat("orders/0") == b"before\none\ntwo\n"
    assert served.world.store.partition("orders", 0).recovery_point == 3
    assert not await publish(served, 0, [stage(served, [b"again"])])
    assert await publish(served, 1, [])
    assert await served.world.cat("orders/0") == b"before\none\ntwo\n"


async def test_writers_of_the_mount_continue_meanwhile(served: Served) -> None:
    async with trio.open_nursery() as nursery:
        staged = [stage(served, [b"job %d" % n] * 500) for n in range(3)]
        nursery.start_soon(publish, served, 0, staged)
        for n in range(20):
            await served.world.append("orders/0", b"write %d\n" % n)
    lines = (await served.world.cat("orders/0")).splitlines()
    assert len(lines) == 1520
    assert [line for line in lines if line.startswith(b"job")] == [
        b"job %d" % n for n in range(3) for _ in range(500)
    ]


@pytest.mark.allow_log("orders/0 is offline")
async def test_a_log_that_went_offline_is_reloaded_and_the_batch_completed(
    served: Served,
) -> None:
    staged = [stage(served, [b"one"]), stage(served, [b"two"])]
    served.world.disk.fail_next_write("*.log")
    with pytest.raises(OSError, match="Input/output") as raised:
        await publish(served, 0, staged)
    assert raised.value.errno == errno.EIO
    assert await publish(served, 0, [])
    assert await served.world.cat("orders/0") == b"one\ntwo\n"


async def test_a_query_of_one_batch_leaves_nothing(served: Served) -> None:
    def ask() -> None:
        with served.daemon() as daemon:
            assert daemon.publish(
                QUERY, 0, [stage(served, [b"one"])], PublishOptions(is_single=True)
            )
            assert read_ledger(served.world.disk, QUERY).is_single
            daemon.forget(QUERY)

    await run(ask)
    assert await served.world.cat("orders/0") == b"one\n"
    names = [name for name, _ in served.world.disk.list("")]
    assert not [name for name in names if name.endswith(".ledger")]


@pytest.mark.expect_log("1 records are left out")
async def test_a_batch_that_comes_again_with_more_records_is_a_loss(served: Served) -> None:
    assert await publish(served, 0, [stage(served, [b"one"])])
    more = [stage(served, [b"one", b"two"])]
    with pytest.raises(DataLossError, match="2 records, but was published with 1"):
        await publish(served, 0, more)

    def leave_out() -> None:
        with served.daemon() as daemon:
            assert not daemon.publish(QUERY, 0, more, PublishOptions(fails_on_loss=False))

    await run(leave_out)
    assert await served.world.cat("orders/0") == b"one\n"


async def test_a_running_daemon_removes_the_leftovers_of_jobs(served: Served) -> None:
    slow = stage(served, [b"slow"])
    assert await publish(served, 0, [])
    await run(served.world.store.tidy, START_MS)
    assert served.world.disk.exists(slow.path), "it looked when it started"
    await run(served.world.store.tidy, START_MS + LOOK_INTERVAL_MS)
    assert not served.world.disk.exists(slow.path)


async def test_refusals(served: Served) -> None:
    staged = stage(served, [b"v"])
    with pytest.raises(NoSuchTopicError):
        await publish(served, 0, [staged._replace(topic="other")])
    for payload in (b"", b"{}x", b"[[1]]", encode_staged([staged._replace(name="../x")])):
        with pytest.raises(ControlError, match="staged file"):
            await served.ask("publish", payload, query=QUERY, batch=0, is_single=False)
    with pytest.raises(ControlError, match="staged file"):
        await served.ask("publish", json.dumps([[*staged[:4], "5"]]).encode(), query=QUERY, batch=0,
                               is_single=False)  # fmt: skip
    with pytest.raises(ControlError, match="batch="):
        await served.ask("publish", b"[]", query=QUERY, batch="0")
    served.world.store.read_only = True
    with pytest.raises(ReadOnlyError):
        await publish(served, 0, [staged])
    assert await served.world.cat("orders/0") == b""
