"""Programs that search, count and load logs, though their beginning is gone, and that copy them."""

import json
import mmap
import sqlite3
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.programs.conftest import Logs
from tests.programs.documents import line_for
from tests.programs.running import printed, shell

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


def of_python(expression: str, cwd: Path) -> str:
    """Return what another Python process prints of an expression, which may fail."""
    script = f"import json; import {expression.partition('.')[0]}; print({expression})"
    result = shell(f"{sys.executable} -c {_quoted(script)}", cwd)
    return result.stdout or result.stderr.splitlines()[-1]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def missing_of(web: list[str]) -> list[str]:
    return [line for line in web if " 404 " in line]


def test_ripgrep(logs: Logs, tmp_path: Path) -> None:
    line = line_for("grep, ripgrep", logs.point)
    assert printed(line, tmp_path) == f"{logs.point}/web/0:{len(missing_of(logs.web))}\n"
    assert line.startswith("rg -c ")
    assert printed(f"grep -r{line.removeprefix('rg -')}", tmp_path) == printed(line, tmp_path)


def test_awk_and_sort(logs: Logs, tmp_path: Path) -> None:
    paths = Counter(line.split()[6] for line in missing_of(logs.web))
    line = line_for("awk, sort, wc", logs.point)
    expected = [f"{count} {path}" for path, count in sorted(paths.items())]
    assert [" ".join(row.split()) for row in printed(line, tmp_path).splitlines()] == expected
    growing = line.replace("0@-1d..latest", "0")
    assert growing != line
    assert printed(growing, tmp_path) == printed(line, tmp_path)


def test_jq(logs: Logs, tmp_path: Path) -> None:
    plums = [value for key, value in logs.orders if key == "plum"]
    assert printed(line_for("jq", logs.point), tmp_path).splitlines() == plums


def test_sqlite(logs: Logs, tmp_path: Path) -> None:
    printed(line_for("sqlite3", logs.point), tmp_path)
    with sqlite3.connect(tmp_path / "orders.db") as database:
        assert database.execute("select key, value from orders").fetchall() == logs.orders
    database.close()
    refused = shell("sqlite3 orders.db 'create table orders(key, value)'", logs.point / "orders")
    assert refused.returncode != 0


def test_duckdb(logs: Logs, tmp_path: Path) -> None:
    line = line_for("duckdb", logs.point)
    counts = Counter(key for key, _ in logs.orders)
    table = of_python(f"{line}.fetchall()", tmp_path)
    assert dict(eval(table)) == counts
    assert "IO Error" in of_python(
        line.replace("@-1d..latest", "").replace('")', '").fetchall()'), tmp_path
    )


def test_pandas(logs: Logs, tmp_path: Path) -> None:
    line = line_for("pandas", logs.point)
    frame = json.loads(of_python(f"{line}[['key', 'value']].to_json(orient='values')", tmp_path))
    assert [tuple(row) for row in frame] == logs.orders


def test_goaccess(logs: Logs, tmp_path: Path) -> None:
    line = line_for("goaccess", logs.point)
    printed(line, tmp_path)
    assert "<html" in (tmp_path / "report.html").read_text()
    printed(line.replace("report.html", "report.json"), tmp_path)
    found = json.loads((tmp_path / "report.json").read_text())["general"]
    assert (found["valid_requests"], found["failed_requests"]) == (len(logs.web), 0)


def test_python(logs: Logs) -> None:
    line = line_for("Python", logs.point)
    with eval(line) as file:
        assert [text.rstrip("\n") for text in file] == logs.web
        with pytest.raises(OSError, match="No such device"):
            mmap.mmap(file.fileno(), 100, prot=mmap.PROT_READ)


def test_tail(logs: Logs, tmp_path: Path) -> None:
    line = line_for("tail", logs.point)
    assert " -F " in line
    assert printed(line.replace(" -F", ""), tmp_path).splitlines() == logs.web[-3:]


def test_tac(logs: Logs, tmp_path: Path) -> None:
    assert printed(line_for("tac", logs.point), tmp_path).splitlines() == logs.web[::-1]


def test_tar(logs: Logs, tmp_path: Path) -> None:
    line = line_for("tar, uploads", logs.point)
    printed(line, tmp_path)
    packed = printed("tar -xOf web.tar", tmp_path)
    assert packed.splitlines() == logs.web
    growing = shell(line.replace("@earliest..latest", ""), tmp_path)
    assert growing.returncode != 0 or printed("tar -xOf web.tar", tmp_path) != packed


def test_scp_and_rsync(logs: Logs, tmp_path: Path) -> None:
    line = line_for("rsync, scp", logs.point)
    for program in ("scp", "rsync"):
        home = tmp_path / program
        home.mkdir()
        assert " scp ./" in line
        printed(line.replace(" scp ", f" {program} "), home)
        (copy,) = (path for path in home.iterdir() if path.name.startswith("0@"))
        assert copy.read_text().splitlines() == logs.web
    # Without ./ it is a host, which is reached with a program that refuses.
    refused = shell(line.replace(" scp ./", " rsync -e false "), tmp_path)
    assert refused.returncode != 0
