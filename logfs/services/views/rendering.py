"""Records as the lines of a view, when they are already in memory."""

from collections.abc import Sequence

from logfs.records._rendering import Renderer
from logfs.records.batch import encode_batch
from logfs.records.compression import decompress
from logfs.records.record import Record
from logfs.types import View


def rendered(records: Sequence[Record], view: View) -> list[bytes]:
    """Return records of one partition as the lines of a view, each with its newline."""
    if view is View.TEXT:
        return [(record.value or b"") + b"\n" for record in records]
    return rendered_batch(encode_batch(records), view)


def rendered_batch(batch: bytes, view: View) -> list[bytes]:
    """Return the records of a batch as the lines of a view, each with its newline."""
    renderer = Renderer(view, decompress)
    renderer.load(batch, 0, len(batch))
    text, out = bytearray(), bytearray(1 << 16)
    while not renderer.exhausted:
        text += memoryview(out)[: renderer.render(out, 0, len(out))]
    return [line + b"\n" for line in bytes(text).split(b"\n")[:-1]]
