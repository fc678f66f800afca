"""The options of ``logfs cat`` and ``logfs tail`` that choose records, and their form."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import wraps
from typing import Any, TypeVar

import click

from logfs.cli.parameters import VIEWS, header_option, isolation_option
from logfs.library.points import point_of
from logfs.log.reading.address import Midnight, Point
from logfs.machine.host import system_clock
from logfs.records._reading import RecordSearch
from logfs.records.matching import FieldValue, search_for
from logfs.records.templates import RecordTemplate

Command = TypeVar("Command", bound=Callable[..., Any])

_CLOCK = r"T?([0-9]{1,2}):([0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,3})?)?)"
_SPACED = r"([0-9]{4}-[0-9]{2}-[0-9]{2}) +([0-9]{1,2}):(.*)"
_AGO = r"([0-9]+) *(s|m|h|d|w|sec|min|second|minute|hour|day|week)s? ago"

MOMENT_TABLE: tuple[tuple[str, str], ...] = (
    ("09:00, 09:00:30", "that time of today"),
    ("'2026-11-20 09:00'", "the same as 2026-11-20T09:00"),
    ("'2 hours ago', '30 min ago'", "the same as -2h, -30m"),
)
"""Rows (example, meaning) of what --since and --until take beside the points of an address."""


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Which records are printed, and how.

    Attributes:
        since, until: Points as they were given; None: as the command says.
        search: Tells which records; None: all.
        template: None: the lines of a view.
        context: How many records before and after each of them are printed, too; None: none, and
            no line divides those between which others are left out.
        is_reversed: Whether the last record is printed first.
        is_count: Whether only their number is printed.
    """

    since: str | None = None
    until: str | None = None
    search: RecordSearch | None = None
    template: RecordTemplate | None = None
    context: tuple[int, int] | None = None
    is_reversed: bool = False
    is_count: bool = False

    @property
    def is_given(self) -> bool:
        """Whether the query chooses records or their form."""
        return self != RecordQuery()

    def bounds(self, zone: tzinfo) -> tuple[Point | None, Point | None]:
        """Return the points since and until which records are printed; raise BadSelectorError."""
        now_ms = system_clock().now_ms()
        since, until = (
            None if text is None else moment_of(text, zone, now_ms)
            for text in (self.since, self.until)
        )
        return since, until


def moment_of(text: str, zone: tzinfo, now_ms: int) -> Point:
    """Return a point of an address, or one in the words of journalctl; see ``MOMENT_TABLE``.

    Raises:
        BadSelectorError: It is neither.
    """
    text = text.strip()
    if ago := re.fullmatch(_AGO, text):
        text = f"-{ago[1]}{ago[2][0]}"
    elif clock := re.fullmatch(_CLOCK, text):
        text = f"{Midnight(0, zone).day(now_ms)}T{clock[1]:0>2}:{clock[2]}"
    elif spaced := re.fullmatch(_SPACED, text):
        text = f"{spaced[1]}T{spaced[2]:0>2}:{spaced[3]}"
    return point_of(text, zone)


def query_options(command: Command) -> Command:
    """Decorate a command with the options of what is printed, and how.

    The command gets ``query``, a RecordQuery, and ``view``, ``prefix`` and ``level``, None without.
    """

    @wraps(command)
    def call(  # noqa: PLR0913 - an argument for each option
        *arguments: Any,  # noqa: ANN401 - as in click
        since: str | None,
        until: str | None,
        patterns: tuple[str, ...],
        texts: tuple[str, ...],
        ignore_case: bool,
        keys: tuple[str, ...],
        headers: tuple[tuple[bytes, bytes], ...],
        fields: tuple[FieldValue, ...],
        template: RecordTemplate | None,
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        if ignore_case and not (patterns or texts):
            raise click.UsageError("-i says how --grep and -F compare: give one, or leave -i out")
        search = None
        if patterns or texts or keys or headers or fields:
            try:
                search = search_for(
                    [os.fsencode(pattern) for pattern in patterns],
                    texts=[os.fsencode(text) for text in texts],
                    ignores_case=ignore_case,
                    keys=[os.fsencode(key) for key in keys],
                    headers=headers,
                    fields=fields,
                )
            except ValueError as error:
                raise click.BadParameter(str(error), param_hint="--grep") from None
        query = RecordQuery(since, until, search, template)
        return command(*arguments, query=query, **options)

    return _with_options(call, _OPTIONS)  # type: ignore[no-any-return]


def context_options(command: Command) -> Command:
    """Decorate a command, below ``query_options``, with the options of ``grep`` and ``tac``."""

    @wraps(command)
    def call(
        *arguments: Any,  # noqa: ANN401 - as in click
        query: RecordQuery,
        count: bool,
        before: int | None,
        after: int | None,
        around: int | None,
        reverse: bool,
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        context = None
        if (before, after, around) != (None, None, None):
            before, after = (around or 0 if one is None else one for one in (before, after))
            context = before, after
            if query.search is None:
                raise click.UsageError(
                    "-A, -B and -C print the records around those that --grep, -F, --key, --header "
                    "or --field choose: give one of these"
                )
            if reverse:
                raise click.UsageError("-r does not go with -A, -B and -C: leave one of them out")
        query = replace(query, context=context, is_reversed=reverse, is_count=count)
        return command(*arguments, query=query, **options)

    return _with_options(call, _CONTEXT_OPTIONS)  # type: ignore[no-any-return]


def _with_options(call: Any, options: Sequence[Callable[[Any], Any]]) -> Any:  # noqa: ANN401
    """Decorate a function with options, the first of them first in its help."""
    for option in reversed(options):
        call = option(call)
    return call


def _no_level(_context: click.Context, _option: click.Parameter, level: str | None) -> None:
    if level is not None:
        raise click.UsageError(
            f"no such option --level; for records whose value is JSON: --field level={level}"
        )


def _as_fields(
    _context: click.Context, _option: click.Parameter, values: Sequence[str]
) -> tuple[FieldValue, ...]:
    fields = []
    for given in values:
        path, equals, text = given.partition("=")
        names = tuple(path.split("."))
        if not equals or not all(names):
            raise click.BadParameter(f"{given!r}: expected PATH=VALUE, as user.id=4711")
        fields.append(FieldValue(names, text))
    return tuple(fields)


def _as_template(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> RecordTemplate | None:
    if text is None:
        return None
    try:
        return RecordTemplate(os.fsencode(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_OPTIONS = (
    click.option(
        "-S", "--since", metavar="FROM", help="Start with the first record at or after a point."
    ),
    click.option(
        "-U", "--until", metavar="TO", help="End before the first record at or after a point."
    ),
    click.option(
        "-g",
        "--grep",
        "patterns",
        metavar="PATTERN",
        multiple=True,
        help="Print records whose value contains a match of this regular expression (Python's, of "
        "bytes); several times: of any of them.",
    ),
    click.option(
        "-F",
        "--fixed-string",
        "texts",
        metavar="TEXT",
        multiple=True,
        help="Print records whose value contains this text, in which no character is special, as "
        "10.2.33.44; several times, or with --grep: any of them.",
    ),
    click.option("-i", "--ignore-case", is_flag=True, help="Match ASCII letters in both cases."),
    click.option(
        "-k",
        "--key",
        "keys",
        metavar="KEY",
        multiple=True,
        help="Print records with this key; several times: with any of them.",
    ),
    header_option("Print records with this header; several times: with all of them."),
    click.option(
        "--field",
        "fields",
        metavar="PATH=VALUE",
        multiple=True,
        callback=_as_fields,
        help="Print records whose value is JSON in which this member, as level or user.id or "
        "tags.0, is VALUE: a string, or a number as it is written; several times: all of them.",
    ),
    click.option("--level", "no_level", hidden=True, expose_value=False, callback=_no_level),
    click.option(
        "--format",
        "template",
        metavar="FORMAT",
        callback=_as_template,
        help="Print each record in this form, see below; default: the view. A newline follows "
        "unless FORMAT ends with one.",
    ),
    click.option(
        "--view",
        type=click.Choice([*VIEWS]),
        help="The form of records where PATH does not end in .tsv or .jsonl; default: text.",
    ),
    click.option(
        "--prefix/--no-prefix",
        default=None,
        help="Print the partition before each record; default: if there are several partitions, "
        "and no --format.",
    ),
    isolation_option("What to print; default: what the daemon's mount shows, else all records."),
)

_RECORDS = click.IntRange(min=0)
_CONTEXT_OPTIONS = (
    click.option("-c", "--count", is_flag=True, help="Print the number of records instead."),
    click.option(
        "-A",
        "--after-context",
        "after",
        metavar="N",
        type=_RECORDS,
        help="Print also the N records after each one that is chosen.",
    ),
    click.option(
        "-B",
        "--before-context",
        "before",
        metavar="N",
        type=_RECORDS,
        help="Print also the N records before each one that is chosen.",
    ),
    click.option(
        "-C",
        "--context",
        "around",
        metavar="N",
        type=_RECORDS,
        help="Print also the N records before and after each one that is chosen.",
    ),
    click.option("-r", "--reverse", is_flag=True, help="Print the last record first."),
)
