"""Keys and values of records as text: by the class that wrote them, or by the log they are in.

    --key-decoder-class, --value-decoder-class
    org.apache.kafka.tools.api.StringDecoder    UTF-8, the default; done natively
    org.apache.kafka.tools.api.IntegerDecoder   int32, big-endian
    org.apache.kafka.tools.api.LongDecoder      int64, big-endian
    …common.serialization.*Deserializer         String, Integer, Long, Short, Float, Double, UUID;
                                                Kafka's tool does not take these

    log                    key                                  value
    __consumer_offsets     int16 type, message of that type     int16 version, message
    __transaction_state    the same                             the same
    __share_group_state    the same                             the same
    __cluster_metadata     nothing                              varints frame version 1, type and
                                                                version; message

A record that does not decode is printed as an error in its own line and the next one follows.
Sources: Kafka DumpLogSegments, CoordinatorRecordSerde, AbstractApiMessageSerde.

A control record is the end of a transaction, or a message of KRaft:

    key    int16 version, int16 type: 0 ABORT, 1 COMMIT, 2 LEADER_CHANGE, 3 SNAPSHOT_HEADER,
           4 SNAPSHOT_FOOTER, 5 KRAFT_VERSION, 6 KRAFT_VOTERS
    value  ABORT, COMMIT: int16 version, int32 coordinator epoch
           the others: a message of that name, see ``schemas``

Source: Kafka ControlRecordType, EndTransactionMarker, ControlRecordUtils,
DumpLogSegments.printControlRecord.
"""

import base64
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from logfs.errors import CorruptRecordError, InvalidConfigError
from logfs.records._dumping import java_text
from logfs.services.dumping import schemas
from logfs.services.dumping.messages import Reader, Schema, decode_message, json_text
from logfs.services.dumping.output import Parse

Decoder = Callable[[bytes], bytes]

_FRAME_VERSION = 1
_CONSUMER = "consumer"
_EMBEDDED = {
    "subscription": "ConsumerProtocolSubscription",
    "assignment": "ConsumerProtocolAssignment",
}


def _number(layout: str) -> Decoder:
    parsed = struct.Struct(layout)

    def decode(data: bytes) -> bytes:
        if len(data) < parsed.size:
            raise CorruptRecordError(
                f"{len(data)} bytes where a number of {parsed.size} is expected"
            )
        return str(parsed.unpack_from(data)[0]).encode()

    return decode


def _uuid(data: bytes) -> bytes:
    return str(UUID(data.decode("ascii"))).encode()


_DECODERS: Mapping[str, Decoder] = {
    "String": java_text,
    "Integer": _number(">i"),
    "Long": _number(">q"),
    "Short": _number(">h"),
    "Float": _number(">f"),
    "Double": _number(">d"),
    "UUID": _uuid,
}
_CLASS = re.compile(r"(?:[\w.]+\.)?([A-Za-z]+?)(?:Decoder|Deserializer)")


def decoder_named(name: str) -> Decoder | None:
    """Return the decoder of a class name, None for the default one; raise InvalidConfigError."""
    found = _CLASS.fullmatch(name)
    if found is None or found[1] not in _DECODERS:
        known = ", ".join(_DECODERS)
        raise InvalidConfigError(
            f"decoder class {name!r}: expected a name as org.apache.kafka.tools.api.LongDecoder; "
            f"known are {known}, with Decoder or Deserializer after; others would need Java"
        )
    return None if found[1] == "String" else _DECODERS[found[1]]


def typed(key: Decoder | None, value: Decoder | None) -> Parse | None:
    """Return how to print records whose keys and values have types; None: all is text."""
    if key is None and value is None:
        return None
    decode_key, decode_value = key or java_text, value or java_text

    def parse(
        _offset: int, key: bytes | None, value: bytes | None
    ) -> tuple[bytes | None, bytes | None]:
        return (
            None if key is None else decode_key(key),
            None if value is None else decode_value(value),
        )

    return parse


def cluster_metadata(
    offset: int, _key: bytes | None, value: bytes | None
) -> tuple[bytes | None, bytes | None]:
    """Print a record of ``__cluster_metadata``."""
    try:
        return None, _metadata_text(Reader(value or b"")).encode()
    except CorruptRecordError as error:
        return None, f"Error at {offset}, skipping. {error}".encode()


def _metadata_text(reader: Reader) -> str:
    frame_version = reader.unsigned_varint()
    if frame_version != _FRAME_VERSION:
        raise CorruptRecordError(f"frame version {frame_version}, expected {_FRAME_VERSION}")
    number, version = reader.unsigned_varint(), reader.unsigned_varint()
    schema = next((s for s in schemas.METADATA.values() if s.key == number), None)
    if schema is None:
        raise CorruptRecordError(f"Unknown metadata id {number}")
    message = decode_message(schema, reader, version)
    if reader.left:
        raise CorruptRecordError(f"Found {reader.left} byte(s) of garbage after {number}")
    kind = re.sub("(?<!^)([A-Z])", r"_\1", schema.name).upper()
    return json_text({"type": kind, "version": version, "data": message})


class CoordinatorRecords:
    """Prints records of a coordinator's log."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self._keys = {s.key: s for name, s in schemas.items() if name.endswith("Key")}
        self._values = {s.key: s for name, s in schemas.items() if name.endswith("Value")}

    def parse(
        self, offset: int, key: bytes | None, value: bytes | None
    ) -> tuple[bytes | None, bytes | None]:
        """Return key and value as JSON, ``<DELETE>`` for a tombstone; raise CorruptRecordError."""
        if key is None:
            raise CorruptRecordError(
                f"Failed to decode message at offset {offset} using the specified decoder "
                "(message had a missing key)"
            )
        try:
            kind, text = self._key_text(Reader(key))
            if kind not in self._keys:
                return f"Unknown record type {kind} at offset {offset}, skipping.".encode(), None
            if value is None:
                return text.encode(), b"<DELETE>"
            return text.encode(), self._value_text(kind, Reader(value)).encode()
        except CorruptRecordError as error:
            return f"Error at offset {offset}, skipping. {error}".encode(), None

    def _key_text(self, reader: Reader) -> tuple[int, str]:
        kind = _version(reader, "key")
        if kind not in self._keys:
            return kind, ""
        data = decode_message(self._keys[kind], reader, 0)
        return kind, json_text({"type": str(kind), "data": data})

    def _value_text(self, kind: int, reader: Reader) -> str:
        schema = self._values[kind]
        version = _version(reader, "value")
        if version not in schema.versions:
            raise CorruptRecordError(f"Found an unknown record version {version} for {kind} type")
        data = decode_message(schema, reader, version)
        if schema.name == "GroupMetadataValue" and data["protocolType"] == _CONSUMER:
            for member in data["members"]:
                _open_embedded(member)
        return json_text({"version": str(version), "data": data})


def _version(reader: Reader, name: str) -> int:
    try:
        return int(reader.number("int16"))
    except CorruptRecordError:
        raise CorruptRecordError(f"Could not read version from {name}'s buffer.") from None


def _open_embedded(member: dict[str, Any]) -> None:
    """Decode the embedded messages of a consumer; those that do not decode stay as they are."""
    for name, schema in _EMBEDDED.items():
        try:
            reader = Reader(base64.b64decode(member[name]))
            version = int(reader.number("int16"))
            member[name] = decode_message(schemas.GROUP[schema], reader, version)
        except CorruptRecordError:
            continue


def consumer_offsets() -> Parse:
    """Return how to print ``__consumer_offsets``."""
    return CoordinatorRecords(schemas.GROUP).parse


def transaction_log() -> Parse:
    """Return how to print ``__transaction_state``."""
    return CoordinatorRecords(schemas.TRANSACTION).parse


def share_group_state() -> Parse:
    """Return how to print ``__share_group_state``."""
    return CoordinatorRecords(schemas.SHARE).parse


_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
_MARKERS = {0: "ABORT", 1: "COMMIT"}
_MESSAGES = {
    2: ("LeaderChange:", "LeaderChangeMessage"),
    3: ("SnapshotHeader", "SnapshotHeaderRecord"),
    4: ("SnapshotFooter", "SnapshotFooterRecord"),
    5: ("KRaftVersion", "KRaftVersionRecord"),
    6: ("KRaftVoters", "VotersRecord"),
}


def control_text(key: bytes | None, value: bytes | None) -> bytes:
    """Return the text of a control record, after a space; raise CorruptRecordError."""
    key, value = key or b"", value or b""
    if len(key) < _KEY.size:
        raise CorruptRecordError(f"control record with a key of {len(key)} bytes, expected 4")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecordError(f"control record of version {version}")
    if kind in _MARKERS:
        if len(value) < _MARKER.size:
            raise CorruptRecordError(f"end marker with a value of {len(value)} bytes, expected 6")
        version, epoch = _MARKER.unpack_from(value)
        if version < 0:
            raise CorruptRecordError(f"end marker of version {version}")
        return f" endTxnMarker: {_MARKERS[kind]} coordinatorEpoch: {epoch}".encode()
    if kind not in _MESSAGES:
        return f" controlType: UNKNOWN({kind})".encode()
    title, name = _MESSAGES[kind]
    # The version is in the message as its first field, too: it is read twice.
    version = int.from_bytes(value[:2], "big", signed=True)
    message = decode_message(schemas.CONTROL[name], Reader(value), version)
    return f" {title} {json_text(message)}".encode()
