"""The requests of the control protocol: one table, and how fields become JSON and back."""

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from logfs.control.frames import decode_error, encode_error
from logfs.errors import ControlError
from logfs.log.lines.form import AppendedLines, LineForm, Lines, LineTarget
from logfs.records.encoded import ProducerBatch
from logfs.types import View

_MASK_64 = 2**64 - 1

Report = Callable[[str], None]
"""Takes a line about the progress of a request."""


class FieldType(NamedTuple):
    """The type of a field.

    Attributes:
        kind: The type to which its JSON value decodes.
        is_optional: Whether the field may be null or missing.
        convert: Returns the value for the daemon, or raises ControlError; called with the name of
            the field and its value.
    """

    kind: type
    is_optional: bool = False
    convert: Callable[[str, Any], object] | None = None

    def parse(self, name: str, value: object) -> object:
        """Return the value of a field.

        Raises:
            ControlError: The value has another type.
        """
        if value is None and self.is_optional:
            return None
        if type(value) is not self.kind:
            raise ControlError(f"{name}={value!r}: expected {self.kind.__name__}")
        return value if self.convert is None else self.convert(name, value)


class RequestType(NamedTuple):
    """One row of the table.

    Attributes:
        fields: The types of its fields by name. A daemon ignores other fields.
        reply: The contents of the answer, as JSON.
        payload: The contents of the payload of the request; empty: it has none.
    """

    fields: Mapping[str, FieldType]
    reply: str = "null"
    payload: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that the daemon received.

    Attributes:
        name: Its row in ``REQUESTS``.
        fields: The checked values of exactly the fields of that row.
        payload: The bytes after the header.
        report: Sends a line about the progress to the client.
        descriptor: The file that came with the request, open until the answer; None: no file.
        peer: The process and the user of the client; None: not known.
        identity: The client, and the number that it has given the request; None: it has no number.
    """

    name: str
    fields: Mapping[str, Any]
    payload: bytes | bytearray
    report: Report
    descriptor: int | None
    identity: tuple[int, int] | None = None
    peer: tuple[int, int] | None = None

    def __getitem__(self, field: str) -> Any:  # noqa: ANN401 - the table has the types
        return self.fields[field]

    def file(self) -> int:
        """Return the descriptor of the regular file that came with the request.

        Raises:
            ControlError: No file came, or it is not a regular file.
        """
        if self.descriptor is None or not stat.S_ISREG(os.fstat(self.descriptor).st_mode):
            raise ControlError("expected a regular file with the request")
        return self.descriptor


def parse_request(
    header: Mapping[str, Any],
    payload: bytes | bytearray,
    report: Report,
    descriptor: int | None = None,
    peer: tuple[int, int] | None = None,
) -> Request:
    """Check a request against the table.

    Raises:
        ControlError: The table has no such request, or a field has another type.
    """
    name = header.get("request")
    row = REQUESTS.get(name) if isinstance(name, str) else None
    if row is None:
        raise ControlError(
            f"{name!r} is no request that this daemon knows: it may be of another version; "
            f"expected one of {', '.join(REQUESTS)}"
        )
    fields = {key: kind.parse(key, header.get(key)) for key, kind in row.fields.items()}
    identity = _identity(header.get("client"), header.get("number"))
    return Request(str(name), fields, payload, report, descriptor, identity, peer)


def _identity(client: object, number: object) -> tuple[int, int] | None:
    if not (isinstance(client, int) and isinstance(number, int)):
        return None
    return client & _MASK_64, number & _MASK_64


def line_fields(target: LineTarget) -> dict[str, object]:
    """Return the fields of a request that appends lines; ``line_form`` is the inverse."""
    topic, partition, form, unkeyed = target
    headers = [[name.hex(), None if value is None else value.hex()] for name, value in form.headers]
    return {
        "topic": topic,
        "partition": partition,
        "view": int(form.view),
        "key_delimiter": form.key_delimiter.hex(),
        "headers": headers,
        "unkeyed": unkeyed,
    }


def line_form(request: Request) -> LineForm:
    """Return the form of the lines that a request appends.

    Raises:
        ControlError: A field does not parse.
    """
    try:
        headers = tuple(
            (bytes.fromhex(name), None if value is None else bytes.fromhex(value))
            for name, value in request["headers"]
        )
        return LineForm(View(request["view"]), bytes.fromhex(request["key_delimiter"]), headers)
    except (ValueError, TypeError) as error:
        raise ControlError(f"lines: {error}") from None


def encode_lines(lines: Lines) -> dict[str, object]:
    """Return the answer to a request that appends lines; ``decode_lines`` is the inverse."""
    refusal = None if lines.refusal is None else encode_error(lines.refusal)
    return {"appended": lines.appended, "accepted": lines.accepted, "refusal": refusal}


def decode_lines(answer: Mapping[str, Any]) -> Lines:
    """Return what the daemon answered to a request that appends lines."""
    refusal = answer["refusal"]
    return Lines(
        [AppendedLines(*row) for row in answer["appended"]],
        answer["accepted"],
        None if refusal is None else decode_error(refusal),
    )


def _changes(name: str, values: dict[str, object]) -> dict[str, object]:
    if not all(value is None or isinstance(value, str) for value in values.values()):
        raise ControlError(f"{name}={values!r}: expected texts")
    return values


def _settings(name: str, values: dict[str, object]) -> dict[str, object]:
    if None in values.values():
        raise ControlError(f"{name}={values!r}: expected texts")
    return _changes(name, values)


_PRODUCER_TYPES = ([int, int, int, bool], [int, int, int, bool, bool])


def _producer(name: str, values: list[Any]) -> ProducerBatch:
    if [type(value) for value in values] not in _PRODUCER_TYPES:
        raise ControlError(f"{name}={values!r}: expected the fields of a ProducerBatch")
    return ProducerBatch(*values)


_TEXT = FieldType(str)
_NUMBER = FieldType(int)
_NUMBER_OR_NULL = FieldType(int, is_optional=True)
_FLAG = FieldType(bool)
_OPTIONAL_FLAG = FieldType(bool, is_optional=True)
_PARTITION = {"topic": _TEXT, "partition": _NUMBER}
_PLACE = {**_PARTITION, "offset": _NUMBER}
_LINES = {
    "topic": _TEXT,
    "partition": _NUMBER_OR_NULL,
    "view": _NUMBER,
    "key_delimiter": _TEXT,
    "headers": FieldType(list),
    "unkeyed": _NUMBER,
}
"""``partition`` null: the key of each line decides. ``key_delimiter`` and the pairs in ``headers``
are in hexadecimal digits."""

REQUESTS: Mapping[str, RequestType] = {
    "status": RequestType({}, "pid, version, data, mountpoint, options, started_ms, was_clean, …"),
    "resumes": RequestType(
        {}, "whether another daemon continues with numbered requests when this one ends"
    ),
    "reload": RequestType({}, "nothing, but the end of the connection: a successor serves then"),
    "own_store": RequestType({}, "what a promotion of this standby has made"),
    "utc_offset": RequestType(
        {"local": _TEXT},
        "offset of the daemon's time zone from UTC at a local time, in seconds",
    ),
    "metrics": RequestType({}, "the metrics that do not belong to single topics, by name"),
    "prometheus": RequestType({}, "null; all metrics as Prometheus text in the payload"),
    "activity": RequestType(
        {"milliseconds": _NUMBER},
        "after that time: seconds, rows of topics and programs, missed, sees_programs",
    ),
    "topics": RequestType({}, "the number of partitions of each topic"),
    "describe": RequestType({"topic": _TEXT}, "TopicFacts"),
    "create": RequestType(
        {
            "topic": _TEXT,
            "partitions": _NUMBER_OR_NULL,
            "config": FieldType(dict, convert=_settings),
        },
        "warnings",
    ),
    "alter": RequestType(
        {
            "topic": _TEXT,
            "partitions": _NUMBER_OR_NULL,
            "changes": FieldType(dict, convert=_changes),
        },
        "warnings",
    ),
    "delete": RequestType({"topic": _TEXT, "at_once": _OPTIONAL_FLAG}),
    "undelete": RequestType({"topic": _TEXT}),
    "trim": RequestType(
        {"names": FieldType(list), "at_once": _FLAG, "even_if_held": _OPTIONAL_FLAG},
        "Trimmed of each partition of an address",
    ),
    # A separate request, so that an older daemon refuses it instead of trimming.
    "preview_trim": RequestType(
        {"names": FieldType(list), "at_once": _FLAG, "even_if_held": _OPTIONAL_FLAG},
        "Trimmed of each partition of an address, as if it had been trimmed",
    ),
    "retention": RequestType({}, "[topic, partition, Deletion] of each changed partition"),
    "compact": RequestType(
        {"topic": _TEXT, "partition": _NUMBER_OR_NULL, "roll": _FLAG}, "Compacted of each partition"
    ),
    "preview_compact": RequestType(
        {"topic": _TEXT, "partition": _NUMBER_OR_NULL},
        "Compacted of each partition, as if it had been compacted",
    ),
    "pack": RequestType(
        {"topic": _TEXT, "partition": _NUMBER_OR_NULL, "roll": _FLAG}, "Packed of each partition"
    ),
    "roll": RequestType(_PARTITION, "the base offset of the active segment"),
    "overview": RequestType(
        {"topic": _TEXT, "first": _NUMBER, "since_ms": _NUMBER},
        "TopicOverview of a limited number of partitions, starting with the partition ``first``",
    ),
    "point": RequestType(_PARTITION, "Point; the partition is durable up to there"),
    "append": RequestType(
        {
            **_PARTITION,
            "producer": FieldType(list, is_optional=True, convert=_producer),
            "is_durable": _FLAG,
        },
        "Appended",
        "batches of records, from ``encode_records``",
    ),
    "lines": RequestType({**_LINES, "is_durable": _FLAG}, "see ``encode_lines``", "whole lines"),
    "file": RequestType(
        {**_LINES, "position": _NUMBER},
        "the same; some of the lines that begin at ``position`` of the file that comes with the "
        "request, none only at its end",
    ),
    "publish": RequestType(
        {"query": _TEXT, "batch": _NUMBER, "is_single": _FLAG, "leaves_out": _OPTIONAL_FLAG},
        "whether the batch had not been published before",
        "the staged files, from ``encode_staged``",
    ),
    "forget": RequestType({"query": _TEXT}, "null; the ledger of the query is removed"),
    "end": RequestType(
        {
            **_PARTITION,
            "producer_id": _NUMBER,
            "epoch": _NUMBER,
            "commit": _FLAG,
            "is_durable": _FLAG,
        },
        "the offset of the transaction marker",
    ),
    "flush": RequestType(_PARTITION, "null; earlier appends to the partition are durable"),
    # Of logfs mirror.
    "mirrors": RequestType({}, "MirrorSource of each topic that is a mirror, by name"),
    "mirror": RequestType(
        {
            "topic": _TEXT,
            "partitions": _NUMBER,
            "config": FieldType(dict, convert=_settings),
            "source": FieldType(dict, convert=_settings),
        },
        "MirrorEnd of each partition",
    ),
    "replica": RequestType(
        {**_PARTITION, "epoch": _NUMBER_OR_NULL},
        "end: MirrorEnd; epoch: the largest leader epoch up to that one and its end, or null",
    ),
    "replicate": RequestType(
        {**_PARTITION, "expected": _NUMBER},
        "Replicated; an error if the log does not end at the offset ``expected``",
        "batches, as a broker stores them",
    ),
    "start": RequestType(_PLACE, "null; an empty partition begins there"),
    "continue": RequestType({**_PLACE, "why": _TEXT}, "null; the log continues there"),
    "cut": RequestType({**_PLACE, "why": _TEXT}, "null; the log ends there"),
    "advance": RequestType(_PLACE, "null; the records before it are deleted"),
    "promote": RequestType({"topic": _TEXT}),
    "rename": RequestType({"topic": _TEXT, "new": _TEXT}, "null; the topic has the new name"),
    "mirror_state": RequestType({"topic": _TEXT, "state": _TEXT, "reason": _TEXT}),
    "notes": RequestType(
        {"facts": FieldType(dict)}, "null; what .meta and metrics show of mirrors"
    ),
}
"""Every request by its name."""

REPEATED = frozenset({
    "create", "alter", "delete", "undelete", "trim", "retention", "compact", "pack", "roll",
    "append", "lines", "file", "publish", "forget", "end", "flush",
    "mirror", "replicate", "start", "continue", "cut", "advance", "promote", "rename",
})  # fmt: skip
"""Requests that change something: a client numbers them, and repeats them if the daemon ends."""

CHANGING = REPEATED - {"flush"} | {"reload", "own_store"}
"""Requests that change logs, topics or the daemon; all others ask, or wait for the disk."""
