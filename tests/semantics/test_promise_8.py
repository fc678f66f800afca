"""Promise 8 of SEMANTICS.md, through a mount; each docstring is the sentence that is run."""

import errno
import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mounting import Mount, logfs, output, run
from tests.processes import wait_until
from tests.semantics.programs import (
    APPEND,
    append,
    append_all,
    configure,
    errno_of,
    meta,
    numbered,
)

pytestmark = pytest.mark.fuse

Call = Callable[[Path], object]


def open_with(flags: int) -> Call:
    """Return a call that opens a file and closes it."""
    return lambda path: os.close(os.open(path, flags, 0o644))


@pytest.mark.parametrize(
    "command",
    [
        "echo x > 0",
        ": > 0",
        "cp /etc/passwd 0",
        "dd if=/dev/zero of=0 bs=1 count=1",
        "truncate -s 0 0",
        "tee 0 < /dev/null",
        "sed -i s/l/L/ 0",
        "rm 0",
        "rm -f 0",
        "mv 0 1",
        "mv 0 /tmp/",
        "ln 0 7",
        "ln -s 0 7",
        "mkfifo 7",
        "mkdir 7",
        "install /etc/passwd 0",
    ],
)
def test_programs_that_do_more_than_append_are_refused(topic: Path, command: str) -> None:
    """A partition only takes appends: everything else is refused with EPERM, as after
    `chattr +a`.
    """
    append(topic / "0", b"line\n")
    result = run("bash", "-c", command, cwd=topic)
    assert result.returncode != 0
    assert (topic / "0").read_bytes() == b"line\n"
    assert os.listdir(topic) == ["0"]


CALLS: dict[str, Call] = {
    "O_WRONLY": open_with(os.O_WRONLY),
    "O_RDWR": open_with(os.O_RDWR),
    "O_CREAT": open_with(os.O_WRONLY | os.O_CREAT),
    "O_TRUNC": open_with(os.O_WRONLY | os.O_TRUNC),
    "O_APPEND O_TRUNC": open_with(APPEND | os.O_TRUNC),
    "O_RDONLY O_TRUNC": open_with(os.O_RDONLY | os.O_TRUNC),
    "truncate": lambda path: os.truncate(path, 0),
    "truncate to more": lambda path: os.truncate(path, 1_000_000),
    "unlink": os.unlink,
    "rename": lambda path: os.rename(path, path.with_name("1")),
    "rename a topic": lambda path: os.rename(path.parent, path.parent.with_name("renamed")),
    "link": lambda path: os.link(path, path.with_name("1")),
    "symlink": lambda path: os.symlink("0", path.with_name("1")),
    "mkfifo": lambda path: os.mkfifo(path.with_name("1")),
    "mkdir in a topic": lambda path: os.mkdir(path.with_name("1")),
    "mkdir in .segments": lambda path: os.mkdir(path.parent.parent / ".segments" / "1"),
    "rmdir of .segments": lambda path: os.rmdir(path.parent.parent / ".segments"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_system_calls_that_do_more_than_append(topic: Path, call: Call) -> None:
    """A partition only takes appends: everything else is refused with EPERM, as after
    `chattr +a`.
    """
    append(topic / "0", b"line\n")
    assert errno_of(call, topic / "0") == errno.EPERM
    assert (topic / "0").read_bytes() == b"line\n"


def test_an_open_file_cannot_be_cut_or_written_into(topic: Path) -> None:
    """A partition only takes appends: everything else is refused with EPERM, as after
    `chattr +a`.
    """
    append(topic / "0", b"line\n")
    descriptor = os.open(topic / "0", APPEND)
    assert errno_of(os.ftruncate, descriptor, 0) == errno.EPERM
    # With O_APPEND the kernel ignores the position, as on any file.
    assert os.pwrite(descriptor, b"end\n", 0) == 4
    os.close(descriptor)
    assert (topic / "0").read_bytes() == b"line\nend\n"


@pytest.mark.parametrize(
    "name", ["0@earliest", "0@-1h.tsv", "0@earliest..latest", "0.meta", "0.follow"]
)
@pytest.mark.parametrize("flags", [APPEND, APPEND | os.O_CREAT, os.O_WRONLY, os.O_RDWR])
def test_only_plain_names_are_written_to(topic: Path, name: str, flags: int) -> None:
    """Selectors, `.meta`, `.follow` and the files in `.segments` cannot be written to: EPERM."""
    assert errno_of(open_with(flags), topic / name) == errno.EPERM
    raw = topic.parent / ".segments" / f"{topic.name}-0"
    for path in raw.iterdir():
        assert errno_of(open_with(flags), path) == errno.EPERM


@pytest.mark.parametrize(
    "name",
    ["1", "9", "notes.txt", "0.csv", "00", "01@-1h", "-1", "0.meta.tsv", "2147483648", "x@-15m",
     "7@earliest", "7.tsv", "7.meta", "nosuch/0", "../nosuch/0", "../.segments/nosuch-0"],
)  # fmt: skip
def test_what_is_not_there(topic: Path, name: str) -> None:
    """A topic, a partition or a name that does not exist is ENOENT."""
    path = topic / name
    assert errno_of(os.stat, path) == errno.ENOENT
    assert errno_of(open_with(os.O_RDONLY), path) == errno.ENOENT
    assert errno_of(open_with(APPEND), path) == errno.ENOENT


@pytest.mark.parametrize("name", ["notes.txt", "0.csv", "00", "-1", ".hidden", "0~", ".0.swp"])
def test_files_of_other_names_cannot_be_made(topic: Path, name: str) -> None:
    """A topic contains only partitions: creating any other name is EPERM."""
    for flags in (
        APPEND | os.O_CREAT,
        os.O_WRONLY | os.O_CREAT,
        os.O_RDWR | os.O_CREAT | os.O_EXCL,
    ):
        assert errno_of(open_with(flags), topic / name) == errno.EPERM
    assert errno_of(open_with(APPEND | os.O_CREAT), topic.parent / name) == errno.EPERM
    assert os.listdir(topic) == ["0"]


@pytest.mark.parametrize(
    "selector",
    ["@", "@..latest", "@earliest..", "@20261120", "@lastweek", "@2026-13-01", "@2026-11-20 10",
     "@offset=", "@offset=x", "@byte=1.5", "@15m", "@-15", "@-15y", "@earliest...latest",
     "@-1h..0d.tsv"],
)  # fmt: skip
def test_selectors_that_do_not_parse(topic: Path, selector: str) -> None:
    """A selector that does not parse is EINVAL."""
    path = topic / f"0{selector}"
    assert errno_of(os.stat, path) == errno.EINVAL
    assert errno_of(open_with(os.O_RDONLY), path) == errno.EINVAL
    assert errno_of(open_with(APPEND | os.O_CREAT), path) == errno.EINVAL


@pytest.mark.parametrize("name", ["my topic", "größe", "a:b", "x" * 250, "tab\t", "a@b"])
def test_illegal_topic_names(topic: Path, name: str) -> None:
    """A name that Kafka would refuse for a topic is EINVAL."""
    assert errno_of(os.mkdir, topic.parent / name) == errno.EINVAL
    assert errno_of(os.stat, topic.parent / name) == errno.ENOENT


def test_names_that_are_taken(topic: Path) -> None:
    """Creating an existing name is EEXIST, `.segments` included."""
    assert errno_of(os.mkdir, topic) == errno.EEXIST
    assert errno_of(os.mkdir, topic.parent / ".segments") == errno.EEXIST
    assert errno_of(open_with(APPEND | os.O_CREAT | os.O_EXCL), topic / "0") == errno.EEXIST


def test_files_are_files_and_directories_directories(topic: Path) -> None:
    """A file is not a directory (ENOTDIR), and a topic is not a file (EISDIR)."""
    assert errno_of(os.stat, topic / "0" / "x") == errno.ENOTDIR
    assert errno_of(os.listdir, topic / "0") == errno.ENOTDIR
    assert errno_of(os.rmdir, topic / "0") == errno.ENOTDIR
    assert errno_of(open_with(APPEND), topic) == errno.EISDIR


def test_a_missing_partition_is_not_made_by_a_typo(topic: Path) -> None:
    """`>>` creates no partition (ENOENT), unless the mount has the option `create`; `touch`
    does."""
    result = run("bash", "-c", "echo x >> 9", cwd=topic)
    assert b"No such file or directory" in result.stderr
    assert os.listdir(topic) == ["0"]
    output("touch", "3", cwd=topic)
    assert os.listdir(topic) == ["0", "1", "2", "3"]
    output("bash", "-c", "echo x >> 3", cwd=topic)
    assert (topic / "3").read_bytes() == b"x\n"


def test_the_option_create_makes_partitions(mount: Mount) -> None:
    """`>>` creates no partition (ENOENT), unless the mount has the option `create`; `touch`
    does."""
    mount.stop()
    mount.options = ("create",)
    mount.start()
    output("bash", "-c", "echo x >> orders/2", cwd=mount.point)
    assert sorted(os.listdir(mount.point / "orders")) == ["0", "1", "2"]
    assert errno_of(append, mount.point / "nosuch" / "0", b"x\n") == errno.ENOENT


def test_touch_is_content_with_what_exists(topic: Path) -> None:
    """`touch` on an existing partition succeeds."""
    append(topic / "0", b"line\n")
    output("touch", "0", "0.tsv", "0.jsonl", ".", "-d", "2020-01-01", cwd=topic)
    output("touch", "-c", "nosuch", cwd=topic)
    assert (topic / "0").read_bytes() == b"line\n"


READ_ONLY_CALLS: list[Call] = [
    open_with(APPEND),
    open_with(os.O_WRONLY | os.O_TRUNC),
    lambda path: os.truncate(path, 0),
    lambda path: os.utime(path),
    os.unlink,
    lambda path: os.chmod(path, 0o600),
    lambda path: os.rename(path, path.with_name("1")),
    lambda path: os.link(path, path.with_name("1")),
    lambda path: os.close(os.open(path.with_name("1"), APPEND | os.O_CREAT, 0o644)),
    lambda path: os.mkdir(path.parent.with_name("others")),
    lambda path: os.rmdir(path.parent),
    lambda path: os.setxattr(path.parent, "user.logfs.retention.ms", b"1"),
]


def test_a_read_only_mount_refuses_every_change(mount: Mount) -> None:
    """On a read-only mount every change is EROFS."""
    path = mount.point / "orders" / "0"
    append(path, b"line\n")
    mount.stop()
    mount.options = ("ro",)
    mount.start()
    for call in READ_ONLY_CALLS:
        assert errno_of(call, path) == errno.EROFS
    assert path.read_bytes() == b"line\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system to fill up")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", tmp_path], check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_full_disk(small_disk: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A full disk is ENOSPC, and leaves the log as it was."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_000_000)
    with Mount(small_disk / "data", tmp_path_factory.mktemp("mnt")) as mount:
        (mount.point / "orders").mkdir()
        path = mount.point / "orders" / "0"
        descriptor, accepted, refused = os.open(path, APPEND), [], None
        for line in numbered(0, 100):
            long_line = line[:-1] * 500 + b"\n"
            try:
                count = os.write(descriptor, long_line)
            except OSError as error:
                refused = error.errno
                break
            accepted.append(long_line[:count])
        assert refused == errno.ENOSPC
        written = b"".join(accepted)
        assert path.read_bytes() == written
        assert meta(path)["offline"] is None
        assert errno_of(os.write, descriptor, b"z" * 500_000 + b"\n") == errno.ENOSPC
        assert errno_of(os.close, descriptor) == errno.ENOSPC
        ballast.unlink()
        append(path, b"there is room again\n")
        mount.restart()
        assert path.read_bytes() == written + b"there is room again\n"
        assert not meta(path)["losses"]


def test_find_delete_destroys_nothing(topic: Path) -> None:
    """`rmdir` deletes a topic that holds no records. One that holds records is ENOTEMPTY."""
    append(topic / "0", b"kept\n")
    assert errno_of(topic.rmdir) == errno.ENOTEMPTY
    shutil.rmtree(topic, ignore_errors=True)
    found = run("find", topic, "-delete")
    assert found.returncode == 1
    assert b"Operation not permitted" in found.stdout + found.stderr
    assert (topic / "0").read_bytes() == b"kept\n"
    logfs("trim", f"{topic / '0'}@latest", "--now")
    topic.rmdir()
    assert errno_of(os.stat, topic) == errno.ENOENT


def test_a_deleted_topic(topic: Path) -> None:
    """After a topic was deleted, open files can still be read; their appends are ESTALE."""
    text = b"".join(numbered(0, 30_000))
    append_all(topic / "0", text)
    names = ["0", "0.tsv", "0@offset=5", "0@earliest..latest"]
    files = [(topic / name).open("rb", buffering=0) for name in names]
    assert files[0].read(10) == text[:10]
    writer = os.open(topic / "0", APPEND)
    logfs("topic", "delete", topic)
    assert errno_of(os.stat, topic / "0") == errno.ENOENT
    assert errno_of(os.write, writer, b"x\n") == errno.ESTALE
    assert errno_of(os.close, writer) == errno.ESTALE
    assert files[0].readall() == text[10:]
    assert files[1].readall().count(b"\n") == 30_000
    assert files[2].readall() == text[500:]
    assert files[3].readall() == text
    for file in files:
        file.close()
    topic.mkdir()
    append(topic / "0", b"new\n")
    assert (topic / "0").read_bytes() == b"new\n"


def test_settings_that_are_wrong(topic: Path) -> None:
    """A setting that Kafka does not know, or a value out of its bounds, is EINVAL; an attribute
    that is not logfs's is ENOTSUP.
    """
    for name, value in (("retention.ms", b"soon"), ("retention.ms", b"-2"), ("no.such", b"1")):
        assert errno_of(os.setxattr, topic, f"user.logfs.{name}", value) == errno.EINVAL
    assert errno_of(os.setxattr, topic, "user.mine", b"1") == errno.ENOTSUP
    assert errno_of(os.getxattr, topic, "user.mine") == errno.ENODATA
    assert errno_of(os.setxattr, topic / "0", "user.logfs.start", b"1") == errno.EPERM
    configure(topic, retention_ms=86_400_000)
    shown = output("getfattr", "-n", "user.logfs.retention.ms", "--only-values", topic.name,
                   cwd=topic.parent)  # fmt: skip
    assert shown == b"86400000"
    output("setfattr", "-x", "user.logfs.retention.ms", topic)
    assert errno_of(os.removexattr, topic, "user.logfs.retention.ms") == errno.ENODATA


def test_a_topic_has_no_more_than_its_quota(topic: Path) -> None:
    """A write beyond the quota of a topic (`logfs.quota.bytes`) is EDQUOT, and appends nothing."""
    configure(topic, logfs_quota_bytes=1000)
    append(topic / "0", b"x" * 500 + b"\n")
    assert errno_of(append, topic / "0", b"y" * 500 + b"\n") == errno.EDQUOT
    assert (topic / "0").read_bytes() == b"x" * 500 + b"\n"
    append(topic / "0", b"y\n")
    assert meta(topic / "0")["quota"]["refused"] == 1


def test_a_write_that_exceeds_the_rate_returns_later(topic: Path) -> None:
    """A write to a topic that exceeds its rate (`logfs.quota.producer.byte.rate`) is appended, and
    returns later.
    """
    configure(topic, logfs_quota_producer_byte_rate=1)
    script = f"echo {'x' * 1000} >> {topic}/0; echo late"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as writer:
        wait_until(lambda: (topic / "0").stat().st_size == 1001, "readers see the line")
        assert writer.stdout is not None
        assert not select.select([writer.stdout], [], [], 0)[0]
        configure(topic, logfs_quota_producer_byte_rate=1_000_000)
        assert writer.stdout.read() == b"late\n"
        assert writer.wait() == 0
    facts = meta(topic / "0")["quota"]
    assert facts["throttled"] == 1


def test_a_writer_that_waits_for_the_rate_can_be_killed(topic: Path) -> None:
    """A signal ends the wait for the rate, and the write has succeeded."""
    configure(topic, logfs_quota_producer_byte_rate=1)
    with subprocess.Popen(["sh", "-c", f"echo {'x' * 1000} >> {topic}/0"]) as writer:
        wait_until(lambda: (topic / "0").stat().st_size == 1001, "the line is there")
        writer.kill()
        assert writer.wait() == -signal.SIGKILL
    assert (topic / "0").stat().st_size == 1001


def test_ls_shows_every_record_once(topic: Path) -> None:
    """`ls` and `grep -r` meet every record once: selectors, views, `.segments` and topics that
    begin with `__` work when they are named, and are not listed."""
    inner = topic / "1"
    inner.touch()
    for number in range(10):
        append(topic / str(number % 2), b"needle %d\n" % number)
    hidden = topic.parent / f"__{topic.name}"
    hidden.mkdir()
    append(hidden / "0", b"needle\n")
    assert os.listdir(topic) == ["0", "1"]
    assert output("grep", "-rhc", "needle", topic) == b"5\n5\n"
    assert output("bash", "-c", "cat * | wc -l", cwd=topic) == b"10\n"
    assert not {".segments", hidden.name} & set(os.listdir(topic.parent))
    assert (hidden / "0").read_bytes() == b"needle\n"


def test_modes_and_owners_are_remembered(mount: Mount) -> None:
    """`chmod` and `chown` are remembered."""
    orders = mount.point / "orders"
    (orders / "1").touch()
    os.chmod(orders / "0", 0o640)
    os.chmod(orders, 0o750)
    if os.geteuid() == 0:
        os.chown(orders / "0", 1234, 5678)
    expected = {path: os.stat(path) for path in (orders, orders / "0", orders / "1")}
    assert expected[orders / "0"].st_mode & 0o777 == 0o640
    assert expected[orders].st_mode & 0o777 == 0o750
    for start_again in (mount.restart, mount.crash):
        start_again()
        for path, before in expected.items():
            now = os.stat(path)
            assert (now.st_mode, now.st_uid, now.st_gid) == (
                before.st_mode,
                before.st_uid,
                before.st_gid,
            )


def test_a_mirror_takes_no_appends(mount: Mount) -> None:
    """A mirror of a topic of a Kafka cluster takes no appends (EROFS)."""
    (mount.point / "copy").mkdir()
    append(mount.point / "copy" / "0", b"line\n")
    mount.stop()
    fields = {"version": 1, "cluster_id": "c", "bootstrap": "b1:9092", "topic": "copy"}
    (mount.data / "copy-0" / "logfs.mirror").write_text(json.dumps(fields))
    mount.start()
    path = mount.point / "copy" / "0"
    for view in ("", ".tsv", ".jsonl"):
        name = path.with_name(f"0{view}")
        assert errno_of(lambda name=name: append(name, b"x\n")) == errno.EROFS
    assert errno_of(lambda: path.with_name("1").touch()) == errno.EROFS
    path.touch()
    assert path.read_bytes() == b"line\n"
    logfs("mirror", "--promote", str(mount.point / "copy"))
    append(path, b"more\n")
    assert path.read_bytes() == b"line\nmore\n"
