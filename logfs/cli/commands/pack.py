"""``logfs pack``: write sealed segments once more, smaller, now."""

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import click

from logfs.cli import failures
from logfs.cli.commands.compact import print_done, show_progress
from logfs.cli.parameters import json_option, roll_option
from logfs.cli.terminal import tables

if TYPE_CHECKING:
    from logfs.services.packing.packer import Packed


@click.command()
@click.argument("path")
@roll_option("packed")
@json_option("Print a JSON array, an object a partition.")
def pack(path: str, *, roll: bool, as_json: bool) -> None:
    """Write sealed segments once more, with larger and compressed batches.

    PATH is DATA/TOPIC/PARTITION, or DATA/TOPIC for all its partitions; DATA is a data directory or
    a mount point. The topic's logfs.sealed.compression.type names the codec. A daemon packs by
    itself after a segment is sealed; this command packs now.

    A program that writes line by line makes one batch a line, with a header of 61 bytes. Packing
    merges neighbouring batches up to 64 KiB and compresses them. Offsets, timestamps, keys, headers
    and positions do not change, and a Kafka broker can read the result. Each segment is packed
    once. Batches of producers and transactions stay as they are, and so do compacted topics. A
    crash at any moment loses nothing.

    \b
    Examples:
        logfs topic alter /mnt/logs/web --config logfs.sealed.compression.type=zstd
        logfs pack /mnt/logs/web --roll
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.client import Daemon
    from logfs.library.rewriting import rewrite_now
    from logfs.services.packing.packer import Packed, check_packable, pack_now

    def ask(daemon: Daemon, topic: str, number: int | None) -> list[Packed]:
        return daemon.pack(topic, number, roll=roll, progress=show_progress)

    rewrite = partial(pack_now, roll=roll)
    with failures.about(path):
        topic, done = rewrite_now(
            path,
            ask,
            check_packable,
            lambda _: nullcontext(rewrite),
            show_progress,
            failures.progress(),
        )
    print_done(topic, done, _sentence, as_json=as_json)


def _sentence(name: str, done: "Packed") -> str:
    if not done.segments:
        return f"{name}: nothing to pack: all sealed segments are packed (see --roll)"
    before, after = map(tables.format_bytes, (done.read_bytes, done.written_bytes))
    if not done.packed:
        return f"{name}: {done.segments} segments would not become smaller; they stay as they are"
    return f"{name}: {done.packed} of {done.segments} segments packed, {before} became {after}"
