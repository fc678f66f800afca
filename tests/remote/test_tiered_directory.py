"""A data directory whose segments are in the store: checks, facts and settings."""

from datetime import UTC

import pytest

from logfs.config import TopicConfig
from logfs.errors import InvalidConfigError
from logfs.log.reading.address import parse_partition_name
from logfs.services.meta import partition_meta
from logfs.services.overview import topic_overview
from logfs.services.verifying.segments import verify_segment
from logfs.services.verifying.verify import verify
from logfs.services.views.files import FixedFile, GrowingFile
from logfs.services.views.resolve import resolve
from logfs.types import View
from tests.log.support import Bench, text_of
from tests.remote.tiering import TIERED, TieredBench, no_throttle


def test_a_check_of_the_directory_misses_no_tiered_segment() -> None:
    bench = TieredBench()
    bench.fill(40)
    bench.tier_all()
    bench.store.close(bench.now_ms)
    found = verify(
        bench.disk,
        TopicConfig(),
        None,
        lambda tasks: [verify_segment(bench.disk, task) for task in tasks],
        lambda _: None,
        bench.boot,
    )
    assert found.findings == []
    assert found.segments == 1
    bench.disk.remove("t-0/logfs.tiered")
    found = verify(
        bench.disk,
        TopicConfig(),
        None,
        lambda tasks: [verify_segment(bench.disk, task) for task in tasks],
        lambda _: None,
        bench.boot,
    )
    assert any("missing" in finding.problem for finding in found.findings)


def test_a_status_and_the_facts_of_a_topic_ask_no_store() -> None:
    bench = TieredBench()
    bench.fill(40)
    bench.objects.fail_next("put")
    with pytest.raises(OSError, match="injected"):
        bench.tiering.copy(no_throttle)
    bench.tiering.status.error = "the store is away"
    facts = topic_overview(bench.store, "t", bench.now_ms)
    assert any("the store is away" in warning for warning in facts.warnings)
    bench.tier_all()
    bench.objects.counts.clear()
    topic_overview(bench.store, "t", bench.now_ms)
    remote = partition_meta(bench.log)["remote"]
    assert not bench.objects.counts
    assert remote["segments"] == remote["remote_only_segments"] == len(bench.head.entries)
    assert remote["lag"]["segments"] == 0


def test_a_topic_needs_a_store_to_be_tiered() -> None:
    bench = Bench()
    with pytest.raises(InvalidConfigError, match="Tiered Storage functionality is disabled"):
        bench.store.create_topic("x", 1, TIERED, bench.now_ms)
    with pytest.raises(InvalidConfigError, match="Tiered Storage functionality is disabled"):
        bench.store.alter_topic("t", {"remote.storage.enable": "true"})


@pytest.mark.allow_log("could not be loaded")
def test_a_directory_that_has_lost_its_store_is_offline_and_loses_nothing() -> None:
    bench = TieredBench()
    text = bench.fill(40)
    bench.tier_all()
    bench.store.close(bench.now_ms)
    plain = Bench(disk=bench.disk)
    assert plain.log.offline is not None
    assert "logfs.remote" in plain.log.offline
    plain.store.close(plain.now_ms)
    bench.store = bench.open()
    assert text_of(bench.log) == text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cleanup.policy": "compact"}, "unsupported for the compacted topics"),
        ({"retention.ms": "1000", "local.retention.ms": "-1"}, "Value must not be -1"),
        ({"retention.ms": "1000", "local.retention.ms": "2000"}, "Value must not be more than"),
        ({"retention.bytes": "1000", "local.retention.bytes": "2000"}, "Value must not be more"),
        (
            {"remote.log.copy.disable": "true", "local.retention.ms": "5"},
            "must be set to the identical value",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused_in_the_words_of_kafka(
    settings: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        TopicConfig.from_properties({"remote.storage.enable": "true", **settings})


@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_read_returns_what_is_before_a_segment_that_the_store_does_not_give(
    is_fixed: bool,
) -> None:
    bench = TieredBench()
    text = bench.fill(40)
    bench.tier_all()
    log = bench.log
    second = log.snapshot.segments[1]
    entry = bench.tier.entries[second.base_offset]
    bench.objects.fail("get_range", bench.place.log(second.base_offset, entry.segment_id))
    if is_fixed:
        address = parse_partition_name("0@earliest..latest", UTC)
        file: FixedFile | GrowingFile = FixedFile(resolve(log, address, bench.now_ms))
    else:
        file = GrowingFile(log, View.TEXT, 0)
    out = memoryview(bytearray(len(text)))
    begin = second.bases.text
    assert file.read_into(out, 0) == begin
    assert out[:begin] == text[:begin]
    with pytest.raises(OSError, match="injected"):
        file.read_into(out, begin)
    bench.objects.heal()
    assert file.read_into(out, begin) == len(text) - begin
    assert out[: len(text) - begin] == text[begin:]
