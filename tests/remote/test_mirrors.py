"""A mirror with segments in an object store, whose source loses records."""

import pytest

from logfs.errors import MirrorError
from logfs.log.mirrorfile import MirrorSource
from logfs.services.clusters import mirrors
from tests.log.mirroring import catch_up, stored
from tests.log.support import Bench, text_of
from tests.remote.tiering import TIERED, TieredBench

SOURCE = MirrorSource("cluster", "b1:9092", "t", "id")
SMALL = {"internal.segment.bytes": "200", "index.interval.bytes": "0"}
LOCAL = pytest.mark.parametrize("local_bytes", ["0", "-1"])


def source_with(*values: bytes) -> Bench:
    """Return a log with these values, each in its own batch."""
    bench = Bench(SMALL)
    for value in values:
        bench.write(value)
    return bench


def values(first: int, stop: int, kind: bytes) -> list[bytes]:
    return [b"line %d %s" % (number, kind * 20) for number in range(first, stop)]


def tiered_mirror(local_bytes: str, source: Bench) -> TieredBench:
    """Return a mirror of a log whose sealed segments are in the store."""
    bench = TieredBench({**TIERED, "local.retention.bytes": local_bytes})
    bench.log.set_mirror(SOURCE)
    catch_up(bench, stored(source))
    bench.log.flush()
    bench.log.maintain()
    bench.tier_all()
    assert bench.tier.next_offset == 18
    return bench


@LOCAL
@pytest.mark.expect_log("to 19 were cut")
@pytest.mark.parametrize("offset", [18, 19])
def test_what_is_not_in_the_store_is_cut(local_bytes: str, offset: int) -> None:
    old = values(0, 20, b"x")
    mirror = tiered_mirror(local_bytes, source_with(*old))
    source = source_with(*old[:offset], *values(offset, 40, b"y"))
    mirrors.cut(mirror.log, offset, "the source has lost them", mirror.now_ms)
    assert mirror.log.log_end_offset == offset
    catch_up(mirror, stored(source))
    mirror.log.flush()
    mirror.log.maintain()
    for _ in range(2):
        assert lines(mirror) == lines(source)
        mirror.tier_all()
        assert lines(mirror) == lines(source)
        mirror.restart()


@LOCAL
@pytest.mark.parametrize("offset", [4, 10, 17])
def test_what_is_in_the_store_stays_and_the_log_stays_readable(
    local_bytes: str, offset: int
) -> None:
    mirror = tiered_mirror(local_bytes, source_with(*values(0, 20, b"x")))
    text, names = text_of(mirror.log), mirror.names("")
    with pytest.raises(MirrorError, match=r"up to offset 17 in the object store.*again"):
        mirrors.cut(mirror.log, offset, "the source has lost them", mirror.now_ms)
    assert mirror.log.offline is None
    assert mirror.names("") == names
    assert text_of(mirror.log) == text
    assert text_of(mirror.restart()) == text


def lines(bench: Bench) -> bytes:
    return text_of(bench.log)
