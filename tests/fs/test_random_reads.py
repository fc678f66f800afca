"""Reads at random places of growing names beside those of a plain copy: through the kernel."""

import os
from pathlib import Path
from random import Random

import pytest

from tests.fs.mounting import Mounted

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

APPEND = os.O_WRONLY | os.O_APPEND
SIZES = (1, 100, 4096, 4096, 65536, 1 << 20)


def write(name: Path, chance: Random, piece: int, total: int) -> None:
    """Append lines with keys, in writes of some bytes."""
    descriptor = os.open(name, APPEND)
    lines, size = [], 0
    while total > 0:
        line = b"k%d\t%s\n" % (chance.getrandbits(9), b"%x " % chance.getrandbits(90) * 4)
        lines.append(line)
        size += len(line)
        if size >= piece:
            data = b"".join(lines)
            assert os.write(descriptor, data) == size
            total -= size
            lines, size = [], 0
    os.close(descriptor)


@pytest.mark.parametrize("view", ["", ".tsv", ".jsonl"])
def test_reads_at_random_are_those_of_a_plain_copy(native: Mounted, view: str) -> None:
    chance, topic = Random(5), native.point / "t"
    for piece in (1 << 20, 16_384, 200, 300_000):
        write(topic / "0.tsv", chance, piece, min(40 * piece, 3_000_000))
    copy = (topic / f"0{view}").read_bytes()
    assert len(copy) > 3_000_000
    descriptor = os.open(topic / f"0{view}", os.O_RDONLY)
    places = [chance.randrange(len(copy)) for _ in range(9)]
    for number in range(400):
        place = chance.choice(places) + chance.randrange(30_000)
        size = chance.choice(SIZES)
        for _ in range(chance.choice((1, 1, 1, 30))):
            got = os.pread(descriptor, size, place)
            assert got == copy[place : place + size]
            place += len(got)
        if number % 50 == 0:
            write(topic / "0.tsv", chance, 1000, 1000)
            copy = (topic / f"0{view}").read_bytes()
    os.close(descriptor)
