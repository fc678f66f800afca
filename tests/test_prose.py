"""The house rules of language, as far as a list of words can check them: ``tests/prose.py``.

``python -m tests.test_prose [PATH...]`` prints the findings below these paths, and their number for
each file.
"""

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.prose import (
    EXCEPTIONS,
    LONGEST_SENTENCE,
    ROOT,
    RULES,
    TRIGGER,
    Finding,
    Text,
    findings_in,
    findings_in_names,
    findings_in_text,
    long_sentences,
    sources,
    texts_of,
)

PLANTED = {
    "who": "A reader who waits can be interrupted.",
    "nobody": "Nobody reads it.",
    "whatever": "It answers, whatever the version.",
    "he": "The writer loses his lock.",
    "anew": "The index is built\nanew.",
    "in front of": "Bytes in front\n    of the batch.",
    "behind": "The batch behind this one.",
    "stands": "The offset stands in the header.",
    "counts": "The last value counts.",
    "begin": "It is read from the begin of the segment.",
    "as it has it": "A header as Kafka has it.",
    "goes on": "The reader goes\non.",
    "of its own": "It has a thread of its own, too.",
    "without Python": "It is answered without Python.",
    "Of the": "size: Of the file.",
}
"""A sentence for each rule that it finds."""

PYTHON = '''"""Anew."""

text = 1
# in
# front of it
raise ValueError(f"{text} anew")
"x"
"of it anew"
'''
CYTHON = """def f():
    '''Read
    anew.'''
    return 1  # in
    # front of it
x = "of {1} anew"
"""
SOURCES = {
    ".py": PYTHON,
    ".pyx": CYTHON,
    ".c": '/* in\n * front of it */\nputs("read anew");\n// in\n// front of it\n',
    ".sh": "x=1\n# in\n# front of it\necho anew\n",
    ".md": "# Head\n\n* in\n  front of it, ``anew``, `stands`\n\n```\nanew `x\n```\n\nread anew\n",
}
LINES = {".py": [4, 6, 8], ".pyx": [3, 4, 6], ".c": [1, 3, 4], ".sh": [2, 4], ".md": [3, 7, 10]}


def rules_of(text: str) -> list[str]:
    """Return the names of the rules that a text breaks."""
    return [found.rule for found in findings_in_text("a.md", Text(1, text))]


def findings(paths: list[Path]) -> list[Finding]:
    """Return the findings below some paths."""
    whole = [path.resolve() for path in paths]
    return [
        found
        for path in sources()
        if any(path == one or one in path.parents for one in whole)
        for found in findings_in(path)
    ]


def test_the_text_of_the_project_keeps_the_rules_of_language() -> None:
    found = [str(one) for one in findings([ROOT])]
    assert not found, "\n".join(found)


def test_every_exception_is_needed() -> None:
    needed = {
        exception
        for path in sources()
        for exception in EXCEPTIONS
        if path.relative_to(ROOT).as_posix() == exception[0]
        and exception[1] in " ".join(path.read_text("utf-8").split())
    }
    assert needed == set(EXCEPTIONS)


def test_every_rule_has_a_planted_mistake() -> None:
    assert list(PLANTED) == [rule.name for rule in RULES]


@pytest.mark.parametrize("rule", PLANTED)
def test_a_planted_mistake_is_found(rule: str) -> None:
    assert rules_of(PLANTED[rule]) == [rule]
    assert TRIGGER.search(PLANTED[rule])


@pytest.mark.parametrize(
    "text",
    [
        "A reader that lags behind, falls behind or is far behind.",
        "Words such as `anew` in a code span.",
        "nobody",
        "A whole, the heap, hiss, counting and standards.",
        "Files that begin with a dot.",
    ],
)
def test_what_the_rules_allow_is_not_found(text: str) -> None:
    assert rules_of(text) == []


@pytest.mark.parametrize("suffix", SOURCES)
def test_comments_and_strings_are_found_with_their_lines(suffix: str) -> None:
    found = [
        one.line
        for text in texts_of(Path(f"a{suffix}"), SOURCES[suffix])
        for one in findings_in_text("a", text)
    ]
    assert sorted(found) == LINES[suffix]


def test_names_of_files_classes_and_tests_are_searched() -> None:
    source = "class LeaseTable: ...\ndef test_who_lags_behind(): ...\ndef dirt(): ...\n"
    found = [(one.line, one.excerpt) for one in findings_in_names("log/scan_anew.py", source)]
    assert sorted(found) == [(1, "LeaseTable"), (1, "scan_anew"), (2, "test_who_lags_behind")]


DOCUMENTS = ("README.md", "logfs/fs/SEMANTICS.md", "logfs/guides/*.md")


def test_sentences_of_the_documents_for_users_are_short() -> None:
    found = {
        path.name: sentences
        for pattern in DOCUMENTS
        for path in ROOT.glob(pattern)
        if (sentences := long_sentences(path.read_text("utf-8")))
    }
    assert not found


def test_a_sentence_is_measured_without_code_and_tables() -> None:
    words = " ".join(["Word"] * LONGEST_SENTENCE)
    assert long_sentences(f"# {words} word\n\n{words}.\n**{words}.** {words}.\n") == []
    assert long_sentences(f"* {words}.\n* {words}\n\n| {words} word |\n") == []
    assert long_sentences(f"{words} `word word`.\n\n```\n{words} word\n```\n") == []
    assert long_sentences(f"Short.\n{words}\n[word](a.md).") == [f"{words} word."]
    assert long_sentences(f"* {words}: word") == [f"* {words}: word"]


def main(arguments: list[str]) -> int:
    """Print the findings below some paths, or of everything; returns the exit status."""
    found = findings([Path(path) for path in arguments] or [ROOT])
    for one in found:
        print(one)
    for path, number in Counter(one.path for one in found).items():
        print(f"{number:6} {path}")
    print(f"{len(found):6} in all")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
