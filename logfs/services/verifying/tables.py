"""Whether the entries of the segment table of a partition agree with its segments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logfs.disk.vfs import LARGER_FILE_BYTES, Disk
from logfs.errors import CorruptIndexError, UnsupportedFormatError
from logfs.log import names
from logfs.log.names import FileKind, format_segment_file
from logfs.log.segments.table import (
    ENTRY_BYTES,
    SegmentState,
    SegmentTable,
    TableEntry,
    TableState,
)
from logfs.records.checksum import crc32c
from logfs.services.verifying.findings import Finding
from logfs.services.verifying.indexes import LOST
from logfs.services.verifying.segments import SegmentReport

_HEADER_BYTES = 32
_CRC_BYTES = 4
_RESTORE = "restore logfs.segments from a backup; without it later positions may change"
_SCANNED = "the next start after a crash, or without this segment's index files, scans it and "
_OTHER = "another program has changed the segment; the next start records the effect on positions"
SEALED = (SegmentState.SEALED, SegmentState.CLOSED)


@dataclass(slots=True)
class TableContents:
    """A segment table and the findings from reading it.

    Attributes:
        state: The decoded table; None if there is none, or it does not decode.
        places: File position of the last entry of each segment.
        findings: Findings in the file itself.
    """

    name: str
    state: TableState | None
    places: dict[int, int]
    findings: list[Finding]
    is_missing: bool = False

    @property
    def entries(self) -> Mapping[int, TableEntry]:
        """The last entry of each segment, by base offset."""
        return {} if self.state is None else self.state.entries


def read_table(disk: Disk, directory: str) -> TableContents:
    """Read the segment table of a partition directory."""
    name = f"{directory}/{names.SEGMENT_TABLE}"
    table = TableContents(name, None, {}, [])
    try:
        data = disk.read(name, LARGER_FILE_BYTES)
        table.state = SegmentTable.load(disk, directory).state
    except FileNotFoundError:
        table.is_missing = True
        return table
    except UnsupportedFormatError as error:
        table.findings.append(Finding(name, 4, str(error), "", "use a newer logfs, or restore it"))
        return table
    except CorruptIndexError as error:
        table.findings.append(Finding(name, 0, str(error), "", _RESTORE))
        return table
    _check_entries(table, data)
    return table


def _check_entries(table: TableContents, data: bytes) -> None:
    remedy = "it is ignored; " + _RESTORE
    stop = _HEADER_BYTES
    for at in range(_HEADER_BYTES, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        body, stop = data[at : at + ENTRY_BYTES - _CRC_BYTES], at + ENTRY_BYTES
        stored = int.from_bytes(data[stop - _CRC_BYTES : stop], "big")
        if crc32c(body) == stored:
            table.places[int.from_bytes(data[at : at + 8], "big", signed=True)] = at
        else:
            problem = f"checksum {stored:#010x}"
            right = f"{crc32c(body):#010x}"
            table.findings.append(Finding(table.name, at, problem, right, remedy))
    if stop < len(data):
        problem = f"{len(data) - stop} bytes are no whole entry"
        table.findings.append(Finding(table.name, stop, problem, "the end", remedy))


def compare(
    table: TableContents, reports: Sequence[SegmentReport], directory: str, *, may_move: bool
) -> list[Finding]:
    """Compare a table with the segments; the last one may have grown if ``may_move``."""
    findings, ends = [], None
    for report in reports:
        entry = table.entries.get(report.base_offset)
        if entry is None:
            findings.append(_unknown(table, report, directory))
            ends = None
            continue
        place = table.places.get(report.base_offset)
        is_last = report is reports[-1]
        if entry.state in SEALED and not (is_last and may_move):
            findings += _compare_sealed(table, entry, report, directory)
        elif entry.state is SegmentState.OPEN:
            findings += _compare_open(table, entry, report)
        if ends is not None and entry.bases.at_least(ends) != entry.bases:
            problem = f"segment {entry.base_offset} starts at positions {tuple(entry.bases)}"
            right = f"{tuple(ends)}, where the one before it ends, or more"
            findings.append(Finding(table.name, place, problem, right, _RESTORE))
        ends = entry.ends if entry.state in SEALED else None
    return findings


def _unknown(table: TableContents, report: SegmentReport, directory: str) -> Finding:
    log = format_segment_file(report.base_offset, FileKind.LOG)
    problem = f"no entry for {directory}/{log}"
    return Finding(table.name, None, problem, "one", f"the next start scans it; {_RESTORE}")


def _compare_open(table: TableContents, entry: TableEntry, report: SegmentReport) -> list[Finding]:
    shown = entry.bases.plus(report.lengths).plus(report.gaps)
    if entry.ends.at_least(shown) == entry.ends:
        return []
    problem = f"segment {entry.base_offset}: its reserved positions end at {tuple(entry.ends)}"
    right = f"at least {tuple(shown)}, where the records end"
    remedy = "after a power cut positions may be given twice: start logfs and stop it cleanly"
    place = table.places.get(entry.base_offset)
    return [Finding(table.name, place, problem, right, remedy)]


def _compare_sealed(
    table: TableContents, entry: TableEntry, report: SegmentReport, directory: str
) -> list[Finding]:
    log = f"{directory}/{format_segment_file(report.base_offset, FileKind.LOG)}"
    size = entry.size_bytes or 0
    if report.size_bytes != size:
        grown = entry.state is SegmentState.CLOSED and report.size_bytes > size
        if grown or report.valid_bytes == size:
            return []  # a broker has appended, or the scan has reported the end
        problem = f"{report.size_bytes} bytes"
        return [Finding(log, report.size_bytes, problem, f"{size}, as {table.name} says", _OTHER)]
    if report.unreadable:
        return []
    rows = [
        ("next offset", entry.next_offset, report.next_offset),
        ("max timestamp", entry.max_timestamp, report.max_timestamp),
        ("first timestamp", entry.first_timestamp, report.first_timestamp),
        ("kept lengths", tuple(entry.lengths), tuple(report.lengths)),
    ]
    place = table.places.get(entry.base_offset)
    findings = [
        Finding(
            table.name, place, f"segment {entry.base_offset}: {what} {said}", str(found),
            f"{_SCANNED}writes it again",
        )
        for what, said, found in rows
        if said != found
    ]  # fmt: skip
    ends = entry.bases.plus(report.lengths).plus(report.gaps)
    if findings or ends == entry.ends:
        return findings
    gaps = entry.ends.minus(entry.bases).minus(entry.lengths)
    if entry.has_gaps:
        text = f"{directory}/{format_segment_file(report.base_offset, FileKind.TEXT_INDEX)}"
        problem = f"its gaps are {tuple(report.gaps)} long: entries at its end are lost"
        right = f"{tuple(gaps)}, as {table.name} says"
        return [Finding(text, report.text_bytes, problem, right, LOST)]
    problem = f"segment {entry.base_offset}: it ends at positions {tuple(entry.ends)}"
    return [Finding(table.name, place, problem, str(tuple(ends)), _RESTORE)]
