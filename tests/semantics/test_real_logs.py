"""Logs that real programs wrote: in through ``>>``, out in every way there is, byte for byte."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mounting import ROOT, Mount, logfs, now_ms, output, run, wait_until

pytestmark = pytest.mark.fuse

FILES = [
    # Real logs beside the repository, where there are some; else what every Debian has.
    *sorted((ROOT.parent / "shared" / "data").glob("*.log")),
    *sorted(Path("/usr/share/common-licenses").glob("GPL-[0-9]")),
]


def _generated() -> dict[str, bytes]:
    """Return texts with everything that logs are not supposed to have."""
    all_bytes = bytes(byte for byte in range(256) if byte != 0x0A)
    return {
        "generated-crlf": b"".join(b"line %d\r\n" % n for n in range(5_000)),
        "generated-binary": b"\n".join(all_bytes[n % 200 :] for n in range(2_000)),
        "generated-empty-lines": b"\n" * 3_000 + b"x\n\n",
        "generated-utf-16": "zwei Bytes, und ☃\n".encode("utf-16-le") * 500,
        "generated-long-lines": b"".join(b"%06d" % n * 10_000 + b"\n" for n in range(40)),
        "generated-unfinished": b"the only line",
    }


TEXTS: dict[str, bytes | Path] = {**_generated(), **{path.name: path for path in FILES}}


class Appended(NamedTuple):
    """A text that was appended to partition 0 of its own topic."""

    mount: Mount
    partition: Path
    text: bytes
    before_ms: int
    after_ms: int

    @property
    def lines(self) -> list[bytes]:
        return self.text.split(b"\n")[:-1]

    def name(self, selector: str, view: str = "") -> Path:
        return self.partition.with_name(f"0@{selector}{view}")


def _next_ms() -> int:
    """Return a time, in ms, that is later than what was written before."""
    now = now_ms()
    wait_until(lambda: now_ms() > now, "a millisecond has passed")
    return now_ms()


@pytest.fixture(scope="module", params=TEXTS)
def appended(
    shared_mount: Mount, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Appended:
    """One of the texts, appended with ``cat FILE >>`` between two other lines."""
    source = TEXTS[request.param]
    text = source.read_bytes() if isinstance(source, Path) else source
    file = tmp_path_factory.mktemp("text") / "file"
    file.write_bytes(text)
    topic = shared_mount.point / f"real-{request.param}"
    topic.mkdir()
    partition = topic / "0"
    output("bash", "-c", "echo before >> 0", cwd=topic)
    before_ms = _next_ms()
    output("bash", "-c", f"cat {file} >> 0", cwd=topic)
    after_ms = _next_ms()
    output("bash", "-c", "echo after >> 0", cwd=topic)
    # A last line without a newline gets one.
    whole = text if text.endswith(b"\n") else text + b"\n"
    return Appended(shared_mount, partition, whole, before_ms, after_ms)


def test_it_is_read_byte_for_byte(appended: Appended) -> None:
    expected = b"before\n" + appended.text + b"after\n"
    assert appended.partition.read_bytes() == expected
    assert output("cat", appended.partition) == expected
    assert logfs("cat", appended.partition) == expected
    stored = appended.mount.data / appended.partition.parent.name / "0"
    assert logfs("cat", stored) == expected


def test_grep_finds_the_same_lines(appended: Appended, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(appended.text)
    middle = appended.name(f"offset=1..offset={len(appended.lines) + 1}")
    for arguments in (["-c", "e"], ["-ain", "error\\|warn"], ["-aF", "0"], ["-vc", "x"]):
        found, wanted = run("grep", *arguments, middle), run("grep", *arguments, plain)
        assert (found.returncode, found.stdout) == (wanted.returncode, wanted.stdout)


def test_it_is_found_by_time(appended: Appended) -> None:
    moments = f"{appended.before_ms}..{appended.after_ms}"
    assert appended.name(moments).read_bytes() == appended.text
    stored = appended.mount.data / appended.partition.parent.name / f"0@{moments}"
    assert logfs("cat", stored) == appended.text


def test_it_is_found_by_offset_and_by_byte(appended: Appended) -> None:
    lines, text = appended.lines, appended.text
    for number in {0, len(lines) // 3, len(lines) - 1}:
        rest = b"".join(line + b"\n" for line in lines[number:])
        assert appended.name(f"offset={number + 1}").read_bytes() == rest + b"after\n"
        assert appended.name(f"offset=-{len(lines) - number + 1}..offset=-1").read_bytes() == rest
    start = len(b"before\n")
    for position in {0, 1, len(text) // 2, len(text) - 1}:
        behind = text[position:] + b"after\n"
        assert appended.name(f"byte={start + position}").read_bytes() == behind
        assert appended.name(f"byte=-{len(behind)}").read_bytes() == behind
    view = appended.name("offset=1..offset=3", ".jsonl").read_bytes().splitlines()
    assert [json.loads(line)["offset"] for line in view] == [1, 2]
