"""Promise 3 of SEMANTICS.md, through a mount; each docstring is the sentence that is run."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import Mount, environment, output
from tests.semantics.holes import Kept, make_holes
from tests.semantics.programs import append, append_all, attribute, meta, numbered

pytestmark = pytest.mark.fuse

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def holey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Kept]]:
    """``orders/0`` of a mount, a log with holes, and what is kept of it."""
    directory = tmp_path_factory.mktemp("holes")
    (directory / "data").mkdir()
    kept = make_holes(directory / "data")
    with Mount(directory / "data", directory / "mnt") as mount:
        yield mount.point / "orders" / "0", kept


def test_positions_and_inodes_outlive_restarts(mount: Mount) -> None:
    """A byte of `orders/0` has one position for ever, and the file one inode, restarts included."""
    orders = mount.point / "orders"
    lines = numbered(0, 20_000)
    written = b"".join(lines)
    append_all(orders / "0", written)
    names = ["0", "0.tsv", "0.jsonl"]
    before = {name: (orders / name).read_bytes() for name in names}
    inodes = {name: os.stat(orders / name).st_ino for name in names}
    for start_again in (mount.restart, mount.crash, mount.restart):
        start_again()
        append(orders / "0", b"one more\n")
        for name in names:
            status = os.stat(orders / name)
            assert status.st_ino == inodes[name]
            text = (orders / name).read_bytes()
            assert len(text) == status.st_size > len(before[name])
            assert text.startswith(before[name])
            before[name] = text
            for position in (0, 1, 777_777, status.st_size - 3):
                output_of_dd = output("dd", f"if={orders / name}", f"skip={position}", "bs=1000",
                                      "count=1", "iflag=skip_bytes", "status=none")  # fmt: skip
                assert output_of_dd == text[position : position + 1000]


def test_the_size_counts_holes(holey: tuple[Path, Kept]) -> None:
    """Removed records become a hole: the size stays, and no byte after it moves."""
    path, kept = holey
    assert os.stat(path).st_size == kept.end
    for start, line in list(zip(kept.starts, kept.lines, strict=True))[::97]:
        assert _read_at(path, start, len(line)) == line


@pytest.mark.parametrize(
    "command",
    [
        "cat 0",
        "cat < 0",
        "cp 0 /dev/stdout",
        "dd if=0 bs=10007 status=none",
        "dd if=0 bs=1M status=none",
        "head -n 1000000 0",
        "head -c 100G 0",
        "grep -a '' 0",
        "sed '' 0",
        "awk 1 0",
        "tail -n +1 0",
        "split -n r/1/1 0",
        "sort -n 0 | tail -n +2; echo the last line",
        "python3 -c 'import sys; sys.stdout.writelines(open(\"0\"))'",
        "perl -pe1 0",
    ],
)
def test_readers_show_what_is_kept(holey: tuple[Path, Kept], command: str) -> None:
    """`cat`, `cp`, `dd`, `head`, `grep` and sendfile(2) show the retained records and nothing
    else."""
    path, kept = holey
    assert output("bash", "-c", command, cwd=path.parent) == kept.text


def test_counts_are_of_what_is_kept(holey: tuple[Path, Kept]) -> None:
    """`cat`, `cp`, `dd`, `head`, `grep` and sendfile(2) show the retained records and nothing
    else."""
    path, kept = holey
    assert int(output("wc", "-l", path).split()[0]) == len(kept.lines)
    assert int(output("grep", "-c", "", path)) == len(kept.lines)
    for line in kept.lines[::611]:
        assert output("grep", "-ax", "-m1", line[:-1].decode(), path) == line
    for count in (1, 10, 1_766, 1_767, 5_000):
        assert output("head", "-n", str(count), path) == b"".join(kept.lines[:count])


def test_sendfile_sends_what_is_kept(holey: tuple[Path, Kept], tmp_path: Path) -> None:
    """`cat`, `cp`, `dd`, `head`, `grep` and sendfile(2) show the retained records and nothing
    else."""
    path, kept = holey
    with path.open("rb") as source, (tmp_path / "copy").open("wb") as target:
        while os.sendfile(target.fileno(), source.fileno(), None, 300_000):
            pass
    assert (tmp_path / "copy").read_bytes() == kept.text


def test_tail_shows_the_end(holey: tuple[Path, Kept]) -> None:
    """`tail -n N` shows the last N retained lines."""
    path, kept = holey
    large = [hole for hole in kept.gaps if hole[1] - hole[0] > 10 * MIB]
    behind = sum(start >= large[-1][1] for start in kept.starts)
    total = len(kept.lines)
    for count in (1, 2, 3, 10, 250, behind - 1, behind, behind + 1, 5_000, total, total + 1):
        expected = b"".join(kept.lines[-count:])
        assert output("tail", "-n", str(count), path) == expected
        assert output("tail", "-n", str(count), f"{path}@earliest..latest") == expected


@pytest.mark.parametrize("follow", [["-f"], ["-F"], ["-f", "-n", "3"], ["-c", "20", "-F"]])
def test_tail_follows_without_replay(holey: tuple[Path, Kept], follow: list[str]) -> None:
    """`tail -f`, `tail -F` and other programs that start at the end see new records, and each of
    them once."""
    path, kept = holey
    first = output("tail", *[word for word in follow if word.lower() != "-f"], path)
    command = ["tail", "-s", "0.05", *follow, str(path)]
    tail = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment())
    try:
        assert tail.stdout is not None
        assert tail.stdout.read(len(first)) == first
        for number in range(3):
            new = numbered(number * 1000, number * 1000 + 200, 150)
            append_all(path, b"".join(new))
            kept.add(new)
            assert tail.stdout.read(200 * 150) == b"".join(new)
        os.set_blocking(tail.stdout.fileno(), False)
        assert not tail.stdout.read(1)
        assert tail.poll() is None
    finally:
        tail.kill()
        tail.wait()
        if tail.stdout is not None:
            tail.stdout.close()


def test_a_reader_in_a_hole_continues_after_it(holey: tuple[Path, Kept]) -> None:
    """A program at a position that has been removed continues with the next retained record."""
    path, kept = holey
    text = kept.text
    for begin, end in kept.gaps:
        rest = text[sum(len(x) for x, s in zip(kept.lines, kept.starts, strict=True) if s < end) :]
        for position in {begin, (begin + end) // 2, end - 1, end}:
            with path.open("rb", buffering=0) as file:
                file.seek(position)
                assert file.readall() == rest
            tail = output("dd", f"if={path}", f"skip={position}", "iflag=skip_bytes", "bs=4567",
                          "status=none")  # fmt: skip
            assert tail == rest


def test_a_seek_reads_what_is_kept_where_it_went(holey: tuple[Path, Kept]) -> None:
    """After a seek, a read returns the retained part of the requested range. If none is retained,
    it returns the start of the next retained record."""
    path, kept = holey
    spans = list(zip(kept.starts, kept.lines, strict=True))
    for begin, end in kept.gaps:
        behind = b"".join(line for start, line in spans if start >= end)
        for position in (begin - 500, begin - 40, end - 150, end - 1, end, end + 7):
            start, stop = max(position, 1), max(position, 1) + 300  # 0 is where reading begins
            inside = b"".join(
                line[max(start - at, 0) : max(stop - at, 0)]
                for at, line in spans
                if at < stop and at + len(line) > start
            )
            got = _read_at(path, start, 300)
            assert got
            assert got == (inside or behind.split(b"\n")[0])


def _read_at(path: Path, position: int, size: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), size, position)


def test_a_saved_position_is_the_end_or_the_first_kept_one(holey: tuple[Path, Kept]) -> None:
    """A program that has read across a hole has counted fewer bytes than its position. To save one,
    it seeks to the end, or to `user.logfs.start`, the first retained position."""
    path, kept = holey
    assert attribute(path, "start") == kept.starts[0]
    assert attribute(path, "end") == os.stat(path).st_size
    with path.open("rb") as file:
        assert len(file.read()) < os.stat(path).st_size
        saved = file.seek(0, os.SEEK_END)
    append(path, b"new\n")
    kept.add([b"new\n"])
    with path.open("rb") as file:
        file.seek(saved)
        assert file.read() == b"new\n"
        file.seek(attribute(path, "start"))
        assert file.read() == kept.text


@pytest.mark.parametrize("view", ["tsv", "jsonl"])
def test_other_views_have_positions_of_their_own(holey: tuple[Path, Kept], view: str) -> None:
    """`.tsv` and `.jsonl` have positions of the same kind."""
    path, kept = holey
    file = path.with_name(f"0.{view}")
    text = file.read_bytes()
    shown = [line[:-1].decode() for line in kept.lines]
    if view == "tsv":
        assert text.decode().splitlines() == [f"\\N\t{line}" for line in shown]
    else:
        assert [json.loads(line)["value"] for line in text.splitlines()] == shown
    facts = meta(path)["positions"][view]
    assert (facts["start"], facts["end"]) == (attribute(file, "start"), attribute(file, "end"))
    assert os.stat(file).st_size == facts["end"] > len(text)
    with file.open("rb") as reader:
        reader.seek(facts["start"])
        assert reader.readline() == text.splitlines(keepends=True)[0]
    for count in (1, 10, 300):
        assert output("tail", "-n", str(count), file).splitlines() == text.splitlines()[-count:]


def test_no_file_looks_sparse(holey: tuple[Path, Kept]) -> None:
    """stat(2) says that the file is not sparse, and to read it 1 MiB at a time."""
    path, _ = holey
    status = os.stat(path)
    assert status.st_blocks * 512 >= status.st_size
    assert status.st_blksize == MIB
    with path.open("rb") as file:
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) == status.st_size


def test_programs_that_trust_the_length(holey: tuple[Path, Kept], tmp_path: Path) -> None:
    """Programs that trust a file's length (`tar`, `tac`, rsync, scp, uploads) get the retained
    records, as an ordinary file, from `orders/0@earliest..latest`."""
    path, kept = holey
    name, text = "0@earliest..latest", kept.text
    assert os.stat(path.with_name(name)).st_size == len(text)
    output("tar", "-cf", tmp_path / "orders.tar", name, cwd=path.parent)
    output("tar", "-xf", tmp_path / "orders.tar", cwd=tmp_path)
    assert (tmp_path / name).read_bytes() == text
    assert output("tac", name, cwd=path.parent).splitlines() == text.splitlines()[::-1]
    assert output("tail", "-c", "12345", name, cwd=path.parent) == text[-12_345:]
    assert output("bash", "-c", f"split -b 1M --filter=cat {name}", cwd=path.parent) == text
    output("cp", "-a", name, tmp_path / "copy", cwd=path.parent)
    assert (tmp_path / "copy").read_bytes() == text
    for program in filter(shutil.which, ("scp", "rsync")):
        output(program, "-q", f"./{name}", tmp_path / program, cwd=path.parent)
        assert (tmp_path / program).read_bytes() == text


def test_positions_that_were_shown_are_not_used_again(mount: Mount) -> None:
    """If an unclean stop loses bytes, the next record begins after every size that was ever shown:
    a hole, and no position is used twice."""
    path = mount.point / "orders" / "0"
    lines = numbered(0, 1000)
    for at in range(0, 1000, 10):
        append(path, b"".join(lines[at : at + 10]))
    shown = {name: os.stat(path.with_name(name)).st_size for name in ("0", "0.tsv", "0.jsonl")}
    inode = os.stat(path).st_ino
    mount.kill()
    log = mount.data / "orders-0" / f"{0:020}.log"
    os.truncate(log, os.stat(log).st_size - 10_000)
    mount.start()
    kept = path.read_bytes()
    assert b"".join(lines).startswith(kept)
    assert 0 < len(kept) < shown["0"]
    for name, size in shown.items():
        assert os.stat(path.with_name(name)).st_size >= size
    begin = os.stat(path).st_size
    append(path, b"new\n")
    assert path.read_bytes() == kept + b"new\n"
    with path.open("rb") as file:
        file.seek(begin)
        assert file.read() == b"new\n"
        file.seek(shown["0"] - 5)
        assert file.read() == b"new\n"
    assert os.stat(path).st_ino == inode
    size = os.stat(path).st_size
    mount.crash()
    assert (os.stat(path).st_ino, os.stat(path).st_size) == (inode, size)
    assert path.read_bytes() == kept + b"new\n"
