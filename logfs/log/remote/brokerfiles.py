"""Segments that a Kafka broker has tiered: the files of a partition directory made of a listing.

Kafka's LocalTieredStorage has a directory for each partition, and an object for each file:

    TOPIC-PARTITION-TOPICID/BASE20-SEGMENTID.log .index .timeindex .txnindex .snapshot
                                            .leader_epoch_checkpoint

Aiven's plugin has logfs's own directories, and two objects beside the ``.log``:

    TOPIC-TOPICID/PARTITION/BASE20-SEGMENTID.log .indexes .rsm-manifest

The manifest is JSON. It says where the indexes are in ``.indexes``, and whether the ``.log`` is
encrypted or compressed. An encrypted one is refused. A compressed one has its ``chunkIndex``: how
many bytes of the segment each chunk has, and where each zstd frame ends. ``transformedChunks`` is
base64 of:

    count  int32    of the chunks
    base   int32    added to each value     (these three only if there are several chunks)
    width  int8     bytes of each value, 1 to 4
    values          the bytes of each chunk but the last
    last   int32    the bytes of the last chunk

A broker makes several copies of one segment after a change of leaders. The one that was stored last
is shown.

Sources: Kafka RemoteLogSegmentFileset; Aiven SegmentManifestV1, ObjectKeyFactory,
ChunkSizesBinaryCodec, FixedSizeChunkIndex.
"""

import base64
import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from logfs.disk.remote.chunkedfile import ChunkedPart
from logfs.disk.remote.objects import ObjectStat, ObjectStore
from logfs.disk.remote.overlay import RemotePart
from logfs.disk.remote.treedisk import FoundFile, MadeFile
from logfs.errors import UnsupportedFormatError
from logfs.log import names
from logfs.log.checkpoints import format_partition_metadata
from logfs.log.names import FileKind, format_segment_file
from logfs.log.remote.headfiles import inode_of
from logfs.log.remote.keys import PartitionPlace
from logfs.log.remote.parallel import for_each
from logfs.records.compression import Compression, decompress
from logfs.records.jsontext import decode_json

MOST_MANIFEST_BYTES = 8 << 20
_OBJECT = re.compile(r"([0-9]{20})-[a-zA-Z0-9_-]{22}\.([a-z_-]+)")
_MANIFEST = "rsm-manifest"
_OWN_OBJECTS: Mapping[str, FileKind] = {
    "log": FileKind.LOG,
    "index": FileKind.OFFSET_INDEX,
    "timeindex": FileKind.TIME_INDEX,
    "txnindex": FileKind.TXN_INDEX,
}
_IN_INDEXES: Mapping[str, FileKind] = {
    "offset": FileKind.OFFSET_INDEX,
    "timestamp": FileKind.TIME_INDEX,
    "transaction": FileKind.TXN_INDEX,
}


class LocalTieredPlace(PartitionPlace):
    """The directory in which LocalTieredStorage keeps a partition."""

    __slots__ = ()

    @property
    def prefix(self) -> str:
        """The part that all its keys begin with."""
        topic, rest = super().prefix.split("/", 1)
        stem, topic_id = topic[:-23], topic[-22:]
        return f"{stem}-{rest.rstrip('/')}-{topic_id}/"


class BrokerFiles(NamedTuple):
    """The directory of one partition, as one listing found it.

    Attributes:
        files: By name.
        version: Differs from that of another listing with other objects.
    """

    place: PartitionPlace
    files: Mapping[str, FoundFile]
    mtime_ms: int
    version: str

    @property
    def inode(self) -> int:
        """Which directory it is."""
        return inode_of(self.place.prefix.encode())

    def find(self, name: str) -> FoundFile | None:
        """Return a file; None if there is none of this name."""
        return self.files.get(name)

    def names(self) -> Iterable[str]:
        """Return the names of all files."""
        return self.files

    def size_bytes(self) -> int:
        """Return the bytes of its ``.log`` files."""
        parts = [part for part in self.files.values() if not isinstance(part, MadeFile)]
        return sum(part.size for part in parts)


class _Segment(NamedTuple):
    """The objects of one copy of a segment, by the ends of their names."""

    modified_ms: int
    objects: dict[str, ObjectStat]


def list_broker_files(
    store: ObjectStore, place: PartitionPlace, known: BrokerFiles | None
) -> BrokerFiles | None:
    """List what a broker has tiered of a partition; None if that is nothing.

    Args:
        store: The store.
        place: The partition.
        known: An earlier listing; it is returned if nothing has changed.

    Raises:
        UnsupportedFormatError: A segment is encrypted, or its manifest does not parse.
        OSError: The store failed.
    """
    objects = store.list_level(place.prefix).objects
    text = "".join(f"{stat.key} {stat.etag}\n" for stat in objects)
    version = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    if known is not None and known.version == version:
        return known
    copies = _segments(place, objects)
    if not copies:
        return None
    files: dict[str, FoundFile] = {}
    manifests: dict[int, Mapping[str, Any]] = {}

    def read(row: tuple[int, _Segment]) -> None:
        if _MANIFEST in row[1].objects:
            key = row[1].objects[_MANIFEST].key
            manifests[row[0]] = _manifest(store.get(key, MOST_MANIFEST_BYTES)[0], store.url, key)

    for_each(read, copies.items())
    for base_offset, segment in sorted(copies.items()):
        files |= _files_of(base_offset, segment, manifests.get(base_offset))
    mtime_ms = max(segment.modified_ms for segment in copies.values())
    if known is not None:
        mtime_ms = max(mtime_ms, known.mtime_ms + 1)
    metadata = format_partition_metadata(place.topic_id)
    inode = inode_of(f"{place.prefix}{names.PARTITION_METADATA}".encode())
    files[names.PARTITION_METADATA] = MadeFile(metadata, mtime_ms, inode)
    return BrokerFiles(place, files, mtime_ms, version)


def _segments(place: PartitionPlace, objects: Iterable[ObjectStat]) -> dict[int, _Segment]:
    """Return the last whole copy of each segment, by base offset."""
    copies: dict[str, dict[str, ObjectStat]] = {}
    for stat in objects:
        name = stat.key.removeprefix(place.prefix)
        match = _OBJECT.fullmatch(name)
        if match is not None:
            copies.setdefault(name.partition(".")[0], {})[match[2]] = stat
    found: dict[int, _Segment] = {}
    is_local = isinstance(place, LocalTieredPlace)
    for stem, parts in copies.items():
        if "log" not in parts or not (is_local or _MANIFEST in parts):
            continue  # a copy that is under way, or was interrupted
        segment = _Segment(max(stat.modified_ms for stat in parts.values()), parts)
        base_offset = int(stem[:20])
        other = found.get(base_offset)
        if other is None or other.modified_ms < segment.modified_ms:
            found[base_offset] = segment
    return found


def _files_of(
    base_offset: int, segment: _Segment, manifest: Mapping[str, Any] | None
) -> dict[str, FoundFile]:
    files: dict[str, FoundFile] = {}
    for end, kind in _OWN_OBJECTS.items():
        stat = segment.objects.get(end)
        if stat is not None:
            files[format_segment_file(base_offset, kind)] = _part(stat, 0, stat.size)
    if manifest is not None and manifest.get("compression"):
        whole = _part(segment.objects["log"], 0, segment.objects["log"].size)
        files[format_segment_file(base_offset, FileKind.LOG)] = _chunked(whole, manifest)
    if manifest is not None:
        indexes = segment.objects.get("indexes")
        for field, kind in _IN_INDEXES.items():
            where = manifest["segmentIndexes"].get(field)
            is_there = where is not None and (where["size"] or kind is not FileKind.TXN_INDEX)
            if indexes is not None and is_there:
                name = format_segment_file(base_offset, kind)
                files[name] = _part(indexes, where["position"], where["size"])
    return files


def _part(stat: ObjectStat, start: int, size: int) -> RemotePart:
    inode = inode_of(f"{stat.key} {stat.etag} {start}".encode())
    return RemotePart(stat.key, start, size, stat.size, stat.modified_ms, inode)


def _manifest(data: bytes, url: str, key: str) -> Mapping[str, Any]:
    """Parse a manifest; refuse what cannot be read."""
    address = f"{url}/{key}"

    def check(manifest: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool, bool]:
        is_known = str(manifest["version"]) == "1" and "segmentIndexes" in manifest
        is_encrypted = "encryption" in manifest
        if manifest.get("compression"):
            _chunk_sizes(manifest["chunkIndex"])
        return manifest, is_known, is_encrypted

    try:
        manifest, is_known, is_encrypted = decode_json(data, check)
    except ValueError:
        raise UnsupportedFormatError(f"{address}: it is no manifest of Aiven's plugin") from None
    if not is_known:
        raise UnsupportedFormatError(f"{address}: the version of the manifest is not known")
    if is_encrypted:
        raise UnsupportedFormatError(
            f"{address}: Aiven's plugin has encrypted the segment, and logfs has no key"
        )
    return manifest


def _chunked(whole: RemotePart, manifest: Mapping[str, Any]) -> ChunkedPart:
    index = manifest["chunkIndex"]
    ends = tuple(itertools.accumulate(_chunk_sizes(index)))
    return ChunkedPart(
        whole, index["originalFileSize"], index["originalChunkSize"], ends, _decompress
    )


def _decompress(chunk: bytes) -> memoryview:
    return decompress(Compression.ZSTD, chunk)


def _chunk_sizes(index: Mapping[str, Any]) -> list[int]:
    """Return the bytes of each chunk of an object.

    Raises:
        ValueError, KeyError, TypeError: The index does not parse, or its numbers do not agree.
    """
    chunk_bytes, size = int(index["originalChunkSize"]), int(index["originalFileSize"])
    count = -(-size // chunk_bytes) if chunk_bytes > 0 else 0
    if index["type"] == "fixed":
        sizes = [int(index["transformedChunkSize"])] * max(count - 1, 0)
        sizes += [int(index["finalTransformedChunkSize"])]
    else:
        sizes = _decode_sizes(base64.b64decode(index["transformedChunks"], validate=True))
    if len(sizes) != count or min(sizes) <= 0:
        raise ValueError(f"{len(sizes)} chunks; expected {count}")
    return sizes


def _decode_sizes(data: bytes) -> list[int]:
    def number(start: int, length: int) -> int:
        if start + length > len(data):
            raise ValueError(f"{len(data)} bytes of chunk sizes; expected {start + length}")
        return int.from_bytes(data[start : start + length], "big")

    count = number(0, 4)
    if count <= 1:
        return [number(4, 4)] * count
    base, width = number(4, 4), number(8, 1)
    end = 9 + (count - 1) * width
    last = number(end, 4)
    return [*(base + number(start, width) for start in range(9, end, width)), last]
