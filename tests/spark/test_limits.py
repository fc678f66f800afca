"""How much goes into a batch of a stream, and the offsets in its checkpoint."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import InvalidConfigError
from logfs.spark.limits import StreamLimits, has_enough, parse_limits, share
from logfs.spark.streaming import from_json, to_json
from logfs.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 10)


@given(
    st.integers(1, 200),
    st.dictionaries(
        st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 3)),
        st.tuples(st.integers(0, 50), st.integers(0, 90)),
        max_size=6,
    ),
)
def test_a_share_moves_every_partition_and_hardly_exceeds_the_limit(
    most: int, logs: dict[TopicPartition, tuple[int, int]]
) -> None:
    begins = {one: begin for one, (begin, _) in logs.items()}
    ends = {one: begin + count for one, (begin, count) in logs.items()}
    counts = {one: count for one, (_, count) in logs.items()}
    shared = share(most, begins, ends, counts)
    assert all(begins[one] <= shared[one] <= ends[one] for one in logs)
    assert all(shared[one] > begins[one] for one in logs if counts[one])
    taken = sum(shared[one] - begins[one] for one in logs)
    assert taken <= max(most, 0) + len(logs)
    if sum(counts.values()) <= most:
        assert shared == ends


def test_what_has_no_size_is_taken_whole() -> None:
    shared = share(10, {A: 0, B: 0}, {A: 5, B: 100}, {A: 0, B: 1000})
    assert shared == {A: 5, B: 1}


def test_a_batch_waits_until_there_is_enough_or_it_has_waited_long_enough() -> None:
    limits = StreamLimits(min_offsets=10, max_delay_ms=1000)
    assert not has_enough(limits, {A: 0, B: 5}, {A: 4, B: 10}, 999)
    assert has_enough(limits, {A: 0, B: 5}, {A: 5, B: 10}, 999)
    assert has_enough(limits, {A: 0, B: 5}, {A: 4, B: 10}, 1000)
    assert has_enough(StreamLimits(), {A: 0}, {A: 0}, 0)


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [("90s", 90_000), ("15m", 900_000), ("2min", 120_000), ("1h", 3_600_000), ("250", 250)],
)
def test_delays(text: str, delay_ms: int) -> None:
    assert parse_limits({"maxTriggerDelay": text}).max_delay_ms == delay_ms


@pytest.mark.parametrize(("text", "size"), [("1000", 1000), ("64m", 1 << 26), ("2KB", 2048)])
def test_sizes(text: str, size: int) -> None:
    assert parse_limits({"maxBytesPerTrigger": text}).max_bytes == size


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"maxOffsetsPerTrigger": "-1"}, "maxOffsetsPerTrigger '-1': expected a positive number"),
        ({"maxBytesPerTrigger": "lots"}, "expected bytes, as in 67108864 or 64m"),
        ({"maxTriggerDelay": "soon"}, "expected a time, as in 90s or 15m"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "6 is more than max"),
    ],
)
def test_refusals(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidConfigError, match=text):
        parse_limits(options)


def test_offsets_are_written_as_spark_writes_those_of_kafka() -> None:
    offsets = {B: 7, A: 2**60, TopicPartition("b", 2): 0}
    assert to_json(offsets) == {"a": {"0": 2**60}, "b": {"2": 0, "10": 7}}
    assert from_json(to_json(offsets)) == offsets
    assert list(to_json(offsets)["b"]) == ["2", "10"]
    # A topic without partitions is none for Spark's Kafka source.
    found = to_json(offsets, {"a": "id-of-a"})
    assert found.pop("@id a id-of-a") == {}
    assert found == to_json(offsets)


def test_offsets_of_something_else_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match="it belongs to another source"):
        from_json({"logOffset": 3})  # type: ignore[dict-item]
