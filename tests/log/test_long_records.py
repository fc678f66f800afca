"""Records that are longer than what a native reader takes at once."""

from importlib.resources import files
from itertools import accumulate, pairwise

import pytest

from logfs.log.reading.places import LARGEST_PLAIN_BYTES
from logfs.records.record import Record
from logfs.services.views.files import GrowingFile
from logfs.types import View
from tests.fakes import START_MS
from tests.log.gaps import HoledLog

PIECE = 200_000


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
@pytest.mark.parametrize("view", View)
def test_a_long_record_is_rendered_once_by_the_reader_that_began_it(view: View, codec: str) -> None:
    log = HoledLog({"compression.type": codec, "max.message.bytes": str(32 << 20)})
    for number, length in enumerate((10, 300_000, 3 << 20, 20, 3 << 20)):
        log.append([Record(number, START_MS, None, b'"\t' * (length // 2), ())])
    file, other = (GrowingFile(log.log, view, 0) for _ in range(2))
    out, expected = memoryview(bytearray(PIECE)), memoryview(bytearray(file.size()))
    assert other.read_into(expected, 0) == len(expected)
    offset, left_at = 0, []
    while got := file.read_into(out, offset):
        assert out[:got] == expected[offset : offset + got]
        offset += got
        place = file.plain_place()
        if place is not None:  # the other reader takes it, and gives it back as it is
            left_at.append(offset)
            file.leave_place(place)
            file.go_on(0, place.numbers)
    assert offset == len(expected)
    ends = [0, *accumulate(map(len, bytes(expected).splitlines(keepends=True)))]
    long = [(begin, end) for begin, end in pairwise(ends) if end - begin > LARGEST_PLAIN_BYTES]
    assert len(long) == 2
    assert not [at for at in left_at if any(begin < at < end for begin, end in long)]
    assert left_at


def test_the_native_reader_takes_batches_of_the_same_length() -> None:
    text = files("logfs.log.reading").joinpath("_cursor.h").read_text()
    assert f"#define CURSOR_LARGEST ({LARGEST_PLAIN_BYTES >> 20} << 20)" in text
