"""``logfs cat`` with the records around the wanted ones, and with the last record first.

Both read a partition in pieces that fit into memory, however far apart the wanted records are.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from logfs.errors import CorruptRecordError, LogfsError
from logfs.library.cursor import Cursor, read_batches
from logfs.records.record import Record

_PIECE_BYTES = 4 << 20
_FIRST_OFFSETS = 1024
_FACTOR = 4
_RUN_RECORDS = 4096


class Neighbour(NamedTuple):
    """A wanted record, or one near it.

    Attributes:
        is_apart: Whether it begins a group: records between the group before and it are left out.
    """

    record: Record
    is_wanted: bool
    is_apart: bool


def with_neighbours(cursor: Cursor, end: int, before: int, after: int) -> Iterator[Neighbour]:
    """Yield the wanted records up to an offset, and those around them, each once, as grep does.

    Args:
        cursor: Returns the wanted records. No record before its offset is yielded.
        before: How many records before each wanted one.
        after: How many records after it.

    Raises:
        CorruptRecordError: After the records before the damage.
    """
    begin, owed, is_first = cursor.offset, 0, True
    everything = cursor.at(begin, is_for_all=True)

    def records(start: int, stop: int) -> Iterator[Record]:
        for some in read_batches(everything.at(start), stop):
            yield from some

    failure: LogfsError | OSError | None = None
    try:
        for run in _runs(cursor, end, before + after):
            first, stop = run[0], run[-1] + 1
            for record in islice(records(begin, first), owed):
                yield Neighbour(record, False, False)
                begin = record.offset + 1
            start = max(begin, everything.start_of_last(before, first))
            is_apart = is_first or any(records(begin, start))
            wanted = set(run)
            for record in records(start, stop):
                yield Neighbour(record, record.offset in wanted, is_apart)
                is_apart = False
            begin, owed, is_first = stop, after, False
    except (LogfsError, OSError) as error:
        failure = error
    for record in islice(records(begin, end), owed):
        yield Neighbour(record, False, False)
    if failure is not None:
        raise failure


def backwards(cursor: Cursor, end: int) -> Iterator[list[Record]]:
    """Yield the wanted records from an offset back to that of the cursor, the last one first.

    Raises:
        CorruptRecordError: After the records after the damage.
    """
    begin, step = cursor.offset, _FIRST_OFFSETS
    while end > begin:
        start = max(begin, end - step)
        found: list[Record] = []
        size_bytes = 0
        try:
            for some in read_batches(cursor.at(start), end):
                found += some
                size_bytes += sum(len(record.value or b"") for record in some)
                if size_bytes > _PIECE_BYTES:
                    break
        except CorruptRecordError:
            if end - start == 1:
                raise
            size_bytes = _PIECE_BYTES + 1  # the damage may be before what can be read
        if size_bytes > _PIECE_BYTES and end - start > 1:
            step = max((end - start) // _FACTOR, 1)
            continue
        yield found[::-1]
        end = start
        if size_bytes < _PIECE_BYTES // _FACTOR:
            step *= _FACTOR


def _runs(cursor: Cursor, end: int, reach: int) -> Iterator[list[int]]:
    """Yield the offsets of the wanted records, those together between which all are printed."""
    run: list[int] = []
    try:
        for records in read_batches(cursor, end):
            for record in records:
                if run and (record.offset - run[-1] > reach + 1 or len(run) == _RUN_RECORDS):
                    yield run
                    run = []
                run.append(record.offset)
    except (LogfsError, OSError):
        if run:
            yield run
        raise
    if run:
        yield run
