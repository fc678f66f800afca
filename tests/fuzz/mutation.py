"""Random changes of bytes, numbers and record batches."""

import struct
import zlib
from random import Random

from logfs.errors import LogfsError
from logfs.records.checksum import crc32c
from logfs.records.compression import compress, decompress

NUMBERS = (
    *(0, 1, 2, 12, 48, 49, 60, 61, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 1 << 30, 1 << 40),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1),
)
"""Those at which something changes; taken modulo the size of a field."""
FIELDS = (
    *((0, 8), (8, 4), (12, 4), (16, 1), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8)),
    *((51, 2), (53, 4), (57, 4)),
)
"""Position and size of the fields of a batch header."""
HEADER_BYTES = 61
_MAGIC_AT = 16


def signed(chance: Random) -> int:
    """Return a number of 64 bits with a sign."""
    number = chance.choice((*NUMBERS, chance.randrange(1000)))
    return number - 2**64 if number >= 2**63 else number


def change_bytes(chance: Random, data: bytes) -> bytes:
    """Change some bytes, put some in, take some out, or cut."""
    found, size = bytearray(data), len(data)
    at = chance.randrange(size + 1)
    match chance.randrange(6):
        case 0 | 1:
            for _ in range(chance.choice((1, 1, 2, 4, 16))):
                if size:
                    found[chance.randrange(size)] = chance.choice((0, 1, 127, 128, 255, 10, 44))
        case 2:
            width = chance.choice((1, 2, 4, 8))
            number = chance.choice(NUMBERS) % (1 << 8 * width)
            found[at : at + width] = number.to_bytes(width, chance.choice(("big", "little")))
        case 3:
            found[at:at] = chance.randbytes(chance.choice((1, 4, 12, 32, 100)))
        case 4:
            del found[at : at + chance.choice((1, 4, 8, 12, 32, 100, 4096))]
        case _:
            del found[at:]
    return bytes(found)


def varint(number: int) -> bytes:
    """Encode a zig-zag varint of up to 64 bits."""
    rest, out = ((number << 1) ^ (number >> 63)) % 2**64, bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _field(chance: Random) -> bytes:
    if chance.random() < 0.2:
        return varint(-1)
    size = chance.choice((0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 100, 2048))
    letters = bytes(chance.choices(b'\\\t\n\r"a\x00\x7f\x80\xc3\xa4', k=size))
    claimed = size if chance.random() < 0.95 else chance.choice((size + 1, -2, 2**31 - 1, 2**40))
    return varint(claimed) + letters


def record(chance: Random) -> bytes:
    """Encode a record of format v2, some of whose numbers are odd."""
    count = chance.choice((0, 0, 0, 1, 3, 20))
    body = b"\0" + varint(chance.choice((0, 0, 1, -1, 2**20, 2**62, -(2**63))))
    body += varint(chance.choice((0, 1, 2, 100, -1, 2**31 - 1))) + _field(chance) + _field(chance)
    body += varint(count if chance.random() < 0.95 else chance.choice((-1, count + 1, 2**31 - 1)))
    body += b"".join(_field(chance) for _ in range(2 * count))
    size = len(body) if chance.random() < 0.97 else chance.choice((len(body) - 1, 0, -1, 2**31 - 1))
    return varint(size) + body


def message(chance: Random, magic: int, offset: int, value: bytes | None, codec: int = 0) -> bytes:
    """Encode a message of format v0 or v1."""
    body = bytes((magic, codec)) + (struct.pack(">q", 1_700_000_000_000) if magic else b"")
    for field in (chance.choice((None, b"", b"key")), value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def messages(chance: Random) -> bytes:
    """Encode messages of one of the old formats, plain or inside a compressed one."""
    magic = chance.randrange(2)
    inner = b"".join(
        message(chance, magic, n if magic else n + 5, chance.choice((None, b"", b"v" * 50)))
        for n in range(chance.randrange(1, 8))
    )
    if chance.random() < 0.4:
        return inner
    if chance.random() < 0.5:
        inner = change_bytes(chance, inner)
    codec = chance.randrange(1, 4)
    offset = chance.choice((0, 3, 7, 2**62, 2**63 - 1))
    return message(chance, magic, offset, compress(codec, inner), codec)


def batch(chance: Random) -> bytes:
    """Encode a batch of any content, whose checksum is right most of the time."""
    if chance.random() < 0.15:
        return messages(chance)
    records = [record(chance) for _ in range(chance.choice((1, 1, 2, 5, 30)))]
    codec = chance.choice((0, 0, 0, 1, 2, 3, 4))
    payload = compress(codec, b"".join(records) + bytes(chance.choice((0, 0, 0, 0, 9))))
    head = struct.pack(
        ">qiibIhiqqqhii",
        chance.choice((0, 5, 2**40, 2**63 - 10)),
        HEADER_BYTES - 12 + len(payload),
        *(0, 2, 0, codec | chance.choice((0, 0, 0, 8, 16, 32, 48, 64))),
        chance.choice((len(records) - 1, len(records) - 1, 0, 2**31 - 1)),
        chance.choice((0, 1_700_000_000_000, -1, 2**63 - 1, -(2**63))),
        chance.choice((0, 1_700_000_000_000, -1, 2**63 - 1)),
        *(chance.choice((-1, 5)), 0, chance.choice((-1, 0, 2**31 - 1))),
        chance.choice((len(records), len(records), len(records), 0, 2**31 - 1)),
    )
    return change_batch(chance, head + payload) if chance.random() < 0.5 else sealed(head + payload)


def change_batch(chance: Random, data: bytes) -> bytes:
    """Change a field or the records of a batch, and mend its checksum."""
    found = bytearray(data)
    if len(data) < HEADER_BYTES or chance.random() < 0.1:
        return change_bytes(chance, data)
    if chance.random() < 0.6:
        at, width = chance.choice(FIELDS)
        found[at : at + width] = (chance.choice(NUMBERS) % (1 << 8 * width)).to_bytes(width, "big")
    else:
        codec = found[22] & 7
        try:
            plain = bytes(decompress(codec, data[HEADER_BYTES:]))
        except LogfsError:
            plain = data[HEADER_BYTES:]
        codec = chance.choice((0, codec if codec < 5 else 0, chance.randrange(5)))
        found[22] = found[22] & ~7 | codec
        found[HEADER_BYTES:] = compress(codec, change_bytes(chance, plain))
        found[8:12] = (len(found) - 12).to_bytes(4, "big")
    return sealed(bytes(found))


def sealed(data: bytes) -> bytes:
    """Return a batch of any format with the right checksum."""
    if len(data) >= HEADER_BYTES and data[_MAGIC_AT] >= 2:
        return data[:17] + crc32c(data[21:]).to_bytes(4, "big") + data[21:]
    if len(data) > _MAGIC_AT:
        return data[:12] + zlib.crc32(data[16:]).to_bytes(4, "big") + data[16:]
    return data
