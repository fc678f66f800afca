"""One line for every error, and how the program as a whole ends."""

import errno
import re
import signal
import subprocess
from pathlib import Path

import click
import pytest

from logfs.cli import failures
from logfs.errors import InvalidConfigError, NoSuchTopicError
from tests.cli.conftest import Call, command, environment, fill, run


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NoSuchTopicError("no topic a"), "no topic a"),
        (InvalidConfigError("two\nlines  of it"), "two lines of it"),
        (click.ClickException("that"), "that"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x"),
            "/x: Permission denied; run it as the owner, or as root",
        ),
        (
            PermissionError(errno.EACCES, "the store refused it", "s3://b/p/"),
            "s3://b/p/: the store refused it",
        ),
        (
            failures.AboutError("s3://b", PermissionError(errno.EACCES, "refused", "s3://b")),
            "s3://b: refused",
        ),
        (OSError(errno.EIO, "I/O error"), "I/O error"),
        (OSError("no number"), "no number"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/x"),
            "/x: No space left on device; make room, then try again",
        ),
        (
            OSError(errno.EMFILE, "Too many open files", "/x"),
            "/x: Too many open files; raise the limit: ulimit -n, LimitNOFILE= of a service",
        ),
        (failures.AboutError("/d/a", NoSuchTopicError("no topic a")), "/d/a: no topic a"),
        (failures.AboutError("/d/a", NoSuchTopicError("/d/a: gone")), "/d/a: gone"),
        (
            KeyError("x"),
            "a bug in logfs, KeyError: 'x'; run it again with 'logfs --debug' for the traceback",
        ),
    ],
)
def test_every_error_is_one_line(error: Exception, text: str) -> None:
    assert failures.explain(error) == text


def test_an_error_names_its_argument_once() -> None:
    with pytest.raises(failures.AboutError) as raised, failures.about("/d"):
        raise NoSuchTopicError("no topic a")
    assert raised.value.thing == "/d"
    assert isinstance(raised.value.cause, NoSuchTopicError)
    with pytest.raises(BrokenPipeError), failures.about("/d"):
        raise BrokenPipeError
    with pytest.raises(KeyError), failures.about("/d"):
        raise KeyError


def test_debug_prints_the_traceback(
    logfs: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logging_as_before: None
) -> None:
    path = tmp_path / "none" / "a"
    quiet = logfs("topic", "describe", path)
    assert (quiet.status, len(quiet.errors)) == (1, 1)
    loud = logfs("--debug", "topic", "describe", path)
    assert loud.status == 1
    assert loud.errors[0].startswith("Traceback")
    assert loud.errors[-1] == quiet.errors[0]
    monkeypatch.setenv("LOGFS_DEBUG", "1")
    assert logfs("topic", "describe", path).errors == loud.errors


@pytest.mark.parametrize(
    "arguments", [["nix"], ["cat"], ["mount", "x"], ["topic", "create"], ["--nix"]]
)
def test_wrong_usage_has_exit_status_2(logfs: Call, arguments: list[str]) -> None:
    outcome = logfs(*arguments)
    assert outcome.status == 2
    assert len(outcome.errors) == 1
    assert re.fullmatch(r"logfs: .*; 'logfs( \w+)* --help' shows what it takes", outcome.errors[0])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["mount"],
        ["umount"],
        ["cat"],
        ["topic"],
        *(["topic", name] for name in ("create", "list", "describe", "alter", "delete")),
    ],
)
def test_every_command_has_help(logfs: Call, arguments: list[str]) -> None:
    outcome = logfs(*arguments, "--help")
    assert outcome.status == 0
    assert outcome.errors == []
    assert outcome.out.startswith(b"Usage: " + " ".join(["logfs", *arguments]).encode())
    assert logfs(*arguments, "-h") == outcome


def test_help_has_a_summary_and_examples(logfs: Call) -> None:
    from logfs.config import TOPIC_KEYS
    from logfs.log.reading.address import SELECTOR_TABLE, VIEW_TABLE

    text = logfs("cat", "--help").out.decode()
    assert all(example in text for example, _ in SELECTOR_TABLE + VIEW_TABLE)
    text = logfs("topic", "alter", "--help").out.decode()
    assert all(key in text for key in TOPIC_KEYS)
    text = logfs("mount", "--help").out.decode()
    assert all(option in text for option in ("allow_other", "umask=OCTAL", "KEY=VALUE"))


def test_the_command_index_has_the_first_sentence_of_each_help() -> None:
    from logfs.cli.command_index import COMMANDS
    from logfs.cli.main import cli

    context = click.Context(cli)
    for name, entry in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(1000) == entry.sentence


def test_help_lists_every_command(logfs: Call) -> None:
    from logfs.cli.main import cli

    listed = logfs("--help").out.decode().partition("Commands:")[2]
    for name in cli.list_commands(click.Context(cli)):
        assert f"\n  {name} " in listed


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\nfrom logfs.cli.main import main\nmain(['--help'])\n"
        "heavy = {'trio', 'pyfuse3', 'rich', 'cramjam', 'crc32c', 'logfs.log.store',"
        " 'logfs.cli.commands.cat', 'logfs.cli.commands.append', 'logfs.cli.commands.mount'}\n"
        "sys.exit(sorted(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [*command()[:1], "-c", program], check=False, capture_output=True, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_version(logfs: Call) -> None:
    from logfs import __version__

    assert logfs("--version").out == f"logfs {__version__}\n".encode()


@pytest.mark.slow
def test_a_command_ends_when_the_reader_of_its_output_ends(tmp_path: Path) -> None:
    fill(tmp_path / "data", {"big/0": b"line\n" * 500_000})
    with subprocess.Popen(
        command("cat", tmp_path / "data" / "big" / "0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(5) == b"line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 1


@pytest.mark.slow
def test_ctrl_c_has_exit_status_130(tmp_path: Path) -> None:
    fill(tmp_path / "data", {"big/0": b"line\n" * 500_000})
    with subprocess.Popen(
        command("cat", tmp_path / "data" / "big" / "0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(5) == b"line\n"
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.stderr.read().strip() == b""
        assert process.wait(30) == 130


def test_as_a_module() -> None:
    assert run("--version").out.startswith(b"logfs ")
