"""Changes of a head that take effect late, and reads that show an older one: nothing is lost."""

import contextlib
import errno
from collections.abc import Callable

import pytest

from logfs.disk.remote.objects import ChangedError, ObjectStat
from logfs.disk.vfs import ReadableBuffer
from tests.log.support import text_of
from tests.remote.fakestore import FakeStore, etag_of
from tests.remote.tiering import TieredBench, no_throttle


class LateStore(FakeStore):
    """A store whose network delays a swap, or whose replica lags.

    Attributes:
        delays: The next swap is answered with TimeoutError, and takes effect before the one after.
        stale_reads: How many reads of a head return the version before the last swap.
    """

    def __init__(self) -> None:
        super().__init__()
        self.delays = False
        self.stale_reads = 0
        self._late: Callable[[], object] | None = None
        self._older: dict[str, bytes] = {}

    def swap(self, key: str, data: ReadableBuffer, etag: str) -> str:
        late, self._late = self._late, None
        if late is not None:
            late()
        if self.delays:
            self.delays = False
            self._late = lambda: self._try_swap(key, data, etag)
            raise TimeoutError(errno.ETIMEDOUT, "no answer", key)
        older = self.objects.get(key, b"")
        found = super().swap(key, data, etag)
        self._older[key] = older
        return found

    def get(self, key: str, most: int) -> tuple[bytes, ObjectStat]:
        data, stat = super().get(key, most)
        if self.stale_reads and key in self._older:
            self.stale_reads -= 1
            data = self._older[key]
            stat = stat._replace(size=len(data), etag=etag_of(data))
        return data, stat

    def _try_swap(self, key: str, data: ReadableBuffer, etag: str) -> None:
        with contextlib.suppress(ChangedError):
            super().swap(key, data, etag)


@pytest.fixture
def objects() -> LateStore:
    return LateStore()


def check_all_of(bench: TieredBench, text: bytes) -> None:
    """See that the store has each sealed segment once, and that the log reads the same from it."""
    bench.tier_all()
    bases = [entry.base_offset for entry in bench.head.entries]
    assert bases == [segment.base_offset for segment in bench.log.snapshot.segments[:-1]]
    assert len(bench.local_names(".log")) == 1
    assert text_of(bench.log) == text
    bench.restart()
    assert text_of(bench.log) == text


def test_a_change_that_takes_effect_after_it_was_given_up_is_made_once(objects: LateStore) -> None:
    bench = TieredBench(objects=objects)
    text = bench.fill(40)
    bench.tiering.begin()
    objects.delays = True
    with pytest.raises(TimeoutError):
        bench.tiering.copy(no_throttle)
    assert not bench.head.entries
    check_all_of(bench, text)


def test_a_change_of_an_earlier_process_that_comes_late_is_refused(objects: LateStore) -> None:
    bench = TieredBench(objects=objects)
    text = bench.fill(40)
    bench.tiering.begin()
    objects.delays = True
    with pytest.raises(TimeoutError):
        bench.tiering.copy(no_throttle)
    bench.kill()
    check_all_of(bench, text)
    assert bench.head.epoch == 2


@pytest.mark.parametrize("count", [1, 2, 3])
def test_reads_of_an_older_head_lose_nothing(objects: LateStore, count: int) -> None:
    bench = TieredBench(objects=objects)
    text = bench.fill(40)
    bench.tier_all()
    text += bench.fill(40, first=40)
    objects.stale_reads = count
    objects.lose_reply_of("swap", "*/logfs-head")
    for _ in range(count):
        try:
            bench.tiering.copy(no_throttle)
        except TimeoutError:
            break
    objects.stale_reads = 0
    check_all_of(bench, text)
