"""A topic gets another name: whole, over stops and errors in the middle, read on by open files."""

import contextlib
import errno

import pytest

from logfs.errors import DeletedError, NoSuchPartitionError, NoSuchTopicError, TopicExistsError
from tests.fakestate import Stopped
from tests.log.looking import directories
from tests.log.support import Bench, lines_of, text_of


def three(bench: Bench) -> None:
    bench.write(b"a", b"b", b"c")
    bench.log.advance_log_start_offset(1, bench.now_ms)
    bench.store.grow_topic("t", 3, bench.now_ms)
    bench.store.attributes.set("t", None, mode=0o700)
    bench.store.attributes.set("t", 0, uid=33)
    bench.store.alter_topic("t", {"retention.ms": "77"})


def check_renamed(bench: Bench, topic_id: str | None) -> None:
    store = bench.store
    assert (store.topics(), store.partitions("new")) == (["new"], [0, 1, 2])
    assert lines_of(store.partition("new", 0)) == [b"b", b"c"]
    assert store.topic_id("new") == topic_id
    assert store.topic_properties("new")["retention.ms"] == "77"
    assert store.attributes.get("new", None).mode == 0o700
    assert store.attributes.get("new", 0).uid == 33
    assert directories(bench.disk) == ["new-0", "new-1", "new-2"]


@pytest.mark.parametrize("stop", [None, "restart", "kill", "crash"])
def test_a_topic_has_everything_under_its_new_name(stop: str | None) -> None:
    bench = Bench()
    three(bench)
    topic_id, old = bench.store.topic_id("t"), bench.log
    bench.store.rename_topic("t", "new", bench.now_ms)
    with pytest.raises(DeletedError):
        old.roll(bench.now_ms)
    assert text_of(old) == b"b\nc\n", "open files are read on"
    if stop is not None:
        with contextlib.suppress(NoSuchTopicError):  # the log of "t", which they return
            getattr(bench, stop)()
    check_renamed(bench, topic_id)
    bench.store.create_topic("t", 1, {}, bench.now_ms)
    bench.write(b"x")
    assert lines_of(bench.kill()) == [b"x"]
    assert lines_of(bench.store.partition("new", 0)) == [b"b", b"c"]


@pytest.mark.parametrize("partition", range(3))
def test_after_an_error_the_next_call_completes_it(partition: int) -> None:
    bench = Bench()
    three(bench)
    topic_id = bench.store.topic_id("t")
    bench.disk.fail_next("rename", f"t-{partition}")
    with pytest.raises(OSError, match=str(errno.EIO)):
        bench.store.rename_topic("t", "new", bench.now_ms)
    assert bench.store.partitions("t") == [n for n in range(3) if n >= partition]
    bench.store.rename_topic("t", "new", bench.now_ms)
    check_renamed(bench, topic_id)


def test_after_a_stop_at_any_step_the_next_call_completes_it() -> None:
    for step in range(1000):
        bench = Bench()
        three(bench)
        bench.log.flush()
        topic_id = bench.store.topic_id("t")
        bench.disk.stop_before(step)
        try:
            bench.store.rename_topic("t", "new", bench.now_ms)
        except Stopped:
            pass
        else:
            break
        with contextlib.suppress(NoSuchTopicError, NoSuchPartitionError):  # the log of "t"
            (bench.kill if step % 2 else bench.crash)()
        if "t" in bench.store.topics():
            bench.store.rename_topic("t", "new", bench.now_ms)
        check_renamed(bench, topic_id)
    assert step > 10


def test_the_name_of_another_topic_is_refused() -> None:
    bench = Bench()
    bench.write(b"a")
    bench.store.create_topic("new", 1, {}, bench.now_ms)
    with pytest.raises(TopicExistsError, match="topic new exists already"):
        bench.store.rename_topic("t", "new", bench.now_ms)
    assert lines_of(bench.log) == [b"a"]
