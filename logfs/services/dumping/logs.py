"""The batches and records of a ``.log`` (or of a KRaft snapshot, ``.checkpoint``).

Batches are checked and printed, also damaged ones. A length or a record that does not decode ends
the file with an error, like in Kafka's tool. The loop over v2 records is native, see
``logfs.records._dumping.Dumper``.
"""

import re

from logfs.errors import CorruptRecordError
from logfs.records._dumping import Dumper
from logfs.records._reading import has_right_checksum, whole_batches
from logfs.records.compression import decompress
from logfs.records.layout import size_of
from logfs.services.dumping.decoders import control_text
from logfs.services.dumping.legacy import legacy_lines
from logfs.services.dumping.output import MAX_INT32, DumpOptions, Findings, Streams
from logfs.services.dumping.source import MAX_FILE_BYTES, BatchWindow, DumpFile, Frame

_BOOTSTRAP_NAME = "bootstrap.checkpoint"
_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


def dump_log(source: DumpFile, options: DumpOptions, streams: Streams, findings: Findings) -> None:
    """Print a ``.log`` or ``.checkpoint``.

    Raises:
        CorruptRecordError: Bytes do not decode. The batches before them are printed.

    Source: Kafka DumpLogSegments.dumpLog.
    """
    streams.print(_title(source))
    file = source.disk.open(source.name)
    try:
        size = file.size()
        if size > MAX_FILE_BYTES:
            raise CorruptRecordError(f"{source.path}: {size} bytes, a log has at most 2^31 - 1")
        end = min(size, options.max_bytes)
        dumper = Dumper(
            records=options.records,
            metadata=options.metadata,
            payloads=options.payloads,
            decompress=decompress,
            control=control_text,
            parse=options.parse,
        )
        try:
            window = BatchWindow(file, end, source.path)
            _dump_batches(window, dumper, options, source, streams, findings)
        finally:
            dumper.drain(streams.out.write)
            findings.gaps(source.absolute, dumper.gaps)
            findings.is_damaged |= dumper.invalid > 0
    finally:
        file.close()
    rest = end - dumper.position
    if rest > 0 and options.max_bytes == MAX_INT32:
        findings.is_damaged = True
        streams.print(f"Found {rest} invalid bytes at the end of {source.file_name}")


def _title(source: DumpFile) -> str:
    if source.is_log:
        return f"Log starting offset: {source.base_offset}"
    if source.file_name == _BOOTSTRAP_NAME:
        return "KRaft bootstrap snapshot"
    found = _SNAPSHOT.fullmatch(source.file_name)
    if found is None:
        raise CorruptRecordError(
            f"{source.path}: expected the name of a KRaft snapshot, OFFSET-EPOCH.checkpoint"
        )
    return f"Snapshot end offset: {int(found[1])}, epoch: {int(found[2])}"


def _dump_batches(
    window: BatchWindow,
    dumper: Dumper,
    options: DumpOptions,
    source: DumpFile,
    streams: Streams,
    findings: Findings,
) -> None:
    after = source.base_offset if source.is_log else 0
    while (frame := window.frame(dumper.position)) is not None:
        invalid = dumper.invalid
        try:
            if frame.is_legacy:
                _dump_message(window, frame, dumper, options, streams)
            else:
                _feed(window, frame, dumper)
        except CorruptRecordError as error:
            position = dumper.position
            text = f"{source.path}: batch at position {position}: {error}"
            raise CorruptRecordError(text, position, source.path) from error
        dumper.drain(streams.out.write)
        at, stop = frame.place, frame.place + dumper.position - frame.position
        while at < stop:
            at, after, problem = whole_batches(
                window.buffer, at, stop, after, dumper.invalid > invalid
            )
            if problem is None:
                break
            size = size_of(window.buffer, at)
            if has_right_checksum(window.buffer, at, at + size):  # else its own line says so
                findings.refused(source.absolute, frame.position + at - frame.place, problem)
            at += size


def _feed(window: BatchWindow, frame: Frame, dumper: Dumper) -> None:
    if dumper.feed(window.buffer, frame.place, window.filled) == frame.place:
        raise CorruptRecordError("the file ends in its header")


def _dump_message(
    window: BatchWindow, frame: Frame, dumper: Dumper, options: DumpOptions, streams: Streams
) -> None:
    """Print a message of format v0 or v1, which may hold others."""
    message = bytes(window.buffer[frame.place : frame.place + frame.size_bytes])
    dumper.drain(streams.out.write)
    for offset, is_valid, line in legacy_lines(message, frame.position, options):
        if offset is not None:
            if dumper.last_offset not in (-1, offset - 1):
                dumper.gaps.append((dumper.last_offset, offset))
            dumper.last_offset = offset
        dumper.invalid += not is_valid
        streams.out.write(line)
    dumper.position += frame.size_bytes
