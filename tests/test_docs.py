"""The site that `make docs` builds: its documents, its manual, its reference, and its links."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import logfs.aio
from docs.commands import markdown_of
from docs.links import broken_links
from logfs.cli.command_index import COMMANDS
from logfs.cli.manual import pages
from logfs.cli.manual_page import Heading, Item, Page, Paragraph, Synopsis, Verbatim
from tests.mounting import ROOT

INTERNALS = ROOT / "docs/internals"
PAGE = """<html><head><link href="a.css" rel="stylesheet"></head><body id="top">
<a href="#top">up</a> <a href="other.html#there">other</a> <a href="https://kafka.apache.org">a</a>
<p>A text with href="nowhere" in it</p>{planted}</body></html>"""


_DEFINED = re.compile(r"`([\w/]+/\w+\.(?:pyx|pxi|py|c|h))(?:::([\w.]+))?`")
"""A file, and a function or a test in it, as a page of the internals names them."""


@pytest.mark.slow
def test_the_documents_have_no_broken_link_and_no_other_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "docs", "--only-read", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    made = {path.stem for path in tmp_path.glob("source/manual/*.md")}
    assert made == {"logfs", "logfs-address", "logfs.toml", "mount.logfs"} | {
        f"logfs-{name}" for name in COMMANDS
    }


@pytest.mark.parametrize("page", sorted(INTERNALS.glob("*.md")), ids=lambda page: page.stem)
def test_what_the_internals_name_exists(page: Path) -> None:
    missing = [
        f"{path}::{name}"
        for path, name in _DEFINED.findall(page.read_text())
        if not is_defined(path, name)
    ]
    assert not missing


def test_every_table_of_invariants_names_functions_and_tests() -> None:
    for page in INTERNALS.glob("*.md"):
        _, _, table = page.read_text().partition("| invariant | kept by | proven by |\n")
        for row in table.splitlines()[1:]:
            _, _, kept_by, proven_by, _ = row.split("|")
            assert "::" in kept_by, row
            assert "tests/" in proven_by, row


def is_defined(path: str, name: str) -> bool:
    """Whether a file of this tree or of the package exists, and defines a name if one is given."""
    file = next((f for f in (ROOT / path, ROOT / "logfs" / path) if f.is_file()), None)
    if file is None:
        return False
    source = file.read_text()
    definition = r"(?:class|def) {}\b|^{} *=" if file.suffix == ".py" else r"\b{}\b"
    return all(
        re.search(definition.replace("{}", part), source, re.MULTILINE) for part in name.split(".")
    )


def test_the_reference_has_every_public_name() -> None:
    shown = set(re.findall(r"auto\w+:: ([\w.]+)", (ROOT / "docs/library.md").read_text()))
    public = {f"logfs.{name}" for name in logfs.__all__ if name != "LogfsError"}
    public |= {f"logfs.aio.{name}" for name in logfs.aio.__all__}
    spark = {"times.between", "jsonvalues.infer_schema", "lag.LagListener", "lag.QueryLag"}
    assert shown == public | {"logfs.errors"} | {f"logfs.spark.{name}" for name in spark}


def test_a_page_of_the_manual_becomes_markdown() -> None:
    page = Page(
        "logfs-cat",
        1,
        "Print",
        (
            Heading("Synopsis"),
            Synopsis("logfs cat", "PATH"),
            Heading("Description"),
            Paragraph(("Reads *a* <b>…, _see_ logfs(1).",)),
            Verbatim(("Examples:", "    logfs cat x", "    logfs cat y")),
            Heading("Options"),
            Item("-n, --records N", "N_1 records."),
            Heading("Environment"),
            Item("TZ", "The zone."),
        ),
        ("logfs(1)", "systemd.service(5)"),
    )
    text = markdown_of(page, [page, *pages()])
    assert r"Reads \*a\* \<b\>…\, \_see\_ [logfs(1)](logfs.md)\." in text
    assert "Examples\\:\n\n```text\nlogfs cat x\nlogfs cat y\n```" in text
    assert "````{option} -n, --records N\nN\\_1 records\\.\n````" in text
    assert "`TZ`\n: The zone\\." in text


def test_a_sound_site_has_no_broken_links(tmp_path: Path) -> None:
    plant(tmp_path, "")
    assert broken_links(tmp_path) == []


@pytest.mark.parametrize(
    ("planted", "problem"),
    [
        ('<a href="gone.html">x</a>', "gone.html: no such file"),
        ('<a class="x" href="other.html#gone">x</a>', "other.html#gone: no such place in the page"),
        ('<a href="#gone">x</a>', "#gone: no such place in the page"),
        ('<a href="../../outside">x</a>', "../../outside: no such file"),
        ('<a href="http://kafka.apache.org">x</a>', "http://kafka.apache.org: not https"),
        ('<img src="https://host/x.png">', "https://host/x.png: loaded from another host"),
        ('<script src="//host/x.js"></script>', "//host/x.js: loaded from another host"),
        ('<source srcset="gone.svg 2x">', "gone.svg: no such file"),
    ],
)
def test_a_broken_link_is_found(tmp_path: Path, planted: str, problem: str) -> None:
    plant(tmp_path, planted)
    assert broken_links(tmp_path) == [f"page.html: {problem}"]


def test_a_style_sheet_that_loads_from_another_host_is_found(tmp_path: Path) -> None:
    plant(tmp_path, "")
    (tmp_path / "a.css").write_text("@font-face { src: url('https://fonts.host/a.woff2'); }")
    (found,) = broken_links(tmp_path)
    assert found == "a.css: https://fonts.host/a.woff2: loaded from another host"


def plant(site: Path, planted: str) -> None:
    """Write a site of two pages, with something in the first one."""
    (site / "page.html").write_text(PAGE.format(planted=planted))
    (site / "other.html").write_text('<html><p id="there">there</p></html>')
    (site / "a.css").write_text("body { background: url(data:image/png;base64,x); }")
