"""Fetch answers, encoded by kafka-python and decoded by logfs."""

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse

from logfs.kafka.fetching import (
    FIRST_WITH_DIVERGENCE,
    FIRST_WITH_IDS,
    NEWEST_VERSION,
    OLDEST_VERSION,
    decode_fetch,
)

VERSIONS = range(OLDEST_VERSION, NEWEST_VERSION + 1)
ID = UUID(int=2**127 + 5)


def answer(version: int) -> bytes:
    """An answer with its header: two topics, and everything that the version has."""
    kind = FetchResponse.FetchableTopicResponse
    part = kind.PartitionData
    rows = [
        part(
            partition_index=3,
            error_code=0,
            high_watermark=70,
            last_stable_offset=60,
            log_start_offset=50,
            aborted_transactions=[part.AbortedTransaction(producer_id=7, first_offset=9)],
            preferred_read_replica=4,
            diverging_epoch=part.EpochEndOffset(epoch=5, end_offset=2**40),
            current_leader=part.LeaderIdAndEpoch(leader_id=2, leader_epoch=8),
            records=b"batches",
        ),
        part(
            partition_index=4,
            error_code=6,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=None,
        ),
    ]
    response = FetchResponse(
        throttle_time_ms=11,
        error_code=0,
        session_id=0,
        responses=[
            kind(topic="orders", topic_id=ID, partitions=rows),
            kind(topic="web", topic_id=UUID(int=1), partitions=rows[1:]),
        ],
    )
    header = b"\0\0\0\1" + (b"\0" if version >= FIRST_WITH_DIVERGENCE else b"")
    return header + bytes(response.encode(version=version))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_decoded(version: int) -> None:
    got = decode_fetch(memoryview(answer(version)), version)
    assert (got.throttled_ms, got.error) == (11, 0)
    first, second, third = got.partitions
    if version >= FIRST_WITH_IDS:
        assert [first.topic_id, third.topic_id] == [ID, UUID(int=1)]
    else:
        assert [first.topic, third.topic] == ["orders", "web"]
    assert (first.partition, first.error, first.high_watermark, first.last_stable_offset) == (
        *(3, 0, 70, 60),
    )
    assert bytes(first.records) == b"batches"
    assert first.log_start_offset == (50 if version >= 5 else -1)
    assert first.preferred_replica == (4 if version >= 11 else -1)
    if version >= FIRST_WITH_DIVERGENCE:
        assert first.diverging == (5, 2**40)
        assert first.leader == (2, 8)
    assert (second.partition, second.error, bytes(second.records)) == (4, 6, b"")
    assert (second.diverging, second.leader) == (None, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_is_cut_is_an_error_of_the_protocol(version: int) -> None:
    whole = answer(version)
    for size in range(len(whole)):
        with pytest.raises(OSError, match="does not decode"):
            decode_fetch(memoryview(whole)[:size], version)


@given(st.binary(max_size=300), st.sampled_from(VERSIONS))
def test_garbage_is_an_error_of_the_protocol_or_an_answer(data: bytes, version: int) -> None:
    with contextlib.suppress(OSError):
        decode_fetch(memoryview(data), version)
