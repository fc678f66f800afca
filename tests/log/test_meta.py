"""How ``.meta`` is written."""

import json

from logfs.services.meta import format_meta
from logfs.types import IsolationLevel


def test_facts_are_lines_of_json() -> None:
    facts = {
        "text": 'a "quoted" line\nwith ä',
        "level": IsolationLevel.READ_COMMITTED,
        "number": -7,
        "share": 0.5,
        "is_so": True,
        "none": None,
        "nested": {"empty": {}, "list": [1, None, {"deep": False}]},
    }
    data = format_meta(facts)
    assert json.loads(data) == facts
    assert data.count(b"\n") == len(facts) + 2
    assert "ä".encode() in data
