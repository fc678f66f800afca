"""What is planned is what comes: the sizes of files, what retention leaves, when a disk is full."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from logfs.config import StoreConfig, TopicConfig
from logfs.errors import RecordTooLargeError
from logfs.services.planning.footprint import Workload, batch_shape, filled_segment, segment_shape
from logfs.services.planning.measuring import measure, seconds_until_full
from logfs.services.planning.steady import plan_topic
from logfs.services.retention.logs import apply_retention
from logfs.types import View
from tests.fakes import START_MS
from tests.log.support import Bench, batches_in

SMALL = {"internal.segment.bytes": "100000", "index.interval.bytes": "2048"}
STORE = StoreConfig.from_properties({})


def config_of(properties: Mapping[str, str]) -> TopicConfig:
    return TopicConfig.from_properties(properties)


def write(bench: Bench, workload: Workload, batches: int) -> None:
    """Write batches at the rate of a workload, each as soon as its last record is there."""
    view = View.TEXT if workload.key_bytes is None else View.TSV
    line = b"v" * workload.value_bytes + b"\n"
    if workload.key_bytes is not None:
        line = b"k" * workload.key_bytes + b"\t" + line
    writer = bench.writer(view)
    for _ in range(batches):
        bench.now_ms += round(1000 * workload.batch_records / workload.partition_records_per_s)
        writer.write(line * workload.batch_records, bench.now_ms)


def sizes(bench: Bench, kind: str) -> list[int]:
    """Return the sizes of the files of a kind of the sealed segments."""
    return [len(bench.file(name)) for name in bench.names(kind)[:-1]]


WORKLOADS = {
    "a line at a time": Workload(50, 100),
    "short lines": Workload(500, 3, batch_records=4),
    "many at a time": Workload(2000, 90, batch_records=100),
    "keys": Workload(100, 40, key_bytes=12, batch_records=5),
    "long lines": Workload(20, 5000),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_segment_has_the_size_that_was_planned(name: str) -> None:
    workload, config = WORKLOADS[name], config_of(SMALL)
    batch = batch_shape(workload, config)
    segment = segment_shape(batch, workload.records_per_s / batch.records, config)
    bench = Bench(SMALL)
    write(bench, workload, 3 * segment.batches + 1)
    assert segment.rolled_by == "segment.bytes"
    # To the entry: nothing here is estimated.
    assert sizes(bench, ".log") == [segment.size_bytes] * 3
    assert sizes(bench, ".index") == [segment.offset_index_bytes] * 3
    assert sizes(bench, ".textindex") == [segment.text_index_bytes] * 3
    assert sizes(bench, ".timeindex") == [segment.time_index_bytes] * 3


def test_a_segment_is_rolled_by_the_first_limit_it_reaches() -> None:
    workload = Workload(2, 100)
    for properties, rolled_by in (
        ({"segment.ms": "60000"}, "segment.ms"),
        ({"segment.index.bytes": "120"}, "segment.index.bytes"),
    ):
        config = config_of(SMALL | properties)
        segment = segment_shape(batch_shape(workload, config), 2, config)
        assert segment.rolled_by == rolled_by
        bench = Bench(SMALL | properties)
        write(bench, workload, 4 * segment.batches)
        assert sizes(bench, ".log")[0] == pytest.approx(segment.size_bytes, rel=0.05)


def test_compression_and_the_limit_of_a_batch() -> None:
    config = config_of({"max.message.bytes": "1000"})
    plain = batch_shape(Workload(1, 100, batch_records=50), config)
    assert plain.records == 8
    half = batch_shape(Workload(1, 100, batch_records=50, compression_ratio=0.5), config)
    assert half.size_bytes - 61 == pytest.approx((plain.size_bytes - 61) / 2, abs=1)
    with pytest.raises(RecordTooLargeError):
        batch_shape(Workload(1, 2000), config)


@pytest.mark.parametrize(
    "properties",
    [
        {"retention.ms": "600000"},
        {"retention.bytes": "400000", "retention.ms": "-1"},
        {"retention.ms": "600000", "segment.ms": "100000", "file.delete.delay.ms": "200000"},
        {"retention.ms": "300000", "retention.bytes": "10000000"},
    ],
)
def test_retention_leaves_no_more_than_was_planned(properties: dict[str, str]) -> None:
    """A log is written for long, with the retention task at its times: the most there ever was."""
    properties = SMALL | {"file.delete.delay.ms": "60000"} | properties
    workload, config = Workload(4, 100), config_of(properties)
    plan = plan_topic(workload, config, STORE, 128)
    bench, most, most_index = Bench(properties), 0, 0
    check_ms = STORE.log_retention_check_interval_ms
    for _ in range(8):
        until = bench.now_ms + check_ms
        while bench.now_ms < until:
            write(bench, workload, 50)
            bench.log.remove_due_files(bench.now_ms)
            files = {name: len(bench.file(name)) for name in bench.names()}
            most = max(most, sum(n for name, n in files.items() if ".log" in name))
            sealed = [n for name, n in files.items() if "index" in name and n < 10_000_000]
            most_index = max(most_index, sum(sealed))
        apply_retention(bench.log, bench.now_ms)
    assert 0.75 * plan.log < most <= plan.log
    assert 0.65 * plan.indexes < most_index <= 1.05 * plan.indexes


def test_the_sizes_of_a_plan_add_up() -> None:
    config = config_of({"retention.ms": "86400000"})
    one = plan_topic(Workload(1000, 100, batch_records=10), config, STORE, 128)
    four = plan_topic(Workload(4000, 100, batch_records=10, partitions=4), config, STORE, 128)
    assert (four.disk, four.segments, four.log_bytes_per_s) == (
        4 * one.disk, 4 * one.segments, 4 * one.log_bytes_per_s,
    )  # fmt: skip
    assert one.kept == pytest.approx(one.log_bytes_per_s * 86_400, rel=0.01)
    assert one.disk == one.log + one.indexes + one.small
    assert one.recovery == one.segment.size_bytes
    endless = plan_topic(Workload(1000, 100), config_of({"retention.ms": "-1"}), STORE, 128)
    assert endless.is_endless
    assert endless.kept == pytest.approx(endless.log_bytes_per_s * 86_400, rel=0.01)


def test_a_compacted_topic_is_bounded_by_its_keys() -> None:
    config = config_of({"cleanup.policy": "compact"})
    few, many = (
        plan_topic(Workload(100, 50, key_bytes=10, keys=keys), config, STORE, 128)
        for keys in (1_000_000, 20_000_000)
    )
    batch = batch_shape(Workload(100, 50, key_bytes=10), config)
    assert few.kept == 1_000_000 * batch.size_bytes
    assert (few.cleaner_rounds, many.cleaner_rounds) == (1, 4)
    assert few.dirty > few.kept
    assert few.text_index > 64 * 1_000_000


def test_a_directory_is_measured() -> None:
    bench = Bench(SMALL | {"retention.ms": "3600000"})
    workload = Workload(10, 100)
    write(bench, workload, 3000)
    assert len(bench.names(".log")) > 2
    [found] = measure(bench.disk, STORE)
    assert (found.records, found.has_config) == (3000, True)
    assert found.log_bytes == sum(len(bench.file(name)) for name in bench.names(".log"))
    assert (found.first_ms, found.last_ms) == (START_MS + 100, bench.now_ms)
    assert found.seconds(bench.now_ms) == pytest.approx(300, rel=0.01)
    plan = plan_topic(workload, config_of(SMALL | {"retention.ms": "3600000"}), STORE, 128)
    assert found.bytes_per_s(bench.now_ms) == pytest.approx(
        plan.log_bytes_per_s * (1 + plan.indexes / plan.log), rel=0.03
    )
    assert found.most_bytes(bench.now_ms, STORE) == pytest.approx(plan.log + plan.indexes, rel=0.1)
    # Batches only, as a broker's tools would count them.
    assert found.records == sum(
        header.record_count
        for name in bench.names(".log")
        for _, header in batches_in(bench.file(name))
    )


def test_the_time_until_a_disk_is_full_is_calculated() -> None:
    endless, bounded = Bench({"retention.ms": "-1"}), Bench(SMALL | {"retention.ms": "60000"})
    for bench in (endless, bounded):
        write(bench, Workload(10, 100), 1000)
    now_ms = endless.now_ms
    [one], [other] = (measure(bench.disk, STORE) for bench in (endless, bounded))
    rate = one.bytes_per_s(now_ms)
    assert seconds_until_full([one], 10**9, now_ms, STORE) == pytest.approx(10**9 / rate)
    assert seconds_until_full([other], 10**9, now_ms, STORE) is None
    both = seconds_until_full([one, other], 10**9, now_ms, STORE)
    grown = other.most_bytes(now_ms, STORE) - other.log_bytes - other.index_bytes
    assert both == pytest.approx((10**9 - grown) / rate, rel=0.001)
    assert measure(Bench().disk, STORE)[0].seconds(now_ms) == 1.0


@pytest.mark.parametrize("limit", [{"retention.bytes": "500000"}, {"retention.ms": "60000"}])
def test_local_retention_bounds_the_disk_of_a_topic_in_an_object_store(
    limit: dict[str, str],
) -> None:
    endless = {"retention.ms": "-1"}
    bench = Bench(SMALL | endless)
    write(bench, Workload(10, 100), 1000)
    [measured] = measure(bench.disk, STORE)
    assert measured.most_bytes(bench.now_ms, STORE) == float("inf")
    local = {f"local.{key}": value for key, value in limit.items()}
    copied = config_of(SMALL | endless | local | {"remote.storage.enable": "true"})
    limited = config_of(SMALL | endless | limit)
    bounds = {
        replace(measured, config=config).most_bytes(bench.now_ms, STORE)
        for config in (copied, limited)
    }
    assert len(bounds) == 1
    assert float("inf") not in bounds


def test_a_segment_of_one_batch_has_no_index_entries() -> None:
    config = config_of(SMALL)
    batch = batch_shape(Workload(1, 10), config)
    empty = filled_segment(batch, 1, 1, config)
    assert (empty.offset_index_bytes, empty.text_index_bytes) == (0, 16)


def test_packing_makes_all_but_the_active_segment_smaller() -> None:
    workload = Workload(50, 100, packed_ratio=0.1)
    plain = plan_topic(workload, config_of(SMALL), STORE, 10)
    packed = {**SMALL, "logfs.sealed.compression.type": "zstd"}
    plan = plan_topic(workload, config_of(packed), STORE, 10)
    active = plain.segment.size_bytes
    assert plan.kept == pytest.approx(active + (plain.kept - active) / 10, abs=1)
    limited = plan_topic(workload, config_of({**packed, "retention.bytes": "500000"}), STORE, 10)
    assert limited.kept == 500_000, "retention.bytes is of the packed segments"
    endless = plan_topic(workload, config_of({**packed, "retention.ms": "-1"}), STORE, 10)
    assert (endless.is_endless, endless.waiting > 0) == (True, True)
