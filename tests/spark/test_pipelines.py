"""The pipelines among the examples, on real logs where there are some."""

import json
import re
import runpy
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.mounting import ROOT, Mount, output

pytestmark = pytest.mark.spark

PIPELINES = ROOT / "examples" / "pipelines"
REAL = {"ssh": "OpenSSH.log", "web": "Apache.log"}
_LOGIN = re.compile(
    r"^(\w{3} +\d+ \S+) .*?\]: (?:message repeated (\d+) times: \[ )?"
    r"(Failed|Accepted) \S+ for (?:invalid user )?(.*) from (\S+) port"
)


class Login:
    """A line of sshd, parsed by other means than the pipelines."""

    def __init__(self, found: re.Match[str]) -> None:
        now = datetime.now()
        self.time = datetime.strptime(f"{now.year} {found[1]}", "%Y %b %d %H:%M:%S")
        if self.time > now + timedelta(days=1):
            self.time = self.time.replace(year=now.year - 1)
        self.outcome, self.user, self.address = found[3], found[4], found[5]


@pytest.fixture(scope="module")
def lines() -> dict[str, list[str]]:
    """The lines of two topics, those of the sample where there are no real ones."""
    directory = ROOT.parent / "shared" / "data"
    if not directory.is_dir():
        return {topic: sample(topic) for topic in REAL}
    return {topic: (directory / name).read_text().splitlines() for topic, name in REAL.items()}


def sample(topic: str) -> list[str]:
    return output(sys.executable, PIPELINES / "sample.py", topic).decode().splitlines()


@pytest.fixture
def data(lines: dict[str, list[str]], tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for topic, said in lines.items():
        (tmp_path / topic).write_text("".join(f"{line}\n" for line in said))
        logfs("append", "--create", tmp_path / "data" / topic / "0", tmp_path / topic)
    return tmp_path / "data"


def logfs(*arguments: str | Path) -> None:
    output(sys.executable, "-m", "logfs", *arguments, cwd=ROOT)


def logins(said: list[str]) -> Iterator[Login]:
    for line in said:
        if found := _LOGIN.match(line):
            yield from [Login(found)] * int(found[2] or 1)


def submit(monkeypatch: pytest.MonkeyPatch, script: str, *arguments: str | Path) -> None:
    """Run a pipeline as spark-submit does, in the session there is."""
    monkeypatch.syspath_prepend(PIPELINES)
    monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
    runpy.run_path(str(PIPELINES / script), run_name="__main__")


def rows(printed: str) -> list[list[str]]:
    """Take the rows out of what ``show`` prints."""
    table = [line for line in printed.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1:]]


@pytest.mark.usefixtures("spark")
def test_brute_force(
    lines: dict[str, list[str]],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = [login for login in logins(lines["ssh"]) if login.outcome == "Failed"]
    picture = tmp_path / "attacks.svg"
    submit(monkeypatch, "brute_force.py", data, "--picture", picture, "--web", "web")
    windows: dict[tuple[datetime, str], list[Login]] = {}
    for login in failed:
        since = login.time.replace(minute=login.time.minute // 10 * 10, second=0)
        windows.setdefault((since, login.address), []).append(login)
    attacks = {
        (str(since), address): (
            len(found),
            len({login.user for login in found}),
            str(found[-1].time),
        )
        for (since, address), found in windows.items()
        if len(found) >= 5
    }
    assert len(attacks) > 3
    printed = rows(capsys.readouterr().out)
    assert {(r[0], r[1]): (int(r[2]), int(r[3]), r[4]) for r in printed} == attacks
    assert [int(r[2]) for r in printed] == sorted((int(r[2]) for r in printed), reverse=True)
    drawn = picture.read_text()
    worst = Counter(login.address for login in failed).most_common(3)
    assert all(f">{address} ({count})<" in drawn for address, count in worst)
    levels = Counter(re.findall(r"\] \[(\w+)\]", "\n".join(lines["web"])))
    assert all(f">{level} ({count})<" in drawn for level, count in levels.items())


@pytest.mark.usefixtures("spark")
def test_accounts(
    lines: dict[str, list[str]],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    logfs("topic", "create", data / "accounts", "--config", "cleanup.policy=compact")
    (tmp_path / "users").write_text("root\tunknown yet\nadmin\tA. Min\nroot\tCharlie Root\n")
    logfs("append", data / "accounts" / "0.tsv", tmp_path / "users")
    (tmp_path / "users").write_text("admin\t\\N\n")  # deletes it
    logfs("append", data / "accounts" / "0.tsv", tmp_path / "users")
    submit(monkeypatch, "accounts.py", data)
    tried = list(logins(lines["ssh"]))
    failed = Counter(login.user.strip() for login in tried if login.outcome == "Failed")
    printed = {r[0]: r[1:] for r in rows(capsys.readouterr().out)}  # the first 50
    counts = sorted(
        (failed[user] for user in {login.user.strip() for login in tried}), reverse=True
    )
    assert [int(r[2]) for r in printed.values()] == counts[:50]
    assert all(failed[user] == int(r[2]) for user, r in printed.items())
    assert printed["root"][:2] == ["true", "Charlie Root"]
    assert printed["admin"][:2] == ["false", "NULL"]
    of_root = {login.address for login in tried if login.user == "root"}
    assert int(printed["root"][4]) == len(of_root)


@pytest.mark.fuse
@pytest.mark.usefixtures("spark")
def test_totals(
    lines: dict[str, list[str]], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logfs("topic", "create", data / "attackers", "--config", "cleanup.policy=compact")
    half = len(lines["ssh"]) // 2
    with Mount(data, tmp_path / "mnt") as mount:
        for said in (lines["ssh"], lines["ssh"][half:]):  # the second half comes once more
            if said is not lines["ssh"]:
                with (mount.point / "ssh" / "0").open("a") as log:
                    log.writelines(f"{line}\n" for line in said)
            submit(monkeypatch, "totals.py", data, tmp_path / "checkpoint", "--once")
        written = (mount.point / "attackers" / "0.tsv").read_text().splitlines()
    totals = {key: json.loads(value) for key, value in (line.split("\t") for line in written)}
    twice = [*lines["ssh"], *lines["ssh"][half:]]
    failed = Counter(login.address for login in logins(twice) if login.outcome == "Failed")
    assert {address: total["failures"] for address, total in totals.items()} == failed
    again = {login.address for login in logins(lines["ssh"][half:]) if login.outcome == "Failed"}
    assert len(written) == len(failed) + len(again)  # only what has changed is written


@pytest.mark.usefixtures("spark")
def test_the_errors_of_a_web_server(
    lines: dict[str, list[str]],
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    submit(monkeypatch, "errors_from_logfs.py", data)
    hours: Counter[str] = Counter()
    for line in lines["web"]:
        if found := re.match(r"\[\w+ (\w+ \d+ [\d:]+ \d+)\] \[error\]", line):
            hour = datetime.strptime(found[1], "%b %d %H:%M:%S %Y").replace(minute=0, second=0)
            hours[str(hour)] += 1
    assert {r[0]: int(r[1]) for r in rows(capsys.readouterr().out)} == hours


def test_two_lines_change_from_kafka_to_logfs() -> None:
    jobs = [
        (PIPELINES / f"errors_from_{name}.py").read_text().rpartition('"""')[2].splitlines()
        for name in ("kafka", "logfs")
    ]
    changed = [pair for pair in zip(*jobs, strict=True) if pair[0] != pair[1]]
    assert changed == [
        ('    spark.read.format("kafka")', '    spark.read.format("logfs")'),
        ('    .option("kafka.bootstrap.servers", sys.argv[1])', '    .option("path", sys.argv[1])'),
    ]


def test_the_picture_is_the_one_of_the_sample() -> None:
    drawn = (PIPELINES / "attacks.svg").read_text()
    failed = Counter(
        login.address for login in logins(sample("ssh")) if login.outcome == "Failed"
    ).most_common(3)
    assert all(f">{address} ({count})<" in drawn for address, count in failed)
