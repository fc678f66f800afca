"""Stores that a broker filled, read-only: LocalTieredStorage, and Aiven's plugin."""

import base64
import json
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cramjam
import pytest

from logfs.disk.posix import PosixDisk
from logfs.log.checkpoints import read_partition_metadata
from logfs.log.names import format_topic_id
from tests.cli.conftest import Call
from tests.cli.conftest import logfs as logfs
from tests.mounting import Mount
from tests.remote.buckets import unique_id
from tests.remote.stored import Stored, make_stored

ADDRESSES = ["0", "0.jsonl", "0@offset=1500.tsv", "0@offset=10..offset=2500", "1"]
KINDS = ("log", "index", "timeindex", "txnindex", "snapshot")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return make_stored(tmp_path_factory.mktemp("stored"))


def new_id() -> str:
    return base64.urlsafe_b64encode(unique_id()).decode().rstrip("=")


def topic_id(stored: Stored) -> str:
    found = read_partition_metadata(PosixDisk(stored.data), "orders-0")
    assert found is not None
    return format_topic_id(found)


def bases(stored: Stored, number: int) -> list[str]:
    """The base offsets of the sealed segments: 20 digits."""
    logs = sorted((stored.data / f"orders-{number}").glob("*.log"))
    return [path.stem for path in logs if path.stat().st_size]


def local_tiered(stored: Stored, root: Path) -> Path:
    """Make what LocalTieredStorage makes. Source: Kafka RemoteLogSegmentFileset."""
    for number in (0, 1):
        target = root / f"orders-{number}-{topic_id(stored)}"
        target.mkdir(parents=True)
        for base in bases(stored, number):
            stem = f"{base}-{new_id()}"
            for kind in KINDS:
                source = stored.data / f"orders-{number}" / f"{base}.{kind}"
                if source.exists():
                    (target / f"{stem}.{kind}").write_bytes(source.read_bytes())
            (target / f"{stem}.leader_epoch_checkpoint").write_text("0\n1\n0 0\n")
    return root


def packed(data: bytes, chunk_bytes: int) -> tuple[bytes, dict[str, object]]:
    """Compress a segment as Aiven's plugin does; return the object, and its index of chunks."""
    starts = range(0, len(data), chunk_bytes)
    chunks = [bytes(cramjam.zstd.compress(data[n : n + chunk_bytes])) for n in starts]
    sizes = [len(chunk) for chunk in chunks]
    index: dict[str, object] = {"originalChunkSize": chunk_bytes, "originalFileSize": len(data)}
    if len(set(sizes)) == 1:
        index |= {"type": "fixed", "transformedChunkSize": sizes[0]}
        return b"".join(chunks), {**index, "finalTransformedChunkSize": sizes[-1]}
    base = min(sizes[:-1])
    width = max((max(size - base for size in sizes[:-1]).bit_length() + 7) // 8, 1)
    coded = struct.pack(">iib", len(sizes), base, width)
    coded += b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1])
    coded += struct.pack(">i", sizes[-1])
    text = base64.b64encode(coded).decode()
    return b"".join(chunks), {**index, "type": "variable", "transformedChunks": text}


def aiven(stored: Stored, root: Path, chunk_bytes: int = 0, **more: object) -> Path:
    """Make what Aiven's plugin makes, compressed in chunks or not. Source: SegmentManifestV1."""
    for number in (0, 1):
        target = root / f"orders-{topic_id(stored)}" / str(number)
        target.mkdir(parents=True)
        for base in bases(stored, number):
            source, stem = stored.data / f"orders-{number}", f"{base}-{new_id()}"
            data, indexes, where = (source / f"{base}.log").read_bytes(), b"", {}
            for field, kind in (("offset", "index"), ("timestamp", "timeindex")):
                part = (source / f"{base}.{kind}").read_bytes()
                where[field] = {"position": len(indexes), "size": len(part)}
                indexes += part
            where["producerSnapshot"] = {"position": len(indexes), "size": 0}
            chunks: object = {
                "type": "fixed",
                "originalChunkSize": 4194304,
                "originalFileSize": len(data),
            }
            manifest: dict[str, object] = {"version": "1", "chunkIndex": chunks}
            manifest |= {"segmentIndexes": where, "compression": False}
            if chunk_bytes:
                data, manifest["chunkIndex"] = packed(data, chunk_bytes)
                manifest["compression"] = True
            manifest |= more
            (target / f"{stem}.log").write_bytes(data)
            (target / f"{stem}.indexes").write_bytes(indexes)
            (target / f"{stem}.rsm-manifest").write_text(json.dumps(manifest))
        (target / f"{0:020}-{new_id()}.log").write_bytes(b"a copy that continues")
    return root


@pytest.mark.parametrize(
    "make",
    [local_tiered, aiven, partial(aiven, chunk_bytes=1000), partial(aiven, chunk_bytes=1 << 22)],
    ids=["local", "plain", "chunks", "one-chunk"],
)
def test_what_a_broker_has_tiered_is_read(
    logfs: Call, stored: Stored, tmp_path: Path, make: Callable[[Stored, Path], Path]
) -> None:
    root = make(stored, tmp_path / "b")
    url = f"file://{root}"
    for address in ADDRESSES:
        expected = logfs("cat", f"{stored.data}/orders/{address}")
        assert expected.out
        assert logfs("cat", f"{url}/orders/{address}") == expected
    outcome = logfs("verify", url)
    assert outcome.status == 0, outcome.out
    outcome = logfs("remote", "gc", url)
    assert "no store of logfs" in outcome.errors[0]


@pytest.mark.fuse
def test_what_a_broker_has_tiered_is_mounted(stored: Stored, tmp_path: Path) -> None:
    url = f"file://{local_tiered(stored, tmp_path / 'broker')}"
    with (
        Mount(stored.data, tmp_path / "a", "ro", log_directory=tmp_path) as origin,
        Mount(tmp_path / "none", tmp_path / "b", "ro", url=url) as found,
    ):
        for address in ADDRESSES:
            expected = (origin.point / "orders" / address).read_bytes()
            assert (found.point / "orders" / address).read_bytes() == expected


FRAME = b"\x28\xb5\x2f\xfd"


def damage_chunk(stored: Stored, root: Path, segment: int, share: float) -> None:
    """Make a chunk of partition 0 one that does not decompress."""
    target = sorted((root / f"orders-{topic_id(stored)}" / "0").glob("*.rsm-manifest"))[segment]
    log = target.with_suffix(".log")
    data = bytearray(log.read_bytes())
    data[data.index(FRAME, int(len(data) * share))] ^= 0xFF
    log.write_bytes(data)


@pytest.mark.expect_log("cannot be read")
@pytest.mark.parametrize("share", [0, 0.5, 0.9])
def test_a_damaged_chunk_fails_the_reads_of_its_segment(
    logfs: Call, stored: Stored, tmp_path: Path, share: float
) -> None:
    root = aiven(stored, tmp_path, chunk_bytes=4000)
    damage_chunk(stored, root, 1, share)
    whole = logfs("cat", f"{stored.data}/orders/0").out
    outcome = logfs("cat", f"file://{root}/orders/0")
    assert outcome.status == 1
    assert "does not decompress" in outcome.errors[-1]
    assert outcome.errors[-1].endswith("read on with @offset=2000")
    lines = outcome.out.count(b"\n")
    assert whole.startswith(outcome.out)
    assert lines == 1000 if not share else 1000 + 1000 * share - 50 < lines < 2000
    for offset in (0, 500, 2000, 2500):
        name = f"0@offset={offset}..offset={offset + 400}"
        expected = logfs("cat", f"{stored.data}/orders/{name}").out
        found = logfs("cat", f"file://{root}/orders/{name}")
        assert (found.status, found.out) == (0, expected)
    assert logfs("cat", f"file://{root}/orders/1").out
    outcome = logfs("verify", f"file://{root}")
    assert outcome.status == 1


@pytest.mark.expect_log("no whole batch")
def test_the_log_ends_before_a_damaged_chunk_of_its_last_segment(
    logfs: Call, stored: Stored, tmp_path: Path
) -> None:
    root = aiven(stored, tmp_path, chunk_bytes=4000)
    damage_chunk(stored, root, 2, 0.5)
    outcome = logfs("cat", f"file://{root}/orders/0")
    assert logfs("cat", f"{stored.data}/orders/0").out.startswith(outcome.out)
    assert 2400 < outcome.out.count(b"\n") < 2600
    assert logfs("verify", f"file://{root}").status == 1


@pytest.mark.expect_log("could not be loaded")
@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"encryption": {"dataKey": "k", "aad": "a"}}, "has encrypted"),
        ({"compression": True}, "no manifest"),
        ({"version": "2"}, "is not known"),
    ],
)
def test_segments_that_cannot_be_read_are_refused_by_name(
    logfs: Call, stored: Stored, tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    outcome = logfs("cat", f"file://{aiven(stored, tmp_path, **more)}/orders/0")
    assert outcome.status == 1
    assert why in outcome.errors[0]
    assert ".rsm-manifest" in outcome.errors[0]
