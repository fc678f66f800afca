"""The entry point: which commands there are, and where every error ends."""

import atexit
import gc
import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence

import click

from logfs import __version__
from logfs.cli import failures
from logfs.cli.command_index import COMMANDS
from logfs.cli.terminal import logs, streams

_GC_THRESHOLD = 10_000
"""Modules that are imported are no garbage: looking for some takes a tenth of a short command."""
_ELSEWHERE = {
    "unmount": "umount",
    "ls": "topic list",
    "list": "topic list",
    "create": "topic create",
    "delete": "topic delete",
    "describe": "topic describe",
    "alter": "topic alter",
    "fsck": "verify",
    "check": "verify",
    "read": "cat",
    "write": "append",
    "follow": "tail -f",
}
"""The names of commands elsewhere, and here."""


class CommandState:
    """The settings of the whole call."""

    debug = False


class _Commands(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"logfs.cli.commands.{COMMANDS[cmd_name].module}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        if "_LOGFS_COMPLETE" in os.environ:  # a shell asks, on behalf of the Tab key
            importlib.import_module("logfs.cli.completion").complete_parameters(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or say which one may be meant."""
        if args[0] == "help":  # like git and others
            if len(args) == 1:
                click.echo(ctx.get_help())
                ctx.exit()
            args = [*args[1:], "--help"]
        elif args[0] == "version":
            click.echo(f"logfs {__version__}")
            ctx.exit()
        if args[0] in COMMANDS or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        near = get_close_matches(args[0], [*COMMANDS, *_ELSEWHERE], n=1)
        if not near:
            return super().resolve_command(ctx, args)
        meant = _ELSEWHERE.get(near[0], near[0])
        raise click.UsageError(f"no such command {args[0]!r}; did you mean {meant}?", ctx)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; it ends quietly when no program reads its output any more."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            streams.abandon()
            raise click.exceptions.Exit(failures.FAILED) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.sentence) for name, entry in COMMANDS.items()])


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option(
    "--debug", is_flag=True, envvar="LOGFS_DEBUG", help="Show tracebacks (also: LOGFS_DEBUG=1)."
)
@click.option(
    "--decompressed-max-bytes",
    type=click.IntRange(1 << 20),
    envvar="LOGFS_DECOMPRESSED_MAX_BYTES",
    metavar="N",
    help="Read compressed batches whose records take up to N bytes of memory "
    "(default: 128 MiB; also: LOGFS_DECOMPRESSED_MAX_BYTES=N).",
)
@click.pass_context
def cli(context: click.Context, *, debug: bool, decompressed_max_bytes: int | None) -> None:
    """Kafka's log storage engine with a file system for an API.

    A directory of Kafka-format logs is mounted, and every partition of every topic is one file:
    append with >>, read with cat, follow with tail -f, jump to a moment with @ in the path.

    \b
        mkdir /tmp/data /tmp/logs
        logfs mount /tmp/data /tmp/logs --background
        mkdir /tmp/logs/orders                      # makes a topic
        echo hello >> /tmp/logs/orders/0            # appends a record to its partition 0
        cat /tmp/logs/orders/0@-15m.jsonl           # the last quarter of an hour, as JSON
        logfs umount /tmp/logs
        logfs cat /tmp/data/orders/0                # the same paths work without a mount
    """  # noqa: D301 - click's mark for text it does not fill
    context.obj.debug = debug
    if context.invoked_subcommand != "mount":  # which does it when it can end what it has begun
        _end_on_sigterm()
    if decompressed_max_bytes is not None:
        from logfs.records.compression import limit_decompressed

        limit_decompressed(decompressed_max_bytes)
    if debug:
        logging.getLogger("logfs").setLevel(logging.DEBUG)


def _end_on_sigterm() -> None:
    """End on SIGTERM like any process.

    The first process of a container ignores it unless it has a handler. The image starts commands
    with SIGTERM blocked, so that none is lost before this.
    """

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command ``logfs`` with arguments, or those of the process; return its exit status."""
    gc.set_threshold(_GC_THRESHOLD)
    if arguments is None:
        # Nor is anything worth looking for at the end of the process: a seventh of a short command.
        atexit.register(gc.freeze)
        streams.prepare()
    logs.show_warnings()
    state = CommandState()
    try:
        status = cli.main(arguments, prog_name="logfs", standalone_mode=False, obj=state)
        if sys.stdout is not None:
            sys.stdout.flush()  # here its errors are told
    except BrokenPipeError:
        streams.abandon()
        return failures.FAILED
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # which click 8.1 does not have
            error.show()
        else:
            failures.warn(failures.explain_usage(error))
        return error.exit_code
    except click.Abort:  # Ctrl-C, says click
        streams.abandon()
        return failures.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - this is where every error ends
        return failures.report(error, debug=state.debug)
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    sys.exit(main())
