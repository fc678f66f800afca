"""JSON of another program, in every place that reads some, causes an error that names it, no more.

Each reader gets the same texts. What each of them does with its own texts is tested beside it.
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from logfs.arrow.pruning import limits_of
from logfs.control.frames import decode_header
from logfs.disk.posix import PosixDisk
from logfs.errors import LogfsError
from logfs.library.spark_checkpoint import read_checkpoint
from logfs.log import names
from logfs.log.checkpoints import read_clean_shutdown
from logfs.log.closing import last_stop
from logfs.log.forwardfile import read_notes
from logfs.log.losses import LossFile
from logfs.log.manifest import read_manifest
from logfs.log.mirrorfile import read_mirror
from logfs.log.publishing.ledger import ledger_name, read_ledger, read_ledgers
from logfs.log.publishing.staging import decode_staged
from logfs.machine.daemonnote import read_daemon_note
from logfs.records._reading import decode_batches
from logfs.records.batch import encode_batch
from logfs.records.compression import decompress
from logfs.records.jsonl import parse_line
from logfs.records.matching import FieldValue, search_for
from logfs.records.record import Record
from logfs.spark.exporting.manifest import read_manifest as read_export
from logfs.spark.exporting.targets import MANIFEST, open_target
from logfs.types import TopicPartition
from tests.cli.conftest import Call, fill

MEMBERS = (
    *("version", "entries", "partitions", "query", "done", "intent", "is_single", "boot", "mount"),
    *("logs", "pid", "mountpoint", "brokerEpoch", "kind", "position", "topic", "deleted_ms"),
)
TEXTS = {
    "nothing": b"",
    "deep": b"[" * 100_000,
    "deep object": b'{"version":' * 100_000,
    "null": b"null",
    "number": b"7",
    "text": b'"version"',
    "list": b"[[1, 2], 3]",
    "empty object": b"{}",
    "not UTF-8": b'{"version": "\xff"}',
    "UTF-16": '{"version": 1}'.encode("utf-16"),
    "surrogate": b'{"version": 1, "query": "\\ud800", "mountpoint": "\\udfff", "topic": "\\ud800"}',
    "cut": b'{"version": 1, "entr',
    "many digits": b'{"version": 1, "pid": ' + b"9" * 10_000 + b"}",
    **{
        f"{kind} members": json.dumps(dict.fromkeys(MEMBERS, value) | {"version": 1}).encode()
        for kind, value in {
            "infinite": float("inf"),
            "text": "x",
            "list": [1],
            "null": None,
            "object": {"x": {"x": 1}},
            "list of lists": [["x"]],
        }.items()
    },
}


def refuse_or_return(read: Callable[[], object]) -> None:
    """Call a reader: its errors are those that commands and mounts turn into a sentence."""
    with contextlib.suppress(LogfsError, OSError):
        read()


@pytest.fixture(params=list(TEXTS.values()), ids=list(TEXTS))
def text(request: pytest.FixtureRequest) -> bytes:
    found: bytes = request.param
    return found


@pytest.mark.allow_log("does not parse", "reads version")
def test_json_in_small_files_causes_at_most_an_error(tmp_path: Path, text: bytes) -> None:
    partition, offsets = tmp_path / "t-0", tmp_path / "checkpoint" / "offsets"
    for directory in (partition, offsets, tmp_path / "checkpoint" / "commits"):
        directory.mkdir(parents=True)
    for name in (names.BACKUP, names.CLOSED, names.DAEMON, names.CLEAN_SHUTDOWN, ledger_name("q")):
        (tmp_path / name).write_bytes(text)
    for name in (names.MIRROR, names.LOSSES, names.format_forward_file(7)):
        (partition / name).write_bytes(text)
    (tmp_path / MANIFEST).parent.mkdir()
    (tmp_path / MANIFEST).write_bytes(text)
    (offsets / "0").write_bytes(b"v1\n{}\n" + text)
    (tmp_path / "checkpoint" / "commits" / "0").touch()
    disk = PosixDisk(str(tmp_path))
    for read in (
        lambda: read_manifest(disk),
        lambda: read_mirror(disk, "t-0"),
        lambda: read_ledger(disk, "q"),
        lambda: list(read_ledgers(disk)),
        lambda: list(read_notes(disk, "t-0")),
        lambda: last_stop(disk, "boot", [TopicPartition("t", 0)]),
        lambda: read_clean_shutdown(disk),
        lambda: LossFile(disk, "t-0", read_only=True),
        lambda: read_daemon_note(str(tmp_path)),
        lambda: read_checkpoint(tmp_path / "checkpoint"),
        lambda: read_export(open_target(str(tmp_path))),
    ):
        refuse_or_return(read)


def test_json_of_a_peer_or_an_option_causes_at_most_an_error(text: bytes) -> None:
    search = search_for(fields=[FieldValue(("version",), "\ud800")])
    log = encode_batch([Record(0, 5, None, text)])
    for read in (
        lambda: decode_header(text),
        lambda: decode_staged(text),
        lambda: parse_line(text),
        lambda: limits_of(text.decode("latin-1")),
        lambda: decode_batches(log, 0, len(log), 0, 1, decompress, b"", search),
    ):
        refuse_or_return(read)


@pytest.mark.allow_log("does not parse", "is ignored")
@pytest.mark.parametrize("name", [names.BACKUP, names.ATTRIBUTES, names.CLOSED, names.DAEMON])
def test_a_damaged_small_file_is_no_bug_of_a_command(
    tmp_path: Path, logfs: Call, text: bytes, name: str
) -> None:
    data = tmp_path / "data"
    fill(data, {"orders/0": b"one\n"})
    (data / name).write_bytes(text)
    for command in ("cat {}/orders/0", "status {}", "verify {}", "topic list {}", "offsets {}"):
        outcome = logfs(*command.format(data).split())
        assert outcome.status in (0, 1, 2), (command, outcome)
        assert not any("bug in logfs" in line for line in outcome.errors), outcome
