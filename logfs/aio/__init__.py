"""Partitions and consumers for trio and asyncio: nothing blocks the event loop.

    async with logfs.aio.open("/var/lib/logfs/orders/0") as orders:
        await orders.append(b"first order", key=b"4711")
        async for record in orders.follow("latest"):
            ...

    async with logfs.aio.consumer("/var/lib/logfs", "billing", "orders") as consumer:
        async for record in consumer.follow():
            ...
            await consumer.commit()

The arguments, results and errors are those of ``logfs.open``, ``Partition`` and ``Consumer``. Calls
run in threads of the event loop's library. A call that changes something is completed even if its
task is cancelled; an iterator that waits ends its thread within a second.

    threads     runs calls in threads of trio or asyncio
    partition   a partition
    consumer    a consumer
"""

from logfs.aio.consumer import AsyncConsumer, consumer
from logfs.aio.partition import AsyncPartition, open  # noqa: A004 - as logfs.open is called

__all__ = ["AsyncConsumer", "AsyncPartition", "consumer", "open"]
