"""What the native module must agree with, written as plainly as possible."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from logfs.records.record import Record
from logfs.types import View


def json_bytes(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def jsonl_line(record: Record) -> bytes:
    fields = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[json_bytes(key), json_bytes(value)] for key, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def tsv_field(data: bytes | None) -> bytes:
    if data is None:
        return b"\\N"
    for byte, escape in ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"), (b"\r", b"\\r")):
        data = data.replace(byte, escape)
    return data


def rendering(view: int, record: Record) -> bytes:
    match View(view):
        case View.TEXT:
            return (record.value or b"") + b"\n"
        case View.TSV:
            return tsv_field(record.key) + b"\t" + tsv_field(record.value) + b"\n"
    return jsonl_line(record)


def renderings(view: int, records: Sequence[Record]) -> bytes:
    return b"".join(rendering(view, record) for record in records)


def lengths(records: Sequence[Record]) -> tuple[int, int, int]:
    text, tsv, jsonl = (len(renderings(view, records)) for view in View)
    return text, tsv, jsonl


@dataclass
class Batch:
    """A batch as a test made it: its bytes, and the records that a reader sees of it."""

    data: bytes
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    visible: list[Record]


@dataclass
class IndexModel:
    """The index rules in Python: Kafka's LogSegment.append, per batch."""

    base_offset: int
    interval: int
    position: int = 0
    counter: int = 0
    max_timestamp: int = -1
    offset_of_max: int = -1
    last_time_entry: int = -1
    lengths: tuple[int, int, int] = (0, 0, 0)
    offset_index: bytes = b""
    time_index: bytes = b""
    text_index: bytes = b""
    epochs: list[tuple[int, int]] = field(default_factory=list)

    def add(self, batch: Batch) -> None:
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp = batch.max_timestamp
            self.offset_of_max = batch.last_offset
        if self.counter > self.interval:
            self.offset_index += self.int32(batch.last_offset - self.base_offset)
            self.offset_index += self.int32(self.position)
            self.time_index += self.time_entry()
            self.text_index += self.int32(batch.base_offset - self.base_offset)
            self.text_index += self.int32(self.position)
            self.text_index += b"".join(n.to_bytes(8, "big") for n in self.lengths)
            self.counter = 0
        self.counter += len(batch.data)
        self.position += len(batch.data)
        text, tsv, jsonl = lengths(batch.visible)
        self.lengths = (self.lengths[0] + text, self.lengths[1] + tsv, self.lengths[2] + jsonl)
        if batch.leader_epoch > (self.epochs[-1][0] if self.epochs else -1):
            self.epochs.append((batch.leader_epoch, batch.base_offset))

    def time_entry(self) -> bytes:
        if self.max_timestamp <= self.last_time_entry:
            return b""
        self.last_time_entry = self.max_timestamp
        offset = self.int32(self.offset_of_max - self.base_offset)
        return self.max_timestamp.to_bytes(8, "big") + offset

    @staticmethod
    def int32(number: int) -> bytes:
        return number.to_bytes(4, "big")
