"""The tree that Sphinx reads: the documents at their places, and those that are made."""

import re
from pathlib import Path

from docs.commands import has_page, markdown_of
from logfs.cli.manual import pages

ROOT = Path(__file__).parents[1]
DOCUMENTS = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "tests/README.md"),
    *("logfs/guides/*", "logfs/fs/SEMANTICS.md", "benchmarks/RESULTS.md", "examples/pipelines/*"),
    "docs/internals/*.md",
)
"""What is copied from this tree: pages, and files that they show or link to."""
PICTURES = "benchmarks/plots"
"""What the README shows by its own HTML, which Sphinx leaves as it is."""
_LINK = re.compile(r"\]\(([^()#:]+\.md)((?:#[^()]*)?)\)")


def stage(source: Path) -> None:
    """Make the tree below a directory; files that did not change keep their times."""
    staged = {**_copied(), **_made()}
    for path in source.rglob("*"):
        if path.is_file() and str(path.relative_to(source)) not in staged:
            path.unlink()
    for name, content in staged.items():
        path = source / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _copied() -> dict[str, bytes]:
    found = {}
    for pattern in DOCUMENTS:
        for path in sorted(ROOT.glob(pattern)):
            if not path.is_file():
                continue
            name = str(path.relative_to(ROOT))
            content = path.read_bytes()
            if path.suffix == ".md":
                content = _with_first_page(name, content.decode()).encode()
            found["index.md" if name == "README.md" else name] = content
    contents = (ROOT / "docs/contents.md").read_bytes()
    found["index.md"] += b"\n" + contents
    found["library.md"] = (ROOT / "docs/library.md").read_bytes()
    for path in sorted((ROOT / PICTURES).iterdir()):
        found[f"extra/{PICTURES}/{path.name}"] = path.read_bytes()
    return found


def _with_first_page(name: str, text: str) -> str:
    """Return a document whose links to the README lead to the first page."""
    here = (ROOT / name).parent

    def link(match: re.Match[str]) -> str:
        target, fragment = match.groups()
        if (here / target).resolve() != ROOT / "README.md":
            return match[0]
        return f"]({target.removesuffix('README.md')}index.md{fragment})"

    return _LINK.sub(link, text)


def _made() -> dict[str, bytes]:
    manual = pages()
    return {
        f"manual/{page.name}.md": markdown_of(page, manual).encode()
        for page in manual
        if has_page(page)
    }
