"""Manual pages, and what a shell completes."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from logfs.cli.command_index import COMMANDS
from logfs.cli.manual import pages
from logfs.cli.manual_environment import VARIABLES, environment_of
from logfs.cli.manual_page import source_of
from tests.cli.conftest import fill
from tests.mounting import ROOT, environment_with_command

PAGES = {page.path: source_of(page) for page in pages()}
_READ = re.compile(
    r'environ(?:ment)?(?:\.get|\.pop|\.setdefault)?[(\[]"([A-Z_0-9]+)"'
    r'|"([A-Z_0-9]+)" in (?:os\.)?environ'
)


def test_there_is_a_page_for_each_command() -> None:
    assert {f"man1/logfs-{name}.1" for name in COMMANDS} <= set(PAGES)
    assert {"man1/logfs.1", "man8/mount.logfs.8", "man5/logfs.toml.5"} <= set(PAGES)
    assert {"man1/logfs-topic-create.1", "man7/logfs-address.7"} <= set(PAGES)


def test_the_first_page_says_what_each_command_does() -> None:
    page = PAGES["man1/logfs.1"].replace(r"\-", "-")
    for entry in COMMANDS.values():
        assert entry.sentence.replace("'", r"\(aq") in page
    assert "LOGFS_DECOMPRESSED_MAX_BYTES" in page.partition(".SH ENVIRONMENT")[2]


def test_every_environment_variable_that_is_read_is_in_the_manual() -> None:
    read = set[str]()
    for path in (ROOT / "logfs").rglob("*.py"):
        read |= {name for names in _READ.findall(path.read_text()) for name in names if name}
    assert {"XDG_CACHE_HOME", "AWS_CA_BUNDLE", "_LOGFS_COMPLETE", "LISTEN_FDS"} <= read
    described = set(
        re.findall(r"[A-Z_0-9]{2,}", " ".join(f"{v.names} {v.meaning}" for v in VARIABLES))
    )
    assert not read - described


def test_a_page_has_the_environment_of_its_command() -> None:
    commands = {name for variable in VARIABLES for name in variable.commands or ()}
    assert commands <= {*COMMANDS, "mount.logfs", "logfs"}
    assert "AWS_ACCESS_KEY_ID" in PAGES["man1/logfs-remote-fetch.1"].partition(".SH ENVIRONMENT")[2]
    assert "AWS_ACCESS_KEY_ID" not in PAGES["man1/logfs-append.1"]
    assert len(environment_of("logfs")) == len(VARIABLES)


@pytest.mark.parametrize("name", PAGES)
def test_no_page_refers_to_itself(name: str) -> None:
    page, _, section = Path(name).name.rpartition(".")
    see = PAGES[name].replace(r"\-", "-").partition(".SH SEE ALSO")[2]
    assert f"{page}({section})" not in see.replace("\n", " ").split(", ")


def test_examples_are_indented_once() -> None:
    lines = PAGES["man1/logfs-status.1"].splitlines()
    at = lines.index("Examples:")
    assert lines[at + 1].startswith("    logfs status")


@pytest.mark.parametrize("name", PAGES)
def test_man_formats_every_page_without_warnings(tmp_path: Path, name: str) -> None:
    page = tmp_path / Path(name).name
    page.write_text(PAGES[name], encoding="utf-8")
    command = ["man", "--warnings", "--local-file", str(page)]
    variables = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "120", "MAN_KEEP_FORMATTING": ""}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=variables)
    assert done.stderr == ""
    assert "NAME" in done.stdout
    # Nothing of the language of manuals is left over.
    assert not re.findall(r"\\[-(e&]|^\.[A-Z]{2}", done.stdout, re.MULTILINE)


def test_a_page_has_the_sections_of_the_help(tmp_path: Path) -> None:
    page = PAGES["man1/logfs-mount.1"]
    assert r"logfs\-mount \- Mount the data directory DATA at MOUNTPOINT" in page
    assert r".B \-\-config\-file FILE" in page
    assert "allow_other        users other than" in page  # the table of mount options, as it is
    assert "logfs topic create" in PAGES["man1/logfs-topic.1"].replace(r"\-", "-")


def complete(line: str, cwd: Path, variables: dict[str, str]) -> list[str]:
    """Return what bash would offer at the end of a line, by the script in $COMPLETION."""
    script = f"""
eval "$COMPLETION"
COMP_WORDS=({line}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
case "{line}" in *' ') COMP_WORDS+=(""); COMP_CWORD=$((COMP_CWORD + 1));; esac
compopt() {{ echo "compopt $*"; }}
_logfs_completion logfs
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", script], check=True, capture_output=True, text=True, cwd=cwd,
        env=variables,
    )  # fmt: skip
    return done.stdout.split("\n")[:-1]


@pytest.mark.slow
def test_completion(tmp_path: Path) -> None:
    variables = environment_with_command(tmp_path)
    shell = {**variables, "_LOGFS_COMPLETE": "bash_source"}
    done = subprocess.run(["logfs"], check=True, capture_output=True, text=True, env=shell)
    variables["COMPLETION"] = done.stdout
    data = tmp_path / "data"
    fill(data, {"orders/0": b"a\n", "orders/1": b"b\n", "payments/0": b"c\n"})
    assert complete("logfs off", tmp_path, variables) == ["offsets"]
    assert complete("logfs topic de", tmp_path, variables) == ["delete", "describe"]
    assert complete("logfs cat --isolation-level high", tmp_path, variables) == ["high_watermark"]
    assert complete("logfs cat data/or", tmp_path, variables) == [
        "data/orders", "data/orders/0", "data/orders/1",
    ]  # fmt: skip
    assert complete("logfs cat data/orders/1", tmp_path, variables) == ["data/orders/1"]
    assert complete("logfs cat or", data, variables)[0] == "orders"
    # Anything else is a file, or a directory where only that will do: the shell knows them.
    assert complete("logfs cat da", tmp_path, variables)[:2] == ["compopt -o", "default"]
    assert complete("logfs mount da", tmp_path, variables)[:2] == ["compopt -o", "dirnames"]
    alter = "logfs topic alter data/orders"
    assert complete(f"{alter} --config retention", tmp_path, variables) == [
        "retention.bytes=", "retention.ms=",
    ]  # fmt: skip
    assert complete(f"{alter} --delete retention.m", tmp_path, variables) == ["retention.ms"]
    assert complete("logfs mount -o ro,met", tmp_path, variables) == ["ro,metrics="]
    assert complete("logfs cat data/orders/1.", tmp_path, variables) == [
        f"data/orders/1.{view}" for view in ("tsv", "jsonl", "meta", "follow")
    ]
