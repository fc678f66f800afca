"""The README's example of a program that writes exactly once runs."""

import re
from pathlib import Path

import pytest

from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.log.store import LogStore
from logfs.machine.host import current_host
from tests.fakes import START_MS
from tests.log.support import lines_of
from tests.mounting import ROOT

EXAMPLES = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def store_in(directory: Path) -> LogStore:
    return LogStore.open(PosixDisk(str(directory)), StoreConfig(), current_host(), now_ms=START_MS)


def test_the_example_writes_everything_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    store = store_in(data)
    store.create_topic("orders", 1, {}, START_MS)
    store.close(START_MS)
    monkeypatch.chdir(tmp_path)
    examples = EXAMPLES.findall((ROOT / "README.md").read_text())
    (example,) = [text for text in examples if "append_records" in text]
    exec(example, {})
    log = store_in(data).partition("orders", 0)
    assert lines_of(log) == [b"4711;shipped", b"4712;paid"] * 2
    assert (log.last_stable_offset, log.log_end_offset) == (5, 5)
