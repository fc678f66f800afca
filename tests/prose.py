"""Find words and phrases that the house rules of language rule out; ``CONTRIBUTING.md`` has them.

Markdown, comments, docstrings and string literals are searched, and the names of files, classes and
tests. Code spans (`` `like this` ``) are not prose; nor is a string that is a single word.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

SKIPPED = (
    *("tests/test_prose.py", "tests/prose.py", "tests/fuzz/corpus/"),
    *("benchmarks/runs/", "benchmarks/RESULTS.md"),
)
"""Prefixes of paths that are not searched: these rules themselves, and data."""

TREES = ("logfs", "pyspark_logfs", "tests", "benchmarks", "docs", "examples", "systemd", ".ci")
"""Directories that are searched, and the files next to them."""


class Rule(NamedTuple):
    """A pattern that prose must not contain."""

    name: str
    pattern: re.Pattern[str]
    advice: str


def _rule(name: str, pattern: str, advice: str) -> Rule:
    """Return a rule; a space in its pattern is any white space, so also the end of a line."""
    return Rule(name, re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE), advice)


_LAG = r"(?P<allowed>\b(?:lag|lags|lagged|lagging|fall|falls|falling|fallen|fell|far|left) )?"
"""A word before ``behind`` that makes it one of lag, which is allowed."""

RULES = (
    _rule("who", r"\b(?:who|whom|whoever)\b(?!:)", "name the reader, the writer, the process"),
    _rule("nobody", r"\b(?:nobody|somebody)\b", "name the reader, the writer, the process"),
    _rule("whatever", r"\bwhatever\b", "say which: any, every, all"),
    _rule("he", r"\b(?:he|his|him|himself|she|herself)\b", "programs are they or it"),
    _rule("anew", r"\banew\b", "again, or a verb with re-: rebuild, reopen, restart"),
    _rule("in front of", r"\bin front\b", "before"),
    _rule("behind", _LAG + r"\bbehind\b(?!:)", "after; behind is for lag only"),
    _rule("stands", r"\b(?:stands|stood|standing)\b", "is, contains, is in"),
    _rule("counts", r"\b(?-i:[Cc]ounts)\b(?!:)", "applies, takes effect, is included, number"),
    _rule(
        "begin",
        r"\b(?:the|a|its|their|each|every|same|from|own) begin\b|\bbegin of\b",
        "beginning, start",
    ),
    _rule(
        "as it has it",
        r"\bas (?:[\w'\u2019/().]+ ){1,3}ha(?:s|ve|d) (?:it|them)\b",
        "like, follows",
    ),
    _rule("goes on", r"\b(?:go|goes|gone|going|went) on\b", "continue, resume, run"),
    _rule(
        "of its own",
        r"\bof (?:its|their) own(?=[.,;:)?!]|$| (?:in|with|by|if|when|and|or|at|on|for|to|as)\b)",
        "its own thread, a separate thread",
    ),
    _rule("without Python", r"\bwithout python\b", "natively, native"),
    _rule("Of the", r"(?:^|: |\. )(?-i:Of) (?-i:[a-z])", "name the noun: the size of the file"),
)
"""What prose must not contain."""

NAMES = frozenset(
    (
        *("standing", "dirt", "filthiest", "forsake", "distrust", "hasten", "lease", "wish"),
        *("sieve", "complaints", "asking", "survivors"),
    )
)
"""Words that no file, class and test function has in its name, besides those of the rules."""

EXCEPTIONS: tuple[tuple[str, str], ...] = (
    ("tests/cli/test_mount_helper.py", "become('nobody')"),
    ("tests/cli/test_mount_helper.py", "False False nobody"),
)
"""(path, text): pieces of prose that may break a rule, white space in them as one space."""

TRIGGER = re.compile(
    r"\b(?:who|whom|whoever|nobody|somebody|whatever|he|his|him|himself|she|herself|anew|behind"
    r"|stands|stood|standing|counts|begin|in\W+front|ha(?:s|ve|d)\W+(?:it|them)"
    r"|(?:go|goes|gone|going|went)\W+on|(?:its|their)\W+own|without\W+python)\b|\b(?-i:Of)\W",
    re.IGNORECASE,
)
"""What prose contains in which a rule finds something, and the source of such prose."""


class Text(NamedTuple):
    """A piece of prose, and where it is in its file."""

    line: int
    text: str


class Finding(NamedTuple):
    """A word that prose must not contain."""

    path: str
    line: int
    rule: str
    excerpt: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: …{self.excerpt}… ({self.advice})"


_CODE_SPAN = re.compile(r"``[^`]+``|`[^`]+`")
_COMMENT_MARK = re.compile(r"^[ \t]*(?:#+|//+|/?\*+|;)?[ \t]?", re.MULTILINE)
_CYTHON = re.compile(
    r'(?P<string>[rbfRBF]*(?:"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\''
    r'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'))'
    r"|(?P<comment>(?:#[^\n]*\n[ \t]*)*#[^\n]*)",
    re.DOTALL,
)
_C = re.compile(
    r'(?P<string>"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\')'
    r"|(?P<comment>/\*.*?\*/|(?://[^\n]*\n[ \t]*)*//[^\n]*)",
    re.DOTALL,
)
_NAMED = re.compile(r"^\s*(?:class|(?:async )?def(?= test_)) (\w+)", re.MULTILINE)
"""A class or a test."""
_STRING_EDGE = re.compile(r"^([rbfRBF]*)(\"\"\"|'''|\"|')")


def sources() -> list[Path]:
    """Return the files of the project that hold prose."""
    found = [path for path in ROOT.iterdir() if path.is_file() and path.name[0] != "."]
    for tree in TREES:
        found += [path for path in (ROOT / tree).rglob("*") if path.is_file()]
    return sorted(path for path in found if _is_searched(path))


def _is_searched(path: Path) -> bool:
    """Whether a file is prose or source, and not made by a build."""
    name = path.relative_to(ROOT).as_posix()
    if name.startswith(SKIPPED) or name == "LICENSE" or "__pycache__" in name:
        return False
    if path.suffix == ".c" and path.with_suffix(".pyx").exists():
        return False
    return path.suffix in _READERS or name.startswith(".ci/")


def texts_of(path: Path, source: str) -> list[Text]:
    """Return the prose of a file."""
    return list(_READERS.get(path.suffix, _whole)(source))


def _python(source: str) -> Iterator[Text]:
    """Yield the strings of a Python file, and its comments, with those of adjacent lines joined."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if line != last + 1:
            yield Text(first, "\n".join(block))
            block, first = [], line
        block.append(token.string.lstrip("#"))
        last = line
    yield Text(first, "\n".join(block))
    tree = ast.parse(source)
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str() as text) if id(node) not in parts:
                yield Text(node.lineno, text)
            case ast.JoinedStr(values=values):
                pieces = (part.value if isinstance(part, ast.Constant) else "{}" for part in values)
                yield Text(node.lineno, "".join(str(piece) for piece in pieces))
            case _:
                pass


def _scanned(pattern: re.Pattern[str], source: str) -> Iterator[Text]:
    """Yield the comments and strings that a pattern finds."""
    for match in pattern.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        if match["comment"] is not None:
            yield Text(line, _COMMENT_MARK.sub("", match["comment"]))
        elif edge := _STRING_EDGE.match(match["string"]):
            yield Text(line, match["string"][edge.end() : -len(edge[2])])


def _cython(source: str) -> Iterator[Text]:
    """Yield the comments and strings of Cython."""
    return _scanned(_CYTHON, source)


def _c(source: str) -> Iterator[Text]:
    """Yield the comments and strings of C."""
    return _scanned(_C, source)


def _whole(source: str) -> Iterator[Text]:
    """Yield all of a file, without the marks of its comments."""
    yield Text(1, _COMMENT_MARK.sub("", source))


def _markdown(source: str) -> Iterator[Text]:
    """Yield a document in parts, so that the code blocks are searched without their fences."""
    line = 1
    for part in re.split(r"^( *```.*\n)", source, flags=re.MULTILINE):
        yield Text(line, "" if part.lstrip().startswith("```") else part)
        line += part.count("\n")


_READERS = {
    **dict.fromkeys((".py", ".pyi"), _python),
    **dict.fromkeys((".pyx", ".pxi", ".pxd"), _cython),
    **dict.fromkeys((".c", ".h", ".java"), _c),
    ".md": _markdown,
    **dict.fromkeys(
        (".sh", ".toml", ".yml", ".yaml", ".service", ".timer", ".conf", ".in"), _whole
    ),
}


def findings_in_text(path: str, text: Text) -> Iterator[Finding]:
    """Yield what one piece of prose must not contain."""
    if re.fullmatch(r"\s*\S*\s*", text.text):
        return
    plain = _CODE_SPAN.sub(lambda span: "\n" * span[0].count("\n") + "`", text.text)
    for rule in RULES:
        for match in rule.pattern.finditer(plain):
            if match.groupdict().get("allowed"):
                continue
            line = text.line + plain.count("\n", 0, match.start())
            excerpt = " ".join(plain[max(0, match.start() - 30) : match.end() + 30].split())
            if any(path == where and allowed in excerpt for where, allowed in EXCEPTIONS):
                continue
            yield Finding(path, line, rule.name, excerpt, rule.advice)


def _words(name: str) -> list[str]:
    """Return the words of a name in snake_case or CamelCase."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)]


def findings_in_names(path: str, source: str) -> Iterator[Finding]:
    """Yield the words that the names of a file, its classes and its tests must not contain."""
    names = [(1, Path(path).stem)]
    if path.endswith(".py"):
        names += [
            (source.count("\n", 0, match.start(1)) + 1, match[1])
            for match in _NAMED.finditer(source)
        ]
    for line, name in names:
        for word in sorted(NAMES.intersection(_words(name))):
            yield Finding(path, line, "name", name, f"without {word!r}")
        spoken = Text(line, f"a {' '.join(_words(name))}")
        if not TRIGGER.search(spoken.text):
            continue
        for found in findings_in_text(path, spoken):
            if found.rule not in {"counts", "of its own"}:
                yield found._replace(excerpt=name)


def findings_in(path: Path) -> list[Finding]:
    """Return what a file must not contain, by line."""
    name = path.relative_to(ROOT).as_posix()
    source = path.read_text("utf-8", errors="replace")
    found = [*findings_in_names(name, source)]
    for text in texts_of(path, source) if TRIGGER.search(source) else []:
        found += findings_in_text(name, text)
    return sorted(found, key=lambda finding: finding.line)


LONGEST_SENTENCE = 30
"""The most words of a sentence in the documents for users; code spans are no words."""
_BLOCKS = re.compile(r"^ *```.*?^ *```$|^(?: {4,}[^ *-]|[|#<])[^\n]*$", re.MULTILINE | re.DOTALL)
_PARAGRAPHS = re.compile(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) )")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SENTENCE_END = re.compile(r"(?<=[.?!])[*)]*\s+(?=[*(]*[A-Z`\u2026])")
_WORD = re.compile(r"[A-Za-z0-9][\w.,'\u2019/+-]*")


def long_sentences(markdown: str, longest: int = LONGEST_SENTENCE) -> list[str]:
    """Return the sentences of a document that have too many words; tables and code have none."""
    prose = _BLOCKS.sub("\n", markdown)
    prose = _LINK.sub(r"\1", _CODE_SPAN.sub("`", prose))
    return [
        " ".join(sentence.split())
        for paragraph in _PARAGRAPHS.split(prose)
        for sentence in _SENTENCE_END.split(paragraph)
        if len(_WORD.findall(sentence)) > longest
    ]
