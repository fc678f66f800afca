import gzip
import resource
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import cramjam
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError, OversizedBatchError
from logfs.records import compression
from logfs.records._encoding import encode_records
from logfs.records.batch import decode_header, decode_records
from logfs.records.compression import (
    Compression,
    compress,
    decompress,
    decompressed_limit,
    limit_decompressed,
)
from logfs.records.encoded import EncodeOptions
from logfs.records.record import Record
from tests.records.strategies import codecs


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


PACKED = list(Compression)[1:]
TEXT = b"".join(b"line %d of a log that compresses well\n" % i for i in range(5000))
NOISE = b"".join(zlib.crc32(b"%d" % i).to_bytes(4, "big") for i in range(40_000))


@given(payload=st.binary(max_size=100), codec=codecs)
def test_comes_back(payload: bytes, codec: Compression) -> None:
    assert decompress(codec, memoryview(compress(codec, memoryview(payload)))) == payload


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("payload", [TEXT, NOISE, b""], ids=["text", "noise", "empty"])
def test_comes_back_in_blocks(codec: Compression, payload: bytes) -> None:
    packed = compress(codec, payload)
    assert decompress(codec, packed) == payload
    if payload == TEXT:
        assert len(packed) < len(payload) / 3


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Compression.GZIP, [-1, 1, 9]),
        (Compression.LZ4, [12, 9, 1, 17]),
        (Compression.ZSTD, [-7, 1, 9]),
    ],
)
def test_levels(codec: Compression, levels: list[int]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, TEXT, level)) == TEXT
    assert compress(codec, TEXT, levels[-1]) != compress(codec, TEXT, levels[1])


def test_kafkas_framings() -> None:
    assert gzip.decompress(compress(Compression.GZIP, TEXT)) == TEXT
    snappy = compress(Compression.SNAPPY, TEXT)
    assert snappy[:16].hex() == "82534e41505059000000000100000001"
    (size,) = struct.unpack_from(">i", snappy, 16)
    assert bytes(cramjam.snappy.decompress_raw(snappy[20 : 20 + size])) == TEXT[: 32 * 1024]
    assert compress(Compression.SNAPPY, b"") == snappy[:16]
    lz4 = compress(Compression.LZ4, TEXT)
    assert lz4[:7].hex() == "04224d18604082"
    assert lz4[-4:] == bytes(4)
    (size,) = struct.unpack_from("<I", lz4, 7)
    block = cramjam.lz4.decompress_block(lz4[11 : 11 + size], output_len=64 * 1024)
    assert bytes(block) == TEXT[: 64 * 1024]
    (size,) = struct.unpack_from("<I", compress(Compression.LZ4, NOISE), 7)
    assert size == 1 << 31 | 64 * 1024
    assert compress(Compression.ZSTD, TEXT)[:5].hex() == "28b52ffd00"


def test_other_writers_framings() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Compression.SNAPPY, raw) == TEXT
    blocks = struct.pack(">i", len(raw)) + raw
    header = compress(Compression.SNAPPY, b"")
    assert decompress(Compression.SNAPPY, header + blocks + blocks) == TEXT * 2
    assert bytes(decompress(Compression.GZIP, gzip.compress(b"a") + gzip.compress(b"b"))) == b"ab"
    assert decompress(Compression.ZSTD, bytes(cramjam.zstd.compress(TEXT))) == TEXT
    assert decompress(Compression.LZ4, bytes(cramjam.lz4.compress(TEXT))) == TEXT


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    with pytest.raises(CorruptRecordError, match=f"unknown compression codec {codec}"):
        decompress(codec, b"")
    with pytest.raises(ValueError, match="not a valid Compression"):
        compress(codec, b"")


@pytest.mark.parametrize("codec", PACKED)
def test_every_cut_is_found(codec: Compression) -> None:
    packed = compress(codec, TEXT[:200])
    for size in range(len(packed)):
        if codec is Compression.SNAPPY and size == 16:
            continue  # a stream of no blocks
        with pytest.raises(CorruptRecordError, match=codec.name.lower()):
            decompress(codec, packed[:size])


@given(
    codec=codecs,
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=4),
    garbage=st.binary(max_size=40),
)
@example(codec=Compression.SNAPPY, flips=[(991, 128)], garbage=b"")  # a length beyond the limit
def test_damage_gives_bytes_or_an_error(
    codec: Compression, flips: list[tuple[int, int]], garbage: bytes
) -> None:
    packed = bytearray(compress(codec, TEXT[:300]))
    for position, mask in flips:
        packed[position % len(packed)] ^= mask
    for payload in (bytes(packed), garbage, bytes(packed) + garbage):
        try:
            assert isinstance(decompress(codec, payload), memoryview)
        except OversizedBatchError as error:
            assert "when decompressed" in str(error)  # noqa: PT017
        except CorruptRecordError as error:
            assert "codec" in str(error) or codec.name.lower() in str(error)  # noqa: PT017


@pytest.fixture
def limit() -> Iterator[Callable[[int], None]]:
    before = decompressed_limit()
    yield limit_decompressed
    limit_decompressed(before)


@pytest.mark.parametrize("codec", PACKED)
def test_no_payload_grows_beyond_the_limit(
    codec: Compression, limit: Callable[[int], None]
) -> None:
    packed = compress(codec, bytes(300_000))
    limit(300_000)
    assert decompress(codec, packed) == bytes(300_000)
    limit(299_999)
    with pytest.raises(OversizedBatchError, match=r"299999 .* logfs.decompressed.max.bytes"):
        decompress(codec, packed)


@pytest.mark.parametrize("codec", PACKED)
def test_damage_close_to_the_limit_is_damage(
    codec: Compression, limit: Callable[[int], None]
) -> None:
    packed = compress(codec, bytes(300_000))
    limit(300_000)
    with pytest.raises(CorruptRecordError) as error:
        decompress(codec, packed[:-7])
    assert error.type is CorruptRecordError


@pytest.mark.parametrize("codec", PACKED)
def test_what_is_decompressed_is_in_memory_once(codec: Compression) -> None:
    size = 64 << 20
    packed = compress(codec, bytes(size))
    before = resident_bytes()
    plain = decompress(codec, packed)
    held = resident_bytes() - before
    assert len(plain) == size
    assert held < 1.4 * size


def test_the_encoder_compresses_nothing_that_would_be_too_large(
    limit: Callable[[int], None],
) -> None:
    limit(1 << 20)
    options = EncodeOptions(4 << 20, compression=Compression.ZSTD)
    for size, codec in ((1 << 19, Compression.ZSTD), (1 << 21, Compression.NONE)):
        (batch,) = encode_records([Record(0, 0, None, bytes(size))], 0, 0, options).batches
        assert decode_header(batch.data).compression is codec
        assert decode_records(batch.data)[0].value == bytes(size)


def test_a_bomb_costs_little() -> None:
    """32 KiB that claim to be several GiB are refused before they are unpacked."""
    block = (1 | 1 << 1 | (128 * 1024) << 3) - 1  # RLE, 128 KiB, not the last
    blocks = (block.to_bytes(3, "little") + b"a") * 10_000
    bomb = bytes.fromhex("28b52ffd0058") + blocks + b"\x01\0\0"
    assert compression.zstd_bound(bomb) == 10_000 * 128 * 1024


@given(payload=st.binary(max_size=30), count=st.integers(0, 20_000))
def test_the_bound_of_zstd_is_one(payload: bytes, count: int) -> None:
    plain = payload * count
    for packed in (compress(Compression.ZSTD, plain), bytes(cramjam.zstd.compress(plain, level=1))):
        assert compression.zstd_bound(packed) >= len(plain)
        assert compression.zstd_bound(packed + packed) >= 2 * len(plain)
        assert compression.zstd_bound(packed) < 10 * len(plain) + 600_000
