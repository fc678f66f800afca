"""The output of ``logfs plan``: the arithmetic of ``logfs.services.planning`` put into rows."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from logfs.cli.terminal.quantities import format_duration, format_number
from logfs.cli.terminal.tables import format_bytes
from logfs.config import StoreConfig, TopicConfig
from logfs.disk.posix import PosixDisk
from logfs.errors import InvalidConfigError, RecordTooLargeError, UnknownNameError
from logfs.library.owner import data_directory
from logfs.library.places import Place
from logfs.machine.host import current_host, system_clock
from logfs.records._indexing import IndexBuilder
from logfs.records.compression import decompress
from logfs.records.layout import HEADER_BYTES
from logfs.services.planning.footprint import Workload
from logfs.services.planning.measuring import Measured, measure, seconds_until_full
from logfs.services.planning.steady import CapacityPlan, plan_topic

Row = tuple[str, int | str, str]
"""Name, size in bytes or text, remark."""

_SCANNED_BYTES = 16 << 20
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Records:
    """The kind of records; see ``Workload``."""

    value_bytes: int
    key_bytes: int | None
    batch_records: int
    compression_ratio: float
    packed_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of a topic and why; ``scan_rate`` is bytes a second that one core recovers."""

    workload: Workload
    config: TopicConfig
    store: StoreConfig
    plan: CapacityPlan
    scan_rate: float

    @property
    def recovery_s(self) -> float:
        """Time that recovery takes."""
        threads = self.store.num_recovery_threads_per_data_dir
        return self.plan.recovery / self.scan_rate / min(threads, self.workload.partitions)

    def sections(self, disk: float | None, tail_s: float) -> list[tuple[str, list[Row]]]:
        """Return what is printed."""
        return [
            ("writing", self._writing()),
            ("disk", [*self._disk(), *self._lasts(disk)]),
            ("running", self._running(tail_s)),
        ]

    def _writing(self) -> list[Row]:
        workload, plan = self.workload, self.plan
        batch, segment = plan.batch, plan.segment
        plain = batch.records * (workload.value_bytes + (workload.key_bytes or 0))
        overhead = 100 * (batch.size_bytes / max(plain, 1) - 1)
        per_s = format_number(workload.records_per_s)
        per_day = int(plan.log_bytes_per_s * _DAY_S)
        return [
            ("records", f"{per_s}/s", f"in {workload.partitions} partitions"),
            ("a batch", batch.size_bytes,
             f"{batch.records} records, {HEADER_BYTES} bytes of header; {overhead:+.1f} % over "
             "keys and values"),
            ("log", int(plan.log_bytes_per_s), f"a second; {format_bytes(per_day)} a day"),
            ("a segment", segment.size_bytes,
             f"a partition rolls every {format_duration(segment.seconds)}, by {segment.rolled_by}"),
        ]  # fmt: skip

    def _disk(self) -> list[Row]:
        plan, config = self.plan, self.config
        kept = "a day: nothing limits it" if plan.is_endless else "what retention asks for"
        if config.is_compacted:
            kept = "the last record of each key, each in its own batch at worst"
        rows: list[Row] = [("kept", plan.kept, kept)]
        delay = format_duration(config.file_delete_delay_ms / 1000)
        if plan.dirty:
            rows.append(("dirty", plan.dirty, "not compacted yet, and the room to compact"))
        share = 100 * plan.indexes / max(plan.log, 1)
        rows += [
            ("granularity", plan.granularity, "segments go as a whole, at the next look"),
            (
                "waiting",
                plan.waiting,
                f"deleted, for {delay}",
            ),
            ("offset index", plan.offset_index, ""),
            ("time index", plan.time_index, ""),
            ("text index", plan.text_index, f"all indexes: {share:.2f} % of the log"),
            ("small files", plan.small, f"{plan.segments} segments, {plan.files} files"),
            ("disk needed", plan.disk, "and a tenth more"),
        ]
        return rows

    def _lasts(self, disk: float | None) -> list[Row]:
        if disk is None:
            return []
        plan = self.plan
        if plan.disk <= disk and not plan.is_endless:
            return [("room", int(disk), f"enough: {100 * plan.disk / disk:.0f} % of it are used")]
        grows = plan.log_bytes_per_s * (1 + plan.indexes / max(plan.log, 1))
        return [("room", int(disk), f"full after {format_duration(disk / grows)}")]

    def _running(self, tail_s: float) -> list[Row]:
        plan = self.plan
        tail = int(plan.log_bytes_per_s * tail_s)
        rate = format_bytes(int(self.scan_rate))
        rows: list[Row] = [
            ("page cache", tail, f"the last {format_duration(tail_s)}, for readers at the end"),
            ("descriptors", str(plan.descriptors), "at most; see LimitNOFILE"),
            ("recovery", format_duration(self.recovery_s),
             f"after a crash: {format_bytes(plan.recovery)} at {rate}/s a core (measured)"),
        ]  # fmt: skip
        if plan.cleaner_rounds:
            rows.append(("compaction", f"{plan.cleaner_rounds} rounds", "to read all keys once"))
        return rows

    def warnings(self) -> list[str]:
        """Return what should be thought about."""
        found = []
        if self.plan.is_endless:
            found.append("nothing is ever deleted: set retention.ms or retention.bytes")
        if self.plan.granularity > self.plan.kept:
            found.append(
                "segments are larger than what is to be kept: a smaller segment.bytes saves most "
                "of the granularity"
            )
        if self.workload.batch_records > self.plan.batch.records:
            found.append(
                f"max.message.bytes lets {self.plan.batch.records} of "
                f"{self.workload.batch_records} records into a batch"
            )
        return found

    def as_json(self, disk: float | None, tail_s: float) -> dict[str, Any]:
        """Return all of it, sizes in bytes."""
        plan = {name: value for name, value in asdict(self.plan).items() if name != "batch"}
        grows = self.plan.log_bytes_per_s * (1 + self.plan.indexes / max(self.plan.log, 1))
        return {
            "records_per_s": self.workload.records_per_s,
            "batch": {"records": self.plan.batch.records, "bytes": self.plan.batch.size_bytes},
            **plan,
            "log": self.plan.log,
            "disk": self.plan.disk,
            "full_after_s": None if disk is None or grows <= 0 else disk / grows,
            "page_cache": int(self.plan.log_bytes_per_s * tail_s),
            "recovery_s": self.recovery_s,
            "scan_bytes_per_s": self.scan_rate,
            "warnings": self.warnings(),
        }


def needs(
    rate: tuple[float, bool],
    records: Records,
    partitions: int,
    keys: int | None,
    settings: Mapping[str, str],
) -> Needs:
    """Work out what a topic needs.

    Args:
        rate: Records a second, or bytes of values (True).

    Raises:
        InvalidConfigError: A setting is not valid, or a compacted topic has no keys.
        RecordTooLargeError: A record does not fit into a batch.
    """
    config, store = TopicConfig.from_properties(settings), StoreConfig.from_properties({})
    if config.is_compacted and (keys is None or records.key_bytes is None):
        raise InvalidConfigError("cleanup.policy=compact: expected --key SIZE and --keys NUMBER")
    size = records.value_bytes + (records.key_bytes or 0)
    if size > config.max_message_bytes:  # before one is made to measure it
        raise RecordTooLargeError(
            f"a record of {size} bytes exceeds max.message.bytes={config.max_message_bytes}",
            size,
            config.max_message_bytes,
        )
    per_s = rate[0] / max(records.value_bytes, 1) if rate[1] else rate[0]
    workload = Workload(
        per_s,
        records.value_bytes,
        records.key_bytes,
        max(records.batch_records, 1),
        records.compression_ratio,
        partitions,
        keys,
        records.packed_ratio,
    )
    plan = plan_topic(workload, config, store, current_host().open_segments)
    return Needs(workload, config, store, plan, _scan_rate(plan.batch.data))


@dataclass(frozen=True, slots=True)
class Forecast:
    """The growth of a data directory; it is full in ``full_in_s`` seconds, or never (None)."""

    rows: list[dict[str, Any]]
    free_bytes: int
    full_in_s: float | None

    def as_json(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"topics": self.rows, "free": self.free_bytes, "full_in_s": self.full_in_s}


def forecast(place: Place) -> Forecast:
    """Measure a data directory; raise UnknownNameError if more is named."""
    if place.address:
        raise UnknownNameError("expected a data directory or a mount point, no topic in it")
    disk, now_ms = PosixDisk(data_directory(place)), system_clock().now_ms()
    store = StoreConfig.from_properties({})
    partitions = measure(disk, store)
    topics: dict[str, list[Measured]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic_partition.topic, []).append(partition)
    found = disk.free()
    free = found.f_bavail * found.f_frsize
    rows = [_row(topic, parts, now_ms, store) for topic, parts in topics.items()]
    return Forecast(rows, free, seconds_until_full(partitions, free, now_ms, store))


def _row(topic: str, parts: list[Measured], now_ms: int, store: StoreConfig) -> dict[str, Any]:
    most = sum(part.most_bytes(now_ms, store) for part in parts)
    return {
        "topic": topic,
        "partitions": len(parts),
        "records": sum(part.records for part in parts),
        "records_per_s": sum(part.records / part.seconds(now_ms) for part in parts),
        "bytes_per_s": sum(part.bytes_per_s(now_ms) for part in parts),
        "bytes": sum(part.log_bytes + part.index_bytes for part in parts),
        "segments": sum(part.segments for part in parts),
        "most_bytes": None if most == float("inf") else most,
        "seconds": max(part.seconds(now_ms) for part in parts),
    }


def _scan_rate(batch: bytes) -> float:
    """Measure how fast this machine checks batches of a kind."""
    copies = max(_SCANNED_BYTES // len(batch), 1)
    data = bytearray(batch * copies)
    for number in range(copies):
        at = number * len(batch)
        records = int.from_bytes(batch[57:61], "big")
        data[at : at + 8] = (number * records).to_bytes(8, "big")
    best = 0.0
    for _ in range(3):
        builder, started_s = IndexBuilder(0, 4096, decompress), time.perf_counter()
        builder.feed(data, 0, len(data), True)
        best = max(best, builder.file_position / (time.perf_counter() - started_s))
    return best
