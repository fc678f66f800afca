"""``logfs dump``: what kafka-dump-log prints, line for line."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from logfs.cli import failures
from logfs.cli.escapes import TerminalOutput, printable
from logfs.errors import LogfsError
from logfs.machine.disks import disk_of, is_url

if TYPE_CHECKING:
    from logfs.services.dumping.output import DumpOptions, Parse
    from logfs.services.dumping.source import DumpFile

_STRING = "org.apache.kafka.tools.api.StringDecoder"
_MAX_INT32 = 2**31 - 1


@click.command()
@click.argument("paths", metavar="FILES...", nargs=-1)
@click.option(
    "--files", "listed", metavar="A,B", help="Print these files too; commas separate them."
)
@click.option(
    "--print-data-log",
    "is_printed",
    is_flag=True,
    help="Print keys and values of the records of a log.",
)
@click.option(
    "--deep-iteration",
    "is_deep",
    is_flag=True,
    help="Print a line for every record; --print-data-log and the decoders imply it.",
)
@click.option(
    "--skip-record-metadata",
    "is_bare",
    is_flag=True,
    help="Print only the key and the value of a record.",
)
@click.option(
    "--verify-index-only", "verify_only", is_flag=True, help="Check indexes without printing them."
)
@click.option(
    "--index-sanity-check",
    "sanity_only",
    is_flag=True,
    help="Check indexes superficially, without printing them.",
)
@click.option(
    "--max-message-size",
    "max_message_bytes",
    type=click.IntRange(0, _MAX_INT32),
    default=5 * 1024 * 1024,
    show_default=True,
    metavar="BYTES",
    help="Report indexes that point to a larger batch.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(0, _MAX_INT32),
    default=_MAX_INT32,
    metavar="BYTES",
    help="Read only the first BYTES of every log.",
)
@click.option(
    "--key-decoder-class",
    "key_class",
    is_flag=False,
    flag_value=_STRING,
    metavar="CLASS",
    help="Type of the keys: String (the default), Integer, Long, Short, Float, Double or UUID, as "
    "a name of Kafka's decoders or deserializers.",
)
@click.option(
    "--value-decoder-class",
    "value_class",
    is_flag=False,
    flag_value=_STRING,
    metavar="CLASS",
    help="Type of the values.",
)
@click.option(
    "--offsets-decoder",
    "log_kind",
    flag_value="offsets",
    help="Print records of __consumer_offsets as JSON.",
)
@click.option(
    "--transaction-log-decoder",
    "log_kind",
    flag_value="transactions",
    help="Print records of __transaction_state as JSON.",
)
@click.option(
    "--cluster-metadata-decoder",
    "log_kind",
    flag_value="metadata",
    help="Print records of __cluster_metadata as JSON.",
)
@click.option(
    "--share-group-state-decoder",
    "log_kind",
    flag_value="shares",
    help="Print records of __share_group_state as JSON.",
)
@click.option(
    "--remote-log-metadata-decoder",
    "log_kind",
    flag_value="remote",
    help="Not offered: logfs does not decode the metadata of tiered segments.",
)
def dump(paths: tuple[str, ...], listed: str | None, **chosen: object) -> None:
    """Print logs, indexes, snapshots and checkpoints as kafka-dump-log does, line for line.

    FILES are those of a partition directory, or copies of them: .log, .index, .timeindex,
    .txnindex, .snapshot, .checkpoint (of KRaft), leader-epoch-checkpoint and the checkpoints of a
    data directory; also .cut, what a recovery or a salvage has cut from a .log. An index is checked
    against the .log in the same directory. A directory means all such files in it, but .cut.
    Nothing is locked or changed: a running broker may use them.

    A .log is printed by batches, whose checksums are checked; with --print-data-log by records.
    Findings of the checks go to stderr at the end, with batches that no reader uses although their
    checksums are right, since their offsets go back. The exit status is 1 if something is damaged
    (kafka-dump-log's is 0) or a file cannot be read; the command continues with the next file.

    \b
    Examples:
        logfs dump /var/lib/logfs/orders-0/00000000000000000000.log
        logfs dump --print-data-log /var/lib/logfs/orders-0/*.log | less
        logfs dump --verify-index-only /var/lib/logfs/orders-0
        logfs dump --offsets-decoder /tmp/kafka-logs/__consumer_offsets-0
    """  # noqa: D301 - click's mark for text it does not fill
    named = [*paths, *([] if listed is None else listed.split(","))]
    if not named:
        raise click.UsageError("expected FILES, as logfs dump orders-0/*.log")
    failures.exit_with(_dump(named, _options(chosen)))


def _dump(named: Sequence[str], options: "DumpOptions") -> int:
    from logfs.services.dumping.dump import dump_file
    from logfs.services.dumping.output import Findings, Streams

    out = TerminalOutput(sys.stdout.buffer) if sys.stdout.isatty() else sys.stdout.buffer
    streams = Streams(out, sys.stderr.buffer)
    findings = Findings()
    status = 0
    for path in named:
        for source in _sources(path):
            try:
                dump_file(source, options, streams, findings)
            except BrokenPipeError:
                raise
            except (LogfsError, OSError) as error:
                streams.out.flush()
                status = failures.report(error)
    for line in findings.lines():
        streams.complain(line)
    streams.out.flush()
    return failures.FAILED if findings.is_damaged else status


def _sources(path: str) -> "Iterator[DumpFile]":
    """Yield the file of a path, or the files of a directory by name."""
    from logfs.disk.posix import PosixDisk
    from logfs.services.dumping.dump import is_known
    from logfs.services.dumping.source import DumpFile

    if is_url(path):
        yield from _remote_sources(path.rstrip("/"))
        return
    shown = re.sub("/+", "/", path)
    shown = shown.rstrip("/") or shown
    if os.path.isdir(shown):  # noqa: PTH112 - a path as it was given
        files = [name for name, is_directory in PosixDisk(shown).list("") if not is_directory]
        for name in filter(is_known, files):
            yield from _sources(f"{shown}/{name}")
        return
    directory, _, name = shown.rpartition("/")
    disk = PosixDisk(directory or ("/" if shown.startswith("/") else "."))
    absolute = shown if shown.startswith("/") else f"{os.getcwd()}/{shown}"  # noqa: PTH109
    yield DumpFile(disk, name, printable(shown), printable(absolute))


def _remote_sources(url: str) -> "Iterator[DumpFile]":
    """Yield the file of a URL, or the files of a partition: URL/TOPIC-PARTITION[/FILE]."""
    from logfs.library.places import locate
    from logfs.services.dumping.dump import is_known
    from logfs.services.dumping.source import DumpFile

    place = locate(url)
    disk, name = disk_of(place.root), "/".join(place.address)
    if disk.exists(name) and disk.stat(name).is_directory:
        files = filter(is_known, sorted(disk.contents(name).files))
        found = [f"{name}/{file}" if name else file for file in files]
    else:
        found = [name]
    for file in found:
        yield DumpFile(disk, file, f"{place.root}/{file}", f"{place.root}/{file}")


def _options(chosen: dict[str, object]) -> "DumpOptions":
    from logfs.services.dumping.output import DumpOptions

    kind, classes = chosen["log_kind"], (chosen["key_class"], chosen["value_class"])
    is_printed = bool(chosen["is_printed"] or kind or any(classes))
    return DumpOptions(
        records=is_printed or bool(chosen["is_deep"]),
        payloads=is_printed,
        metadata=not chosen["is_bare"],
        parse=_parse(kind, *classes),
        verify_only=bool(chosen["verify_only"]),
        sanity_only=bool(chosen["sanity_only"]),
        max_message_bytes=int(str(chosen["max_message_bytes"])),
        max_bytes=int(str(chosen["max_bytes"])),
    )


def _parse(kind: object, key_class: object, value_class: object) -> "Parse | None":
    if kind is None and key_class is None and value_class is None:
        return None
    from logfs.services.dumping import decoders

    match kind:
        case "offsets":
            return decoders.consumer_offsets()
        case "transactions":
            return decoders.transaction_log()
        case "metadata":
            return decoders.cluster_metadata
        case "shares":
            return decoders.share_group_state()
        case "remote":
            raise click.UsageError(
                "--remote-log-metadata-decoder: logfs does not decode that log; print it with "
                "--print-data-log, or with kafka-dump-log"
            )
        case _:
            key, value = (
                None if name is None else decoders.decoder_named(str(name))
                for name in (key_class, value_class)
            )
            return decoders.typed(key, value)
