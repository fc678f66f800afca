"""``logfs pack``: write sealed segments once more, smaller, now."""

import json
import time
from typing import TYPE_CHECKING

import click

from logfs.cli import failures
from logfs.cli.commands.compact import parse_topic_or_partition, show_progress
from logfs.cli.terminal import tables
from logfs.library.places import locate_local

if TYPE_CHECKING:
    from logfs.services.packing.packer import Packed


@click.command()
@click.argument("path")
@click.option(
    "--roll",
    is_flag=True,
    help="Start a new segment first, so that all present records can be packed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object a partition.")
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
    from logfs.library import owner
    from logfs.log.store import LogStore
    from logfs.machine.host import system_clock
    from logfs.services.compaction.manual import watched
    from logfs.services.compaction.tools import tools_for
    from logfs.services.packing.packer import Packed, pack_now, packable_logs

    with failures.about(path):
        place = locate_local(path)
        topic, number = parse_topic_or_partition(place.address)

        def do(store: LogStore) -> list[Packed]:
            clock = system_clock()
            tools = tools_for(store.config, store.new_id, clock.monotonic_s, time.sleep)
            return [
                pack_now(log, clock.now_ms(), watched(tools, log, show_progress), roll=roll)
                for log in packable_logs(store, topic, number)
            ]

        def ask(daemon: Daemon) -> list[Packed]:
            return daemon.pack(topic, number, roll=roll, progress=show_progress)

        done = owner.act(place, ask, do, failures.progress())
    if as_json:
        click.echo(json.dumps([{"topic": topic, **x._asdict()} for x in done], indent=2))
    else:
        for row in done:
            click.echo(_sentence(topic, row))


def _sentence(topic: str, done: "Packed") -> str:
    name = f"{topic}/{done.partition}"
    if not done.segments:
        return f"{name}: nothing to pack: all sealed segments are packed (see --roll)"
    before, after = map(tables.format_bytes, (done.read_bytes, done.written_bytes))
    if not done.packed:
        return f"{name}: {done.segments} segments would not become smaller; they stay as they are"
    return f"{name}: {done.packed} of {done.segments} segments packed, {before} became {after}"
