"""What a control record says: the end of a transaction, or a note of KRaft.

    key    int16 version, int16 type: 0 ABORT, 1 COMMIT, 2 LEADER_CHANGE, 3 SNAPSHOT_HEADER,
           4 SNAPSHOT_FOOTER, 5 KRAFT_VERSION, 6 KRAFT_VOTERS
    value  ABORT, COMMIT: int16 version, int32 coordinator epoch
           the others: a message of that name, see ``schemas.control``

Source: Kafka ControlRecordType, EndTransactionMarker, ControlRecordUtils,
DumpLogSegments.printControlRecord.
"""

import struct

from logfs.errors import CorruptRecordError
from logfs.log.dumping.messages import Reader, decode_message, json_text
from logfs.log.dumping.schemas import control

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
    """Return what is printed of a control record, a space in front.

    Raises:
        CorruptRecordError: Key or value are too short, or of an impossible version; no position.
    """
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
    message = decode_message(control.SCHEMAS[name], Reader(value), version)
    return f" {title} {json_text(message)}".encode()
