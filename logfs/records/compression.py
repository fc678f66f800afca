"""The four codecs, framed as Kafka frames the records of a batch.

    codec   framing of the payload (bytes 61 to the end of the batch)
    gzip    one RFC 1952 member
    snappy  xerial stream: 16-byte header, then (int32 length, raw snappy block) of 32 KiB each;
            old clients wrote one raw block without the header
    lz4     LZ4 frame: independent blocks of 64 KiB, no checksums (of blocks at other levels than
            the default), no content size
    zstd    one frame, written as a stream: no content size, no checksum

Source: Kafka CompressionType, SnappyCompression, Lz4BlockOutputStream, ZstdCompression.
"""

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from types import ModuleType
from typing import Self

import cramjam

from logfs.config.store import DECOMPRESSED_MAX_BYTES
from logfs.errors import CorruptRecordError, OversizedBatchError

_SETTING = "logfs.decompressed.max.bytes (of a command: --decompressed-max-bytes)"

_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK_BYTES = 32 * 1024

# Magic, FLG (version 1, independent blocks), BD (64 KiB), and the second byte of xxh32(FLG BD).
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 1 << 31
_LZ4_KAFKA_DEFAULT_LEVEL = 9
_LZ4_MAX_LEVEL = 12

_FIRST_RATIO = 8
"""Memory for what may grow beyond the limit, times its size; again as many times if too small."""
_NO_SPACE = "failed to write whole buffer"
"""The message of cramjam when the space it was given is too small."""

_ZSTD_MAGIC = bytes.fromhex("28b52ffd")
_ZSTD_BLOCK_BYTES = 128 * 1024

Buffer = bytes | bytearray | memoryview

Decompress = Callable[[int, Buffer], Buffer]
"""From codec and payload to the bytes of the records; raises CorruptRecordError."""


class Compression(IntEnum):
    """The codec number in bits 0-2 of a batch's attributes. Source: Kafka CompressionType."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, number: int) -> Self:
        """Return the codec with a number; raise CorruptRecordError if there is none."""
        try:
            return cls(number)
        except ValueError:
            raise CorruptRecordError(f"unknown compression codec {number}") from None


class _Limit:
    """The limit of this process."""

    size_bytes = DECOMPRESSED_MAX_BYTES


def limit_decompressed(size_bytes: int) -> None:
    """Refuse batches whose records take more than so many bytes, from now on and in all threads."""
    _Limit.size_bytes = size_bytes


def decompressed_limit() -> int:
    """Return how many bytes the records of a compressed batch may take."""
    return _Limit.size_bytes


def compress(codec: int, payload: Buffer, level: int | None = None) -> bytes:
    """Compress the records of a batch.

    Args:
        codec: A :class:`Compression` number.
        level: In the codec's own scale; None is Kafka's default. NONE and SNAPPY have no levels.

    Raises:
        ValueError: The codec is unknown or the level out of its range.
    """
    match Compression(codec):
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(payload, level=6 if level in (None, -1) else level))
        case Compression.SNAPPY:
            return _compress_snappy(payload)
        case Compression.LZ4:
            return _compress_lz4(payload, level)
        case Compression.ZSTD:
            stream = cramjam.zstd.Compressor(level=3 if level is None else level)
            stream.compress(bytes(payload))
            return bytes(stream.finish())
    return bytes(payload)


def decompress_to(size_bytes: int, payload: Buffer) -> memoryview:
    """Return the zstd frame of a file of logfs's own, whose decompressed size is known.

    The limit of ``limit_decompressed``, which is for batches, does not apply.

    Raises:
        CorruptRecordError: It does not decode, or has another size.
    """
    found = bytearray(max(size_bytes, 0))
    try:
        size = cramjam.zstd.decompress_into(payload, found)
    except cramjam.DecompressionError as error:
        raise CorruptRecordError(f"it does not decompress: {error}") from None
    if size != size_bytes:
        raise CorruptRecordError(f"it has {size} bytes decompressed; expected {size_bytes}")
    return memoryview(found)


def decompress(codec: int, payload: Buffer) -> memoryview:
    """Return the records of a batch decompressed; the payload is not trusted.

    Args:
        codec: Bits 0-2 of the batch's attributes; any number.
        payload: Bytes 61 to the end of the batch; any bytes.

    Raises:
        CorruptRecordError: The codec is unknown, or the payload does not decode.
        OversizedBatchError: It would grow beyond the limit of ``limit_decompressed``.
    """
    if codec == Compression.NONE:
        return memoryview(payload)
    decoder = _DECODERS.get(codec)
    if decoder is None:
        raise CorruptRecordError(f"unknown compression codec {codec}")
    try:
        return decoder(payload)
    except (cramjam.DecompressionError, ValueError, struct.error) as error:
        name = Compression(codec).name.lower()
        raise CorruptRecordError(f"{name} payload does not decompress: {error}") from error


def _blocks(payload: Buffer, size: int) -> Iterator[memoryview]:
    view = memoryview(payload)
    return (view[start : start + size] for start in range(0, len(view), size))


def _compress_snappy(payload: Buffer) -> bytes:
    parts = [_SNAPPY_HEADER]
    for block in _blocks(payload, _SNAPPY_BLOCK_BYTES):
        packed = bytes(cramjam.snappy.compress_raw(block))
        parts += [struct.pack(">i", len(packed)), packed]
    return b"".join(parts)


def _compress_lz4(payload: Buffer, level: int | None) -> bytes:
    # At its default level Kafka takes the fast compressor, at every other one the high-compression
    # one. Source: Kafka Lz4BlockOutputStream.
    if level is not None and level != _LZ4_KAFKA_DEFAULT_LEVEL:
        stream = cramjam.lz4.Compressor(
            level=min(level, _LZ4_MAX_LEVEL), content_checksum=False, block_linked=False
        )
        stream.compress(bytes(payload))
        return bytes(stream.finish())
    parts = [_LZ4_HEADER]
    for block in _blocks(payload, _LZ4_BLOCK_BYTES):
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            parts += [struct.pack("<I", len(packed)), packed]
        else:
            parts += [struct.pack("<I", len(block) | _LZ4_STORED), bytes(block)]
    parts.append(bytes(4))
    return b"".join(parts)


def _decompress_snappy(payload: Buffer) -> memoryview:
    view = memoryview(payload)
    if bytes(view[: len(_SNAPPY_MAGIC)]) != _SNAPPY_MAGIC:
        return _decompress_snappy_blocks([view])
    return _decompress_snappy_blocks(list(_xerial_blocks(view)))


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    position = len(_SNAPPY_HEADER)
    if len(view) < position:
        raise ValueError("stream header is cut")
    while position < len(view):
        (size,) = struct.unpack_from(">i", view, position)
        position += 4
        if not 0 <= size <= len(view) - position:
            raise ValueError(f"block of {size} bytes does not fit")
        yield view[position : position + size]
        position += size


def _decompress_snappy_blocks(blocks: list[memoryview]) -> memoryview:
    # A raw block states its decompressed length up front, so a lie costs nothing.
    sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    if sum(sizes) > _Limit.size_bytes:
        raise _oversized()

    space, end = memoryview(bytearray(sum(sizes))), 0
    for block, size in zip(blocks, sizes, strict=True):
        end += cramjam.snappy.decompress_raw_into(block, space[end : end + size])
    return space[:end]


def _oversized() -> OversizedBatchError:
    return OversizedBatchError(
        f"its records take more than {_Limit.size_bytes} bytes when decompressed; "
        f"to read them, raise {_SETTING}"
    )


def _gzip_bound(payload: Buffer) -> int:
    return len(payload) * 1100  # deflate makes at most 1032 bytes of one


def _lz4_bound(payload: Buffer) -> int:
    return len(payload) * 256  # every further byte of a length adds 255


def zstd_bound(payload: Buffer) -> int:
    """Largest size that the blocks of the first frame, and of what follows, can make.

    Source: RFC 8878, sections 3.1.1.1 and 3.1.1.2.
    """
    view = memoryview(payload)
    if len(view) < 5 or bytes(view[:4]) != _ZSTD_MAGIC:
        return len(view) * _ZSTD_BLOCK_BYTES
    descriptor = view[4]
    single_segment = descriptor >> 5 & 1
    position = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    position += (single_segment, 2, 4, 8)[descriptor >> 6]
    bound = 0
    while position + 3 <= len(view):
        header = int.from_bytes(view[position : position + 3], "little")
        kind, size = header >> 1 & 3, header >> 3
        bound += size if kind < 2 else _ZSTD_BLOCK_BYTES
        position += 3 + (1 if kind == 1 else size)
        if header & 1:
            # After the last block: a checksum of 4 bytes, or frames that no writer uses.
            rest = len(view) - position
            return bound + (rest * _ZSTD_BLOCK_BYTES if rest > 4 else 0)
    return bound


def _streamed(module: ModuleType, bound: Callable[[Buffer], int]) -> Callable[[Buffer], memoryview]:
    def decode(payload: Buffer) -> memoryview:
        limit = _Limit.size_bytes
        if bound(payload) <= limit:
            return memoryview(module.decompress(payload))
        capacity = min(_FIRST_RATIO * len(payload), limit)
        while True:
            space = bytearray(capacity)
            try:
                del space[module.decompress_into(payload, space) :]
            except cramjam.DecompressionError as error:
                if _NO_SPACE not in str(error):
                    raise
                if capacity == limit:
                    raise _oversized() from None
                capacity = min(_FIRST_RATIO * capacity, limit)
            else:
                return memoryview(space)

    return decode


_DECODERS: dict[int, Callable[[Buffer], memoryview]] = {
    Compression.GZIP: _streamed(cramjam.gzip, _gzip_bound),
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _streamed(cramjam.lz4, _lz4_bound),
    Compression.ZSTD: _streamed(cramjam.zstd, zstd_bound),
}
