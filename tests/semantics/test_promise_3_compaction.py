"""Promise 3 of SEMANTICS.md while compaction works; each docstring is the sentence that is run."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import Mount, environment, output, wait_until
from tests.semantics.programs import append_all, configure, meta

pytestmark = pytest.mark.fuse

KEYS = 50


@pytest.fixture
def compacted(tmp_path: Path) -> Iterator[Mount]:
    """A mount that looks for what is to be compacted all the time."""
    with Mount(tmp_path / "data", tmp_path / "mnt", "log.cleaner.backoff.ms=20") as mount:
        (mount.point / "prices").mkdir()
        configure(
            mount.point / "prices",
            cleanup_policy="compact",
            internal_segment_bytes=4_000,
            min_cleanable_dirty_ratio=0,
            file_delete_delay_ms=0,
        )
        yield mount


def rows(first: int, last: int) -> list[bytes]:
    return [b"key %d\tvalue %d\n" % (n * 7 % KEYS, n) for n in range(first, last)]


def values(found: list[bytes]) -> list[bytes]:
    return [row.split(b"\t")[1] for row in found]


def wait_for_compaction(path: Path, offset: int) -> None:
    """Wait until everything below an offset that is not in the active segment is clean."""

    def is_done() -> bool:
        facts = meta(path)["cleaner"]
        return bool((facts["first_dirty_offset"] or 0) > offset and facts["dirty_ratio"] == 0)

    wait_until(is_done, f"what is below offset {offset} is compacted")


def test_only_the_last_of_each_key_stays(compacted: Mount) -> None:
    """With `cleanup.policy=compact` the last record of each key stays where it was, and earlier
    records with the same key become holes."""
    path = compacted.point / "prices" / "0"
    written = rows(0, 2_000)
    append_all(path.with_name("0.tsv"), b"".join(written))
    wait_for_compaction(path, 1_800)
    status = os.stat(path)
    text = b"".join(values(written))
    assert status.st_size == len(text)
    for number, start_again in enumerate((compacted.restart, compacted.restart, compacted.crash)):
        if number:
            start_again()
        left = output("cat", path.with_name("0.tsv")).splitlines(keepends=True)
        assert len(left) < 1_000
        assert left[-KEYS:] == written[-KEYS:]
        assert [row for row in written if row in set(left)] == left
        assert output("cat", path) == b"".join(values(left))
        for value in values(left)[:: len(left) // 20]:
            position = text.index(b"\n" + value) + 1 if text.index(value) else 0
            at = output("head", "-n", "1", path.with_name(f"0@byte={position}"))
            assert at == value
        assert (os.stat(path).st_ino, os.stat(path).st_size) == (status.st_ino, status.st_size)
        assert not meta(path)["losses"]


def test_readers_live_through_compaction(compacted: Mount) -> None:
    """Compaction works while programs read and append. None of them meets an error, waits, or gets
    a record twice. A fixed name that is open keeps what it had.
    """
    path = compacted.point / "prices" / "0"
    written = rows(0, 300)
    append_all(path.with_name("0.tsv"), b"".join(written))
    follow = subprocess.Popen(
        ["tail", "-s", "0.02", "-f", "-n", "1", str(path)],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert follow.stdout is not None
    try:
        assert follow.stdout.readline() == values(written)[-1]
        with path.open("rb", buffering=0) as middle:
            read = [middle.read(len(values(written)[0]))]
            for n in range(300, 3_000, 300):
                more = rows(n, n + 300)
                fixed = path.with_name("0@earliest..latest").open("rb")
                before = fixed.read()
                fixed.seek(0)
                append_all(path.with_name("0.tsv"), b"".join(more))
                for value in values(more):
                    assert follow.stdout.readline() == value
                wait_for_compaction(path, n - 100)
                assert fixed.read() == before
                fixed.close()
                written += more
            read += middle.readall().splitlines(keepends=True)
    finally:
        follow.kill()
        follow.wait()
        follow.stdout.close()
    known = {value: number for number, value in enumerate(values(written))}
    numbers = [known[value] for value in read]
    assert numbers == sorted(set(numbers))
    assert set(values(written)[-KEYS:]) <= set(read)
    assert "compacted up to offset" in compacted.log
