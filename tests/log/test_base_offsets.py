"""A damaged base offset, which no checksum covers, is repaired where other batches prove it."""

from collections.abc import Callable

import pytest

from tests.log.support import DIRECTORY, Bench, lines_of, log_name

LINES = [b"line %02d" % n for n in range(12)]
BATCH_BYTES = 75
DAMAGES: dict[str, Callable[[int], int]] = {
    "one more": lambda offset: offset + 1,
    "one less": lambda offset: offset - 1,
    "a thousand more": lambda offset: offset + 1000,
    "out of reach": lambda offset: offset + (1 << 40),
    "negative": lambda offset: offset - (1 << 62),
}
STOPS = ["a kill", "a kill and lost indexes", "a clean stop and lost indexes"]


def stopped(stop: str) -> Bench:
    """A log of three segments of which the machine, or the program, has stopped."""
    bench = Bench({"internal.segment.bytes": "400", "index.interval.bytes": "0"})
    bench.write(*LINES)
    bench.log.flush()
    if stop.startswith("a kill"):
        bench.disk.kill()
    else:
        bench.store.close(bench.now_ms)
    if stop.endswith("lost indexes"):
        for name in [*bench.names("index"), *bench.names("logfs.segments")]:
            bench.disk.remove(f"{DIRECTORY}/{name}")
    return bench


def damage(bench: Bench, offset: int, how: str) -> dict[str, bytes]:
    """Damage the base offset of the batch of a record; returns the logs as they were."""
    before = {name: bench.file(name) for name in bench.names(".log")}
    name = log_name(offset // 5 * 5)
    data, at = bytearray(before[name]), offset % 5 * BATCH_BYTES
    assert int.from_bytes(data[at : at + 8], "big") == offset
    data[at : at + 8] = DAMAGES[how](offset).to_bytes(8, "big", signed=True)
    bench.put(name, bytes(data))
    return before


@pytest.mark.expect_log("was repaired")
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("offset", [0, 2, 4, 5, 8, 9, 10])
def test_a_base_offset_that_its_neighbours_prove_is_repaired(
    offset: int, how: str, stop: str
) -> None:
    bench = stopped(stop)
    before = damage(bench, offset, how)
    bench.store = bench.open()
    assert {name: bench.file(name) for name in before} == before
    assert lines_of(bench.log) == LINES
    assert bench.log.losses == []
    assert bench.log.log_end_offset == len(LINES)


@pytest.mark.expect_log("were cut")
@pytest.mark.parametrize("how", ["one less", "negative"])
def test_a_last_batch_whose_base_offset_nothing_proves_is_cut_and_kept_beside_the_log(
    how: str,
) -> None:
    bench = stopped("a kill")
    before = damage(bench, 11, how)
    bench.store = bench.open()
    assert lines_of(bench.log) == LINES[:11]
    assert [(loss.kind, loss.bytes) for loss in bench.log.losses] == [("cut", BATCH_BYTES)]
    (copy,) = bench.names(".cut")
    assert bench.file(copy)[8:] == before[log_name(10)][BATCH_BYTES + 8 :]
