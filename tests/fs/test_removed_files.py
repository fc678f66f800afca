"""What is removed through a mount frees its space: the daemon keeps no removed file open."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import Mount, logfs, wait_until
from tests.semantics.programs import configure

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

SETTINGS = {"internal_segment_bytes": 300_000, "file_delete_delay_ms": 100, "retention_ms": -1}
LINES = b"".join(b"key %d\tline %d of the log, of some length\n" % (n % 50, n) for n in range(9000))
WAYS = ("trim", "trim --now", "retention", "compaction", "packing", "topic")
UNREAD = ("trim --now", "retention")


def removed_files(mount: Mount) -> list[str]:
    """Return the files of the data directory that the daemon has open and that have no name."""
    found = []
    for descriptor in Path(f"/proc/{mount.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = os.readlink(descriptor)
            if target.endswith(" (deleted)") and target.startswith(str(mount.data)):
                found.append(target)
    return sorted(found)


def fill(topic: Path) -> None:
    topic.mkdir()
    configure(topic, **SETTINGS)
    with Path(f"{topic}/0.tsv").open("ab", buffering=0) as file:
        for start in range(0, len(LINES), 40_000):
            end = LINES.rfind(b"\n", 0, start + 40_000) + 1
            begin = LINES.rfind(b"\n", 0, start) + 1
            file.write(LINES[begin:end])


def remove(topic: Path, way: str) -> None:
    match way:
        case "trim" | "trim --now":
            logfs(*way.split(), f"{topic}/0@latest")
        case "retention":
            configure(topic, retention_bytes=0)
        case "compaction":
            configure(topic, cleanup_policy="compact")
            logfs("compact", str(topic), "--roll")
        case "packing":
            configure(topic, logfs_sealed_compression_type="zstd")
            logfs("pack", str(topic), "--roll")
        case "topic":
            logfs("topic", "delete", str(topic))


@contextlib.contextmanager
def readers(topic: Path) -> Iterator[None]:
    """Have files of several kinds open, which read on before they are closed."""
    with contextlib.ExitStack() as files:
        names = ("0", "0@earliest..latest", "0@offset=10..latest.jsonl", "0@-1h")
        paths = [topic / name for name in names] + [topic.with_name(f"{topic.name}@earliest")]
        opened = [files.enter_context(path.open("rb", buffering=0)) for path in paths]
        for file in opened:
            file.read(100_000)
        yield
        for file in opened:
            with contextlib.suppress(OSError):  # a growing name of a topic that was deleted
                file.read(500_000)


@pytest.mark.parametrize("options", [(), ("no_native", "no_passthrough")], ids=["native", "plain"])
def test_no_removed_file_stays_open_without_a_reader(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    settings = ("log.retention.check.interval.ms=200", "log.initial.task.delay.ms=0")
    mount = Mount(
        tmp_path / "data", tmp_path / "mnt", *settings, "log.segment.delete.delay.ms=100", *options
    )
    with mount, contextlib.ExitStack() as opened:
        for number, way in enumerate((*WAYS, *UNREAD)):
            topic = mount.point / f"topic{number}"
            fill(topic)
            if number < len(WAYS):
                opened.enter_context(readers(topic))
            remove(topic, way)
        assert removed_files(mount) or any(mount.data.glob("*/*.deleted"))
        opened.close()
        wait_until(
            lambda: not removed_files(mount) and not any(mount.data.glob("*/*.deleted")),
            "every removed file was closed",
        )
