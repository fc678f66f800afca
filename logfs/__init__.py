r"""logfs: Kafka's log storage engine with a file system for an API.

A directory of Kafka-format logs is mounted, and every partition of every topic is one file: append
with ``>>``, read with ``cat``, follow with ``tail -f``, jump to a moment with ``@`` in the path.

For programs::

    import logfs

    with logfs.open("/var/lib/logfs/orders/0") as orders:     # or below a mount point
        orders.append(b"first order", key=b"4711")            # returns its offset
        orders.append_many([b"second order", b"third order"])
        orders.flush()                                        # on the disk from here on
        for record in orders.read("-15m"):                    # the points of an address
            print(record.offset, record.timestamp, record.key, record.value)
        for record in orders.follow("latest", timeout=10):    # waits for records to come
            ...

``open_store`` opens all of a data directory, ``scan`` reads many partitions as an Arrow table.
``logfs/guides/programmers.md`` has more.

The layers; imports go down only, and ``tests/test_layering.py`` says so::

                cli             the command line: click, exit codes, logging
            /    |    \  \
           fs    |  spark  kafka   pyfuse3 and trio; Spark's data source; Kafka clusters
            \    |    /  /
             \ library  /        partitions for programs; aio: for trio and asyncio
                 |              fsspec: by URL, for pandas and others
     machine, client, arrow      clocks, mounts; a connection to the daemon; record batches
                 |
              control           the requests to the daemon, as bytes
                 |
              services          views, retention, compaction, tiering, backup: done with logs
                 |
                log             one partition, and the store of all; no async, no clock
               /   \
        records     disk        bytes <-> records, pure; the only code that touches data files
               \   /
        errors types config     the vocabulary

Everything below ``fs`` and ``spark`` imports without pyfuse3, trio and pyspark.
"""

TYPE_CHECKING = False
"""As in ``typing``, which takes longer to import than everything else here."""

if TYPE_CHECKING:
    from logfs.errors import LogfsError
    from logfs.library.consumer import Consumer, ConsumerRecord
    from logfs.library.partition import Partition
    from logfs.library.producer import Producer
    from logfs.library.records import NewRecord
    from logfs.library.scan import Scan, scan
    from logfs.library.store import Store, open_store
    from logfs.library.store import open_partition as open  # noqa: A004 - as gzip.open is called
    from logfs.library.topic import Topic
    from logfs.records.record import Record
    from logfs.types import IsolationLevel

__version__ = "0.3.0"

_WHERE = {
    "open": ("logfs.library.store", "open_partition"),
    "open_store": ("logfs.library.store", "open_store"),
    "Partition": ("logfs.library.partition", "Partition"),
    "Consumer": ("logfs.library.consumer", "Consumer"),
    "ConsumerRecord": ("logfs.library.consumer", "ConsumerRecord"),
    "Topic": ("logfs.library.topic", "Topic"),
    "scan": ("logfs.library.scan", "scan"),
    "Scan": ("logfs.library.scan", "Scan"),
    "Store": ("logfs.library.store", "Store"),
    "Producer": ("logfs.library.producer", "Producer"),
    "Record": ("logfs.records.record", "Record"),
    "NewRecord": ("logfs.library.records", "NewRecord"),
    "IsolationLevel": ("logfs.types", "IsolationLevel"),
    "LogfsError": ("logfs.errors", "LogfsError"),
}
"""The names for programs, and where they are: each is imported when it is used."""

__all__ = [
    "Consumer",
    "ConsumerRecord",
    "IsolationLevel",
    "LogfsError",
    "NewRecord",
    "Partition",
    "Producer",
    "Record",
    "Scan",
    "Store",
    "Topic",
    "open",
    "open_store",
    "scan",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _WHERE[name]
    found = globals()[name] = getattr(import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
