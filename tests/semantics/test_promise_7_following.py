"""Promise 7, beside another process that writes the directory."""

from pathlib import Path

import pytest

from tests.log.foreign import broker_in
from tests.mounting import Mount, wait_until


@pytest.mark.fuse
def test_a_tail_that_another_process_truncates(tmp_path: Path) -> None:
    """If another process truncates a log and writes its end again, that is a loss. Positions from
    there on begin after every position that was ever shown."""
    (tmp_path / "data").mkdir()
    broker = broker_in(tmp_path / "data")
    for number in range(10):
        broker.append(b"record %d" % number)
    with Mount(tmp_path / "data", tmp_path / "mnt", "ro") as mount:
        path = mount.point / "t" / "0"
        before = path.read_bytes()
        broker.truncate(7)
        broker.append(b"new")
        expected = before[: before.index(b"record 7")] + b"new\n"
        wait_until(lambda: path.read_bytes() == expected, "the new record was seen")
        assert path.stat().st_size == len(before) + len(b"new\n")
        with path.open("rb") as file:
            file.seek(len(before))
            assert file.read() == b"new\n"
        assert "the log was cut at offset 7" in mount.log
        assert "the log was cut at offset 7" in path.with_name("0.meta").read_text()
