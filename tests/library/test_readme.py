"""The README's programs run."""

import re
from pathlib import Path

import pytest

import logfs
from tests.mounting import ROOT

_PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_programs_do_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    with logfs.open_store(tmp_path / "data") as store:
        store.create_topic("orders")
    monkeypatch.chdir(tmp_path)
    first, second = _PROGRAM.findall((ROOT / "README.md").read_text())
    exec(first, {})
    exec(second, {})
    with logfs.open("data/orders/0", isolation_level="read_committed") as orders:
        assert [record.value for record in orders.read()] == [
            b"4711;shipped", b"4712;paid", b"4713;paid", b"4712;shipped", b"4713;shipped",
        ]  # fmt: skip
        assert orders.end_offset == 6
