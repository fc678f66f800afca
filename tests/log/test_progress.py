"""What is said of a compaction that goes on."""

from logfs.log.compaction.manual import watched
from logfs.log.compaction.tools import CleaningTools
from tests.log.support import Bench


def test_every_tenth_is_told_once() -> None:
    bench = Bench()
    bench.write(b"x" * 931)  # a batch of 1000 bytes and more
    log, lines, seen = bench.log, list[str](), list[int]()
    total = log.snapshot.end.file_size
    tools = CleaningTools(lambda: bytes(16), lambda: 0.0, advance=seen.append)
    told = watched(tools, log, lines.append)
    for _ in range(total):
        told.advance(1)
    told.advance(total)
    assert lines == [f"t/0: {n} % of {total} bytes read" for n in range(10, 101, 10)]
    assert sum(seen) == 2 * total, "others who watch are told as well"
