"""Programs with a screen look at logs and follow them, though their beginning is gone."""

from pathlib import Path

import pytest

from tests.mounting import wait_until
from tests.programs.conftest import Logs
from tests.programs.documents import line_for
from tests.programs.running import Terminal

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


def append(logs: Logs, line: str, topic: str = "web") -> None:
    """Append a line while a program looks."""
    with (logs.point / topic / "0").open("a") as file:
        file.write(f"{line}\n")


def is_whole(logs: Logs, screen: list[str]) -> bool:
    """Tell whether lines of the access log on a screen are lines of it."""
    seen = [line for line in screen if "HTTP/1.1" in line]
    return bool(seen) and set(seen) <= set(logs.web)


def test_less(own: Logs, tmp_path: Path) -> None:
    with Terminal(line_for("less", own.point), tmp_path) as terminal:
        terminal.shows("Waiting for data")
        assert own.web[-1] in terminal.screen
        append(own, "what comes is shown")
        terminal.shows("what comes is shown")
        terminal.press("C-c")
        wait_until(lambda: "Waiting" not in terminal.screen[-1], "less takes keys")
        terminal.press("g")
        terminal.shows(own.web[0])
        assert is_whole(own, terminal.screen)
        terminal.press("/GET .p7 HTTP.* 404", "Enter")
        terminal.shows(next(line for line in own.web if "/p7 " in line and " 404 " in line))


def test_multitail(own: Logs, tmp_path: Path) -> None:
    append(own, "the app has begun", "app")
    with Terminal(line_for("multitail", own.point), tmp_path) as terminal:
        terminal.shows(own.web[-1])
        terminal.shows("the app has begun")
        append(own, "a request")
        append(own, "an event", "app")
        terminal.shows("a request")
        terminal.shows("an event")
        assert is_whole(own, terminal.screen)


def test_lnav(own: Logs, tmp_path: Path) -> None:
    with Terminal(line_for("lnav", own.point), tmp_path) as terminal:
        terminal.shows(own.web[-1])
        append(own, "what comes is shown")
        terminal.shows("what comes is shown")
        assert is_whole(own, [line.strip("│┌└ ") for line in terminal.screen])
        terminal.press("g")
        terminal.shows(own.web[0])
        assert is_whole(own, [line.strip("│┌└ ") for line in terminal.screen])


def test_vim(own: Logs, tmp_path: Path) -> None:
    with Terminal(line_for("vim", own.point), tmp_path) as terminal:
        terminal.shows(own.web[0])
        append(own, "what has come")
        terminal.press(":e", "Enter", "G")
        terminal.shows("what has come")
        terminal.press(":w!", "Enter")
        terminal.shows("Can't open file for writing")
    assert (own.point / "web" / "0").read_text().splitlines() == [*own.web, "what has come"]
