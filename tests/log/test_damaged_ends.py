"""Where the next batch begins after a damaged one: readers, recovery and a check agree on it."""

from collections.abc import Callable

import pytest

from logfs.config import TopicConfig
from logfs.disk.vfs import File
from logfs.log.segments.batches import batch_after
from logfs.log.segments.scan import scan_segment
from logfs.log.segments.segment import OpenSegments, Segment
from logfs.records.batch import encode_batch
from logfs.records.checksum import crc32c
from logfs.records.layout import CODEC_AT, CRC_AT, CRC_START, LENGTH_AT
from logfs.records.record import Record
from logfs.services.verifying.walking import SegmentWalk
from logfs.types import Positions
from tests.fakes import FakeDisk

_UNKNOWN_CODEC = 6
_Change = Callable[[list[bytearray]], None]


def _damage(batch: bytearray) -> None:
    batch[-1] ^= 1


def _refuse(batch: bytearray) -> None:
    """Give a batch a codec that no version has, with the right checksum."""
    batch[CODEC_AT] = _UNKNOWN_CODEC
    batch[CRC_AT:CRC_START] = crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")


def _one(batches: list[bytearray]) -> None:
    _damage(batches[1])


def _two(batches: list[bytearray]) -> None:
    _damage(batches[1])
    _damage(batches[2])


def _before_a_refused_one(batches: list[bytearray]) -> None:
    _damage(batches[1])
    _refuse(batches[2])


def _before_an_offset_that_was_there(batches: list[bytearray]) -> None:
    _damage(batches[1])
    batches[2][:8] = bytes(8)


def _the_last(batches: list[bytearray]) -> None:
    _damage(batches[1])
    del batches[2:]


def _its_length(batches: list[bytearray]) -> None:
    batches[1][LENGTH_AT : LENGTH_AT + 4] = (70).to_bytes(4, "big")


def _a_length_up_to_the_end(batches: list[bytearray]) -> None:
    size = sum(map(len, batches[1:])) - LENGTH_AT - 4
    batches[1][LENGTH_AT : LENGTH_AT + 4] = size.to_bytes(4, "big")


def _its_length_and_more(batches: list[bytearray]) -> None:
    batches[1][LENGTH_AT : LENGTH_AT + 4] = b"\x7f\0\0\0"


def _zeros_after_it(batches: list[bytearray]) -> None:
    _damage(batches[1])
    batches[2][:] = bytes(len(batches[2]))


@pytest.mark.parametrize(
    ("change", "after"),
    [(_one, 2), (_two, 2), (_before_a_refused_one, 2), (_before_an_offset_that_was_there, 2),
     (_the_last, 2), (_a_length_up_to_the_end, 4), (_its_length, None),
     (_its_length_and_more, None), (_zeros_after_it, None)],
)  # fmt: skip
def test_readers_recovery_and_a_check_continue_at_the_same_batch(
    change: _Change, after: int | None
) -> None:
    batches = [
        bytearray(encode_batch([Record(number, 1, None, b"value" * 9)])) for number in range(4)
    ]
    change(batches)
    damaged = len(batches[0])
    expected = None if after is None else sum(map(len, batches[:after]))
    log = _log(b"".join(batches))
    assert batch_after(log, damaged, log.size()) == expected
    assert _recovered(log, damaged) == expected
    assert _checked(log, damaged) == expected


def _log(data: bytes) -> File:
    file = FakeDisk().open("00000000000000000000.log", write=True, create=True)
    file.pwrite(data, 0)
    return file


def _recovered(log: File, damaged: int) -> int | None:
    config = TopicConfig.from_properties({})
    segment = Segment(OpenSegments(FakeDisk()), "topic-0", 0, Positions())
    scan = scan_segment(log, segment, config, pass_over_corrupt=True)
    if not scan.corrupt:
        return None
    assert scan.corrupt[0].position == damaged
    return damaged + scan.corrupt[0].size


def _checked(log: File, damaged: int) -> int | None:
    walk = SegmentWalk(log, 0, hints=())
    for _ in walk.chunks():
        pass
    if not walk.bad:
        assert walk.tail is not None
        assert walk.tail.position == damaged
        return None
    assert walk.bad[0].position == damaged
    return damaged + walk.bad[0].size
