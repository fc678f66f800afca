"""What is read while a daemon has the directory: all that was written when it was asked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import COMMAND, Mount, run
from tests.spark.reading import places, rows
from tests.spark.streams import Stream, offsets

pytestmark = [pytest.mark.spark, pytest.mark.fuse]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    mount = Mount(tmp_path / "data", tmp_path / "mnt")
    mount.start()
    yield mount
    mount.stop()


def write(mount: Mount, address: str, text: str) -> None:
    with (mount.point / address).open("a") as file:
        file.write(text)


def test_a_mount_point_and_its_data_directory_are_the_same_table(mount: Mount) -> None:
    (mount.point / "orders").mkdir()
    write(mount, "orders/0", "one\ntwo\nthree\n")
    expected = [(0, b"one"), (1, b"two"), (2, b"three")]
    for path in (mount.point, mount.data, mount.point / "orders", f"{mount.data}/orders/0"):
        assert rows(path, ("offset", "value")) == expected
    assert rows(mount.point / "orders" / "0@offset=-1", ("value",)) == [(b"three",)]


def test_a_stream_sees_every_line_that_is_written_through_the_mount(mount: Mount) -> None:
    (mount.point / "orders").mkdir()
    stream = Stream(mount.point)
    for number in range(3):
        write(mount, "orders/0", "a line\n" * 10)
        assert stream.batch() == {"orders/0": offsets(10 * number, 10 * number + 10)}
    (mount.point / "clicks").mkdir()
    write(mount, "clicks/0", "new\n")
    assert stream.batch() == {"clicks/0": [0]}


def test_what_is_trimmed_is_not_read_any_more(mount: Mount) -> None:
    (mount.point / "orders").mkdir()
    write(mount, "orders/0", "a line\n" * 10)
    trimmed = run(*COMMAND, "trim", f"{mount.data}/orders/0@offset=4")
    assert trimmed.returncode == 0, trimmed.stderr
    assert places(mount.data) == {"orders/0": offsets(4, 10)}
