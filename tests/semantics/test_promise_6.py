"""Promise 6 of SEMANTICS.md, through a mount; each docstring is the sentence that is run."""

import errno
import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounting import Mount, logfs
from tests.semantics.kafka_files import (
    CODECS,
    KAFKA_PYTHON_READS,
    Found,
    make_log,
    make_old_log,
    read_log,
)
from tests.semantics.programs import (
    APPEND,
    append,
    append_all,
    configure,
    errno_of,
    numbered,
    records,
)

pytestmark = pytest.mark.fuse

KAFKAS_SUFFIXES = {
    *(".log", ".index", ".timeindex", ".txnindex", ".snapshot"),
    *(".deleted", ".cleaned", ".swap"),
}
"""What Kafka's loader looks at in a partition directory."""
KAFKAS_FILES = {"leader-epoch-checkpoint", "partition.metadata"}
KAFKAS_ROOT_FILES = {
    ".lock",
    ".kafka_cleanshutdown",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
}
PARTITION_DIRECTORY = re.compile(r"[a-zA-Z0-9._-]+-[0-9]+|[a-zA-Z0-9._-]+\.[0-9a-f]{32}-delete")
OWN_NAME = re.compile(r"logfs\.[a-zA-Z0-9.-]+|[0-9]{20}\.textindex")


def as_found(partition: Path) -> list[Found]:
    """Read a partition through ``.jsonl``."""
    return [
        Found(
            record["offset"],
            record["timestamp"],
            _encoded(record["key"]),
            _encoded(record["value"]),
            tuple((key, _encoded(value)) for key, value in record["headers"]),
        )
        for record in records(partition)
    ]


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def raw_logs(topic: Path) -> bytes:
    """Return the ``.log`` files of partition 0, one after the other."""
    raw = topic.parent / ".segments" / f"{topic.name}-0"
    return b"".join(path.read_bytes() for path in sorted(raw.glob("*.log")))


@pytest.mark.parametrize(
    ("library", "codec"),
    [*(("aiokafka", x) for x in CODECS), *(("kafka-python", x) for x in KAFKA_PYTHON_READS)],
)
def test_other_readers_find_the_same_records(topic: Path, library: str, codec: str) -> None:
    """What logfs writes is Kafka's format, in all four codecs: any other reader finds exactly the
    records that were written.
    """
    configure(topic, compression_type=codec, internal_segment_bytes=10_000)
    lines = [b"", "größe ☃".encode(), *(line[:-1] for line in numbered(0, 3_000))]
    append_all(topic / "0", b"".join(line + b"\n" for line in lines))
    append(topic / "0.tsv", b"key\ttab \\t and newline \\n\ntombstone\t\\N\n")
    full = {"timestamp": 1_600_000_000_000, "key": "k", "value": "v", "headers": [["h", "x"]]}
    append(topic / "0.jsonl", json.dumps(full).encode() + b"\n")
    found = read_log(library, raw_logs(topic))
    assert [record.offset for record in found] == list(range(len(lines) + 3))
    assert [record.value for record in found[: len(lines)]] == lines
    assert [(record.key, record.value) for record in found[len(lines) : -1]] == [
        (b"key", b"tab \t and newline \n"),
        (b"tombstone", None),
    ]
    assert found[-1][1:] == (1_600_000_000_000, b"k", b"v", (("h", b"x"),))
    assert found == as_found(topic / "0")


def _exercise(mount: Mount) -> None:
    """Do everything that creates files."""
    orders = mount.point / "orders"
    configure(orders, internal_segment_bytes=5_000, retention_ms=1000)
    append_all(orders / "0", b"".join(numbered(0, 1_000)))
    append(orders / "0.jsonl", b'{"value":')
    (orders / "3").touch()
    (mount.point / "deleted").mkdir()
    append(mount.point / "deleted" / "0", b"x\n")
    os.chmod(orders / "0", 0o600)
    mount.restart()
    descriptor = os.open(orders / "2", APPEND)
    os.write(descriptor, b"whole\nunfinished")
    logfs("topic", "delete", mount.point / "deleted")
    mount.kill()
    assert errno_of(os.close, descriptor) == errno.ENOTCONN
    log = max((mount.data / "orders-0").glob("*.log"))
    os.truncate(log, os.stat(log).st_size - 1)
    mount.start()
    descriptor = os.open(orders / "1", APPEND)
    os.write(descriptor, b"still unfinished")
    os.close(descriptor)


def test_files_have_kafkas_names_or_pass_unseen(mount: Mount) -> None:
    """Kafka's files have Kafka's names; logfs adds only plain files that a broker ignores, and no
    directories."""
    _exercise(mount)
    mount.stop()  # files of unfinished lines come and go while it runs
    own = set()
    for entry in mount.data.iterdir():
        if entry.is_dir():
            assert PARTITION_DIRECTORY.fullmatch(entry.name), entry
            continue
        assert stat.S_ISREG(entry.lstat().st_mode), entry
        assert entry.name in KAFKAS_ROOT_FILES or OWN_NAME.fullmatch(entry.name), entry
    for path in mount.data.glob("*/*"):
        assert stat.S_ISREG(path.lstat().st_mode), path
        if path.name not in KAFKAS_FILES and path.suffix not in KAFKAS_SUFFIXES:
            assert OWN_NAME.fullmatch(path.name), path
            own.add(path.name.split(".")[0 if "textindex" in path.name else -1])
    assert {"segments", "config", "losses", "cut"} <= own
    assert (mount.data / ".kafka_cleanshutdown").exists()
    mount.start()
    assert not (mount.data / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("codec", CODECS)
def test_what_others_wrote_can_be_mounted(mount: Mount, codec: str) -> None:
    """Logs that other programs wrote in Kafka's format can be mounted, read and appended to."""
    mount.stop()
    written = [
        Found(n, 1_600_000_000_000 + n * 1000, b"k%d" % n if n % 3 else None,
              None if n % 7 == 1 else b"value %d" % n, (("h", b"%d" % n),) if n % 5 == 0 else ())
        for n in range(1000)
    ]  # fmt: skip
    directory = mount.data / "foreign-0"
    directory.mkdir()
    for base in (0, 400):
        part = written[base : 400 if base == 0 else None]
        (directory / f"{base:020}.log").write_bytes(make_log(codec, part, 23))
    mount.start()
    path = mount.point / "foreign" / "0"
    assert as_found(path) == written
    assert path.read_bytes() == b"".join((r.value or b"") + b"\n" for r in written)
    later = path.with_name("0@2020-09-13T12:30:00Z.jsonl").read_bytes()
    assert json.loads(later.split(b"\n")[0])["timestamp"] == 1_600_000_200_000
    append(path, b"appended\n")
    mount.restart()
    log = b"".join(x.read_bytes() for x in sorted(directory.glob("*.log")))
    found = read_log("aiokafka", log)
    assert found[:-1] == written
    assert (found[-1].offset, found[-1].value) == (1000, b"appended")


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4"])
def test_old_formats_are_read_and_not_written(mount: Mount, codec: str) -> None:
    """Formats v0 and v1, which Kafka wrote before 0.11, are read like any other and never written:
    records appended after them are v2."""
    mount.stop()
    written = [
        Found(n, -1 if n < 50 else 1_500_000_000_000 + n, b"k%d" % n if n % 3 else None,
              None if n % 7 == 1 else b"value %d" % n, ())
        for n in range(100)
    ]  # fmt: skip
    directory = mount.data / "old-0"
    directory.mkdir()
    log = make_old_log(0, "gzip" if codec == "lz4" else codec, written[:50])
    log += make_old_log(1, codec, written[50:])
    (directory / f"{0:020}.log").write_bytes(log)
    mount.start()
    path = mount.point / "old" / "0"
    assert as_found(path) == written
    assert path.read_bytes() == b"".join((r.value or b"") + b"\n" for r in written)
    append(path, b"appended\n")
    mount.restart()
    assert (directory / f"{0:020}.log").read_bytes().startswith(log)
    new = b"".join(x.read_bytes() for x in sorted(directory.glob("*.log")))[len(log) :]
    assert [(r.offset, r.value) for r in read_log("aiokafka", new)] == [(100, b"appended")]
    assert [r.value for r in as_found(path)] == [*(r.value for r in written), b"appended"]


def test_segments_shows_the_raw_files(mount: Mount) -> None:
    """`.segments` shows the raw files as they are, read-only, and each `.log` also as text,
    `.txt`.
    """
    _exercise(mount)
    raw = mount.point / ".segments"
    directories = {p.name for p in mount.data.iterdir() if p.is_dir() and "-delete" not in p.name}
    assert {path.name for path in raw.iterdir()} == directories
    for path in mount.data.glob("orders-*/*"):
        shown = raw / path.parent.name / path.name
        assert shown.read_bytes() == path.read_bytes()
        assert errno_of(os.open, shown, APPEND) == errno.EPERM
    assert {p.name for p in (raw / "orders-0").iterdir()} == {
        p.name for p in (mount.data / "orders-0").iterdir()
    }
    logs = sorted((raw / "orders-0").glob("*.log"))
    texts = [log.with_suffix(".txt").read_bytes() for log in logs]
    assert b"".join(texts) == (mount.point / "orders" / "0").read_bytes()
    assert ".segments" not in os.listdir(mount.point)


@pytest.mark.parametrize("suffix", ["textindex", "index", "timeindex"])
def test_indexes_are_made_again(mount: Mount, suffix: str) -> None:
    """Indexes that are lost or damaged are rebuilt from the log."""
    orders = mount.point / "orders"
    configure(orders, internal_segment_bytes=20_000, index_interval_bytes=100)
    append_all(orders / "0.tsv", b"".join(b"k\t" + line for line in numbered(0, 3_000)))
    names = ["0", "0.tsv", "0.jsonl", "0@offset=1234", "0@byte=77777", "0@-1h.tsv"]
    before = {name: (orders / name).read_bytes() for name in names}
    inode = os.stat(orders / "0").st_ino
    damages: list[Callable[[Path], object]] = [
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\xff" * path.stat().st_size),
    ]
    for damage in damages:
        mount.stop()
        paths = sorted((mount.data / "orders-0").glob(f"*.{suffix}"))
        assert len(paths) > 10
        for path in paths:
            damage(path)
        mount.start()
        assert {name: (orders / name).read_bytes() for name in names} == before
        assert os.stat(orders / "0").st_ino == inode
        append(orders / "0", b"x\n")
        before = {name: (orders / name).read_bytes() for name in names}
