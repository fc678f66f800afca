"""Rebuilding indexes where the disk cannot read everything."""

import pytest

from logfs.config import TopicConfig
from logfs.services.reindexing import Reindexed, reindex_segment, tasks_of
from logfs.types import TopicPartition
from tests.log.support import DIRECTORY, Bench

TP = TopicPartition("t", 0)
KINDS = ("index", "timeindex", "textindex")


def stopped() -> Bench:
    bench = Bench({"internal.segment.bytes": "700", "index.interval.bytes": "0"})
    bench.write(*(b"line %02d" % n for n in range(30)))
    bench.store.close(bench.now_ms)
    return bench


def reindex(bench: Bench) -> list[Reindexed]:
    tasks = tasks_of(bench.disk, TP, TopicConfig.from_properties({}))
    return [reindex_segment(bench.disk, task) for task in tasks]


@pytest.mark.parametrize("operation", ["open", "pread"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_index_that_the_disk_cannot_read_is_rewritten(kind: str, operation: str) -> None:
    bench = stopped()
    name = f"{DIRECTORY}/{0:020}.{kind}"
    whole = bench.disk.read(name)
    bench.disk.fail(operation, name)
    done = reindex(bench)
    bench.disk.heal()
    assert [one.written for one in done if one.written] == [(name,)]
    assert not any(one.unreadable for one in done)
    assert bench.disk.read(name) == whole


@pytest.mark.parametrize("operation", ["open", "pread"])
def test_a_segment_that_the_disk_cannot_read_is_named_and_the_others_are_reindexed(
    operation: str,
) -> None:
    bench = stopped()
    logs = bench.names(".log")
    for log in logs[:3]:
        bench.disk.remove(f"{DIRECTORY}/{log[:20]}.index")
    bad = f"{DIRECTORY}/{logs[1]}"
    bench.disk.fail(operation, bad)
    done = reindex(bench)
    assert [(one.name, one.written) for one in done if one.unreadable] == [(bad, ())]
    assert len([one for one in done if one.written]) == 2
