"""Where a table or stream is written: the options of a sink and the columns of its rows.

Names are those of Spark's Kafka sink, in any case. As for sources, options that only a network
needs are accepted and ignored, and an unknown option is refused.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import tzinfo
from typing import NamedTuple

from logfs.arrow.columns import HEADERS
from logfs.disk.posix import PosixDisk
from logfs.errors import InvalidConfigError, NoSuchTopicError, TopicExistsError
from logfs.library.table_path import parse_path
from logfs.log.listing import list_partitions
from logfs.log.manifest import check_may_write
from logfs.machine.disks import is_url
from logfs.spark.options import named
from logfs.spark.schema import check_written
from logfs.spark.values import flag

SINK_OPTIONS: tuple[tuple[str, str, str], ...] = (
    ("path", "(required)", "one data directory or mount point, or a topic in it"),
    ("topic", "", "where all rows go; without it, and without a topic in the path, each says it"),
    ("createTopic", "false", "create the topic if it does not exist"),
    ("txnAppId", "", "with txnVersion: a table is appended once for an application and a version"),
    ("txnVersion", "", "a number that only grows for its txnAppId: that of the batch, for example"),
    (
        "failOnDataLoss",
        "true",
        "stop when a batch comes again with more rows: its checkpoint has lost batches",
    ),
)
"""Rows (name, default, meaning)."""

_WITHOUT_MEANING = ("includeHeaders", "checkpointLocation", "queryName")
"""Options that Spark itself gives a sink, or that only a source needs."""
_REFUSED = {
    "kafka.key.serializer": "keys are written as bytes: cast them",
    "kafka.value.serializer": "values are written as bytes: cast them",
}
_APPLICATION, _NUMBER = "txnAppId", "txnVersion"
_KNOWN = [name for name, _, _ in SINK_OPTIONS] + list(_WITHOUT_MEANING)

TRANSACTION = "txn "
"""The name of a query that is an application begins so; that of a stream is a UUID."""
BYTES_OF_A_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT = str(2**31 - 1)


class Transaction(NamedTuple):
    """What a table is appended as: once for an application and a number.

    Attributes:
        application: A name that the user chose.
        number: A number that only grows. A lower or the same number was appended before.
    """

    application: str
    number: int


class SinkTarget(NamedTuple):
    """The topic of the rows; None: each row names one."""

    root: str
    topic: str | None
    has_headers: bool
    transaction: Transaction | None = None
    fails_on_loss: bool = True


def parse_target(
    options: Mapping[str, str],
    fields: Sequence[tuple[str, str]],
    zone: tzinfo,
    *,
    is_overwritten: bool,
) -> SinkTarget:
    """Find out where rows are to be written, and whether they can be.

    Raises:
        InvalidConfigError: They cannot.
        BackupError: It is a backup, and read-only.
        NoSuchTopicError: There is no such topic.
        LogfsError, OSError: See ``parse_path``.
    """
    if is_overwritten:
        raise InvalidConfigError('a log is only appended to: use .mode("append")')
    given = named(options, _KNOWN, _REFUSED)
    check_written(fields)
    example = '.save("/var/lib/logfs")'
    source = parse_path(given.get("path"), zone, example, is_written=True)
    if len(source.roots) != 1 or source.address is not None:
        raise InvalidConfigError("a sink has one path: a data directory, or a topic in it")
    (root,) = source.roots
    columns, topic = {name.lower() for name, _ in fields}, given.get("topic", source.topic)
    if source.topic is not None and topic != source.topic:
        raise InvalidConfigError(
            f"the path says topic {source.topic}, the option {topic}: give one of them"
        )
    if topic is None and "topic" not in columns:
        raise InvalidConfigError(
            "nothing says the topic: expected the option topic, one in the path, or a column topic"
        )
    if is_url(root):
        raise InvalidConfigError(
            f"{root}: logs in an object store are read-only: write to the data directory that they "
            "are copied from"
        )
    disk = PosixDisk(root)
    check_may_write(disk)
    present = {one.topic for one in list_partitions(disk)}
    if topic is not None and topic not in present:
        if not flag(given, "createTopic", default=False):
            raise NoSuchTopicError(
                f"there is no topic {topic}: create it with logfs topic create, or with the option "
                "createTopic=true"
            )
        _create(root, topic)
    fails_on_loss = flag(given, "failOnDataLoss", default=True)
    return SinkTarget(root, topic, HEADERS.name in columns, _transaction(given), fails_on_loss)


def _create(root: str, topic: str) -> None:
    """Create a topic with the defaults of the data directory."""
    from logfs.library.places import locate
    from logfs.library.writer import Writer

    with Writer(locate(root), is_durable=True) as writer, suppress(TopicExistsError):
        writer.change_topics(lambda topics: topics.create_topic(topic, None, {}))


def _transaction(given: Mapping[str, str]) -> Transaction | None:
    found = given.get(_APPLICATION), given.get(_NUMBER)
    application, number = found
    if found == (None, None):
        return None
    if not application or number is None:
        raise InvalidConfigError(f"{_APPLICATION} and {_NUMBER} go together: give both")
    if not re.fullmatch(r"[0-9]{1,18}", number):
        raise InvalidConfigError(f"{_NUMBER} {number!r}: expected a number from 0 on")
    return Transaction(application, int(number))


def advice_on(target: SinkTarget, batch_bytes: str | None) -> str | None:
    """Say which setting of Spark makes it slow to write somewhere; None: nothing does.

    Args:
        batch_bytes: The value to which ``BYTES_OF_A_BATCH`` was set; None: it was not set.
    """
    # With any limit Spark measures a column of lists again for every row of a batch.
    if not target.has_headers or batch_bytes == _NO_LIMIT:
        return None
    return (
        "Spark hands rows with headers over slowly: "
        f'spark.conf.set("{BYTES_OF_A_BATCH}", {_NO_LIMIT}) before writing makes it several times '
        "as fast"
    )
