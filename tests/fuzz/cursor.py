"""The cursor that reads natively beside ``Renderer``: the same bytes, and the same places.

A case is a piece of a log. The cursor is a program, ``cursor.c``, built with sanitizers.
"""

import subprocess
import tempfile
from contextlib import suppress
from random import Random

from logfs.errors import CorruptRecordError
from logfs.records._encoding import encode_records
from logfs.records._rendering import Renderer
from logfs.records.compression import decompress, limit_decompressed
from logfs.records.encoded import EncodeOptions
from logfs.records.record import Record
from logfs.types import View
from tests.fuzz import sanitizing
from tests.fuzz.mutation import batch, change_batch, change_bytes

_LIMIT_BYTES = 16 << 20
_NOW_MS = 1_700_000_000_000
_END = 1
_LEFT = 2


def make(chance: Random, corpus: list[bytes]) -> bytes:
    """Return a piece of a log, more often of batches that the cursor renders."""
    if corpus and chance.random() < 0.2:
        return change_bytes(chance, chance.choice(corpus))
    parts = (_plain if chance.random() < 0.9 else batch for _ in range(chance.choice((1, 2, 4, 8))))
    found = b"".join(part(chance) for part in parts)
    return change_batch(chance, found) if chance.random() < 0.2 else found


def _plain(chance: Random) -> bytes:
    """Encode records most of which are plain."""
    sizes = (0, 0, 1, 15, 16, 60, 100, 300, 20_000)
    records = [
        Record(
            *(number, chance.choice((0, _NOW_MS, _NOW_MS + 2**40))),
            chance.choice((None, None, None, b"", b"key", b"k" * 20_000)),
            chance.choice((None, *(bytes([97 + number % 26]) * size for size in sizes))),
            chance.choice(((),) * 30 + (((b"h", b"v"),),)),
        )
        for number in range(chance.choice((1, 1, 2, 10, 100)))
    ]
    encoded = encode_records(records, chance.choice((0, 5, 2**40)), _NOW_MS, EncodeOptions(10**6))
    return b"".join(one.data for one in encoded.batches)


def check(case: bytes) -> None:
    """Read a piece of a log from its beginning, and from a place that Python has come to."""
    limit_decompressed(_LIMIT_BYTES)
    chance = Random(case)
    view = chance.choice(list(View))
    text, is_whole = _rendered(case, view, 0, 0)
    with tempfile.NamedTemporaryFile() as file:
        file.write(case)
        file.flush()
        got, (position, delivered, _, status) = _read(file.name, chance, view, 0, 0)
        assert text.startswith(got), f"{got[:200]!r} is not the beginning of {text[:200]!r}"
        assert status in (_END, _LEFT)
        assert status == _LEFT or (is_whole and got == text), "the cursor says it was at the end"
        rest = _rendered(case, view, position, delivered)[0]
        assert rest == text[len(got) :], "the place is another"
        if not text:
            return
        size = chance.randrange(len(text))
        renderer = Renderer(view, decompress)
        renderer.load(case, 0, len(case))
        assert renderer.skip(size) == size
        begin = renderer.batch_position
        before = renderer.batch_delivered if renderer.is_in_batch else 0
        rest = _read(file.name, chance, view, begin, before)[0]
        assert text[size:].startswith(rest), f"{rest[:200]!r} does not follow {size} bytes"


def _rendered(case: bytes, view: View, position: int, delivered: int) -> tuple[bytes, bool]:
    """Return the rendering from a place on, up to damage, and whether there was none."""
    renderer = Renderer(view, decompress)
    renderer.load(case, position, len(case))
    text = bytearray()
    room = bytearray(100_000)
    with suppress(CorruptRecordError):
        if delivered:
            assert renderer.skip(delivered) == delivered
        while got := renderer.render(room, 0, len(room)):
            text += room[:got]
        return bytes(text), renderer.batch_position == len(case)
    return bytes(text), False


def _read(
    path: str, chance: Random, view: View, position: int, delivered: int
) -> tuple[bytes, tuple[int, int, int, int]]:
    """Return what the cursor has read from a place on, where it has stopped, and why."""
    command = [
        str(sanitizing.CURSOR),
        path,
        *map(str, (int(view), chance.randrange(1000), position, delivered)),
    ]
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    first, second, third, fourth = map(int, done.stderr.split())
    return done.stdout, (first, second, third, fourth)
