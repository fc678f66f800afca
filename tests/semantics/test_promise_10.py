"""Promise 10 of SEMANTICS.md, through a mount; each docstring is the sentence that is run.

The table has each kind of user and each kind of name, on a mount with ``allow_other``.

The expected answers come from the POSIX rules alone: a file may be read if its mode lets the user
read and the mode of its topic's directory lets the user search. What logfs answers is asked by
processes that have really become those users.
"""

import json
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mounting import COMMAND, Mount, logfs, run

pytestmark = [
    pytest.mark.fuse,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users"),
]

OWNER, MEMBER, OTHER = 21234, 21235, 65534


@dataclass(frozen=True)
class User:
    """A user, as the process of that user has them."""

    name: str
    uid: int
    groups: tuple[int, ...]


USERS = (
    User("root", 0, (0,)),
    User("owner", OWNER, (OWNER,)),
    User("member", MEMBER, (MEMBER, OWNER)),  # of the owner's group
    User("other", OTHER, (OTHER,)),
)
MODES = {  # topic: mode of its directory, mode of its partition
    "public": (0o755, 0o644),
    "writable": (0o777, 0o666),
    "private-topic": (0o700, 0o644),
    "private-partition": (0o755, 0o600),
    "group": (0o750, 0o640),
    "search-only": (0o711, 0o644),
}
PLAIN = ("0", "0.tsv", "0.jsonl")
VIEWS = (
    "0.meta",
    "0.follow",
    "0@earliest",
    "0@earliest.jsonl",
    "0@-1d.follow",
    "0@earliest..latest",
    "0@offset=0..offset=1.tsv",
)

MERGED = ("@earliest", "@earliest.tsv", "@-1d..now.jsonl", "@earliest..latest", "@offset=0")

SCRIPT = r"""
import errno, json, os, sys
STAT, READ, APPEND, LIST, GET, SET = "stat", "read", "append", "list", "getxattr", "setxattr"
def attempt(action, path):
    if action == STAT:
        os.stat(path)
    elif action == READ:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.read(descriptor, 1)
        finally:
            os.close(descriptor)
    elif action == APPEND:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
    elif action == LIST:
        os.listdir(path)
    elif action == GET:
        os.getxattr(path, "user.logfs.topic_id")
    elif action == SET:
        os.setxattr(path, "user.logfs.segment.ms", b"9999999")
answers = []
for action, path in json.load(sys.stdin):
    try:
        attempt(action, path)
        answers.append("yes")
    except PermissionError:
        answers.append("no")
    except OSError as error:
        answers.append(errno.errorcode[error.errno])
json.dump(answers, sys.stdout)
"""


def ask_as(user: User, questions: list[tuple[str, str]]) -> list[str]:
    """Have a process of a user try something; returns yes, no, or another errno's name each."""
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-I", "-S", "-c", SCRIPT],
        input=json.dumps(questions),
        user=user.uid,
        group=user.groups[0],
        extra_groups=user.groups,
        umask=0o022,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answers: list[str] = json.loads(done.stdout)
    return answers


def shell_as(user: User, script: str, umask: int = 0o022) -> str:
    """Run a shell script as a user; returns all that it printed."""
    return subprocess.run(
        ["sh", "-c", script],
        user=user.uid,
        group=user.groups[0],
        extra_groups=user.groups,
        umask=umask,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    ).stdout


def user(name: str) -> User:
    return next(user for user in USERS if user.name == name)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all users may enter; that of pytest is root's alone."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def mount(folder: Path) -> Iterator[Mount]:
    """A mount for all users, with permission to make topics in it."""
    with Mount(folder / "data", folder / "mnt", "allow_other") as mount:
        mount.point.chmod(0o1777)
        yield mount


def allows(mode: int, who: User, bit: int) -> bool:
    """Tell what a mode of the owner's lets a user do; bit: 4 read, 2 write, 1 search."""
    if who.uid == 0:
        return True
    if who.uid == OWNER:
        return bool(mode >> 6 & bit)
    return bool(mode >> 3 & bit) if OWNER in who.groups else bool(mode & bit)


def questions_about(topic: str, raw: list[str]) -> list[tuple[str, str, str]]:
    """List what is asked about a topic: action, path below the mount, what decides."""
    rows = [
        ("list", topic, "list"),
        ("getxattr", topic, "list"),
        ("setxattr", topic, "change"),
        ("list", f".segments/{topic}-0", "list"),
    ]
    for name in PLAIN:
        rows += [("read", f"{topic}/{name}", "read"), ("append", f"{topic}/{name}", "write")]
    for name in VIEWS:
        rows += [("read", f"{topic}/{name}", "read"), ("append", f"{topic}/{name}", "never")]
    rows += [("getxattr", f"{topic}/{name}", "read") for name in (*PLAIN, *VIEWS)]
    rows += [("setxattr", f"{topic}/0", "never")]
    rows += [("stat", f"{topic}/{name}", "search") for name in (*PLAIN, *VIEWS)]
    for name in MERGED:
        path = topic + name
        rows += [("stat", path, "search"), ("read", path, "read"), ("append", path, "never")]
    rows += [("stat", f"{topic}@nonsense", "wrong"), ("stat", f"{topic}/0@nonsense", "wrong")]
    for name in raw:
        path = f".segments/{topic}-0/{name}"
        rows += [("stat", path, "search"), ("read", path, "read"), ("append", path, "never")]
    return rows


def expected(modes: tuple[int, int], who: User, decides: str) -> str:
    directory, file = modes
    may_search = allows(directory, who, 1)
    if decides == "wrong":
        return "EINVAL" if may_search else "no"
    may = {
        "search": may_search,
        "list": allows(directory, who, 4),
        "change": allows(directory, who, 2),
        "read": may_search and allows(file, who, 4),
        "write": may_search and allows(file, who, 2),
        "never": False,
    }
    return "yes" if may[decides] else "no"


def test_the_table_of_permissions(mount: Mount) -> None:
    """The modes and owners of a topic and its partitions apply under every name: views, selectors,
    `.follow`, `.meta`, extended attributes, `.segments` and `TOPIC@FROM`."""
    point = mount.point
    raw: dict[str, list[str]] = {}
    waiting = []
    for topic, modes in MODES.items():
        shell_as(user("owner"), f"cd {point}; mkdir {topic}; echo one >> {topic}/0")
        os.setxattr(point / topic, "user.logfs.segment.ms", b"1")
        shell_as(user("owner"), f"cd {point}; echo two >> {topic}/0")
        waiting.append(os.open(point / topic / "0", os.O_WRONLY | os.O_APPEND))
        os.write(waiting[-1], b"an unfinished line")
        raw[topic] = sorted(os.listdir(point / ".segments" / f"{topic}-0"))
        assert any(name.endswith(".unfinished") for name in raw[topic]), raw
        raw[topic] += [name.replace(".log", ".txt") for name in raw[topic] if ".log" in name]
        assert sum(name.endswith(".txt") for name in raw[topic]) == 2, raw
        (point / topic / "0").chmod(modes[1])
        (point / topic).chmod(modes[0])
    wrong = []
    for who in USERS:
        rows = [(t, *row) for t in MODES for row in questions_about(t, raw[t])]
        asked = [(action, str(point / path)) for _, action, path, _ in rows]
        for (topic, action, path, decides), answer in zip(rows, ask_as(who, asked), strict=True):
            due = expected(MODES[topic], who, decides)
            if answer != due:
                text = "{:o} {:o}".format(*MODES[topic])
                wrong.append(f"{text:9}{who.name:8}{action:10}{path:62}{answer:8}{due}")
    for descriptor in waiting:
        os.close(descriptor)
    head = f"{'modes':9}{'user':8}{'action':10}{'name':62}{'answer':8}expected"
    assert not wrong, "\n".join(["", head, *wrong])


def test_a_mode_that_is_taken_away_is_taken_away_at_once(mount: Mount) -> None:
    """`chmod` and `chown` take effect at once, under every name."""
    point = mount.point
    for topic in ("by-partition", "by-topic", "by-owner"):
        shell_as(user("owner"), f"cd {point}; mkdir {topic}; echo one >> {topic}/0")
        os.setxattr(point / topic, "user.logfs.segment.ms", b"1")
        shell_as(user("owner"), f"cd {point}; echo two >> {topic}/0")
        paths = [f"{topic}/0@earliest..latest", f".segments/{topic}-0/{0:020}.log"]
        paths += [f"{topic}/0", f"{topic}@earliest"]
        questions = [("read", str(point / path)) for path in paths]
        assert ask_as(user("other"), questions) == ["yes"] * 4
        if topic == "by-partition":
            (point / topic / "0").chmod(0o600)
        elif topic == "by-topic":
            (point / topic).chmod(0o700)
        else:
            (point / topic / "0").chmod(0o604)
            os.chown(point / topic / "0", MEMBER, OTHER)  # the group may do less than all others
        assert ask_as(user("other"), questions) == ["no"] * 4, topic


def test_new_topics_and_partitions_take_owner_and_umask_of_their_creator(mount: Mount) -> None:
    """A topic or a partition gets its owner, group and mode as on any file system. They come
    from the process that creates it, its umask, and a directory with setgid."""
    script = f"cd {mount.point}; mkdir private; echo secret >> private/0; touch private/2"
    assert shell_as(user("owner"), script, umask=0o077) == ""
    for name, mode in (("private", 0o40700), ("private/0", 0o100600), ("private/2", 0o100600)):
        found = (mount.point / name).stat()
        assert (found.st_mode, found.st_uid, found.st_gid) == (mode, OWNER, OWNER), name
    mount.restart()
    found = (mount.point / "private/1").stat()
    assert (found.st_mode, found.st_uid, found.st_gid) == (0o100600, OWNER, OWNER)


def test_a_partition_belongs_to_the_user_that_makes_it(mount: Mount) -> None:
    """A topic or a partition gets its owner, group and mode as on any file system. They come
    from the process that creates it, its umask, and a directory with setgid."""
    shell_as(user("owner"), f"mkdir -m 777 {mount.point}/shared")
    assert shell_as(user("other"), f"touch {mount.point}/shared/1", umask=0o027) == ""
    found = (mount.point / "shared/1").stat()
    assert (found.st_mode, found.st_uid, found.st_gid) == (0o100640, OTHER, OTHER)
    assert (mount.point / "shared/0").stat().st_uid == OWNER


def test_a_directory_with_setgid_gives_its_group(mount: Mount) -> None:
    """A topic or a partition gets its owner, group and mode as on any file system. They come
    from the process that creates it, its umask, and a directory with setgid."""
    os.chown(mount.point, 0, 21777)
    mount.point.chmod(0o3777)
    shell_as(user("owner"), f"mkdir {mount.point}/team")
    found = (mount.point / "team").stat()
    assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (21777, 0o2755)
    (mount.point / "team").chmod(0o2777)
    shell_as(user("other"), f"touch {mount.point}/team/1")
    assert (mount.point / "team/1").stat().st_gid == 21777


def test_a_topic_of_the_same_name_inherits_nothing(mount: Mount) -> None:
    """A topic or a partition gets its owner, group and mode as on any file system. They come
    from the process that creates it, its umask, and a directory with setgid."""
    shell_as(user("owner"), f"mkdir {mount.point}/again", umask=0o077)
    shell_as(user("owner"), f"rmdir {mount.point}/again")
    shell_as(user("other"), f"mkdir {mount.point}/again")
    for name, mode in (("again", 0o40755), ("again/0", 0o100644)):
        found = (mount.point / name).stat()
        assert (found.st_mode, found.st_uid) == (mode, OTHER)


# A data directory that another user owns


@pytest.fixture
def theirs(folder: Path) -> Path:
    """A data directory of another user, with two topics; the mounts of it are root's."""
    data = folder / "data"
    data.mkdir()
    for topic in ("orders", "others"):
        logfs("topic", "create", data / topic)
        logfs("append", data / topic / "0", data=b"hello\n")
    (folder / "outside").mkdir()
    (folder / "outside/victim").write_bytes(b"of root alone\n")
    (folder / "outside/victim").chmod(0o600)
    subprocess.run(["chown", "-R", f"{OTHER}:{OTHER}", data], check=True)
    return data


def check_outside(data: Path) -> None:
    """See that what lies beside a data directory is as it was."""
    outside = data.parent / "outside"
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {
        "victim": b"of root alone\n"
    }
    found = (outside / "victim").stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o600)


@pytest.mark.parametrize("options", [(), ("ro",)])
def test_planted_links_are_not_read(theirs: Path, options: tuple[str, ...]) -> None:
    """No name in a data directory leads out of it: a symbolic link is followed neither for reading
    nor for writing.
    """
    for name in ("leak", "00000000000000000007.snapshot", "00000000000000000009.index"):
        (theirs / "orders-0" / name).symlink_to(theirs.parent / "outside/victim")
    (theirs / "evil-0").symlink_to(theirs.parent / "outside")
    with Mount(theirs, theirs.parent / "mnt", "allow_other", *options) as mount:
        raw = mount.point / ".segments"
        assert {"orders-0", "others-0"} <= set(os.listdir(raw))
        names = os.listdir(raw / "orders-0")
        assert "00000000000000000000.log" in names
        for name in ("leak", "00000000000000000007.snapshot", "00000000000000000009.index"):
            assert name not in names
            with pytest.raises(FileNotFoundError):
                (raw / "orders-0" / name).read_bytes()
        with pytest.raises(OSError, match="Input/output error"):
            (mount.point / "evil/0").read_bytes()
        with pytest.raises(OSError, match=r"Input/output error|No such file"):
            (raw / "evil-0/victim").read_bytes()
        assert (mount.point / "orders/0").read_bytes() == b"hello\n"
        assert "evil/0 could not be loaded" in mount.log
        assert "a symbolic link" in mount.log
    check_outside(theirs)


def test_planted_links_are_not_written_through(theirs: Path) -> None:
    """No name in a data directory leads out of it: a symbolic link is followed neither for reading
    nor for writing.
    """
    victim = theirs.parent / "outside/victim"
    for name in (".kafka_cleanshutdown", "logfs.closed", "logfs.daemon"):
        (theirs / name).unlink(missing_ok=True)
        (theirs / name).symlink_to(victim)
    names = [
        *("logfs.daemon", "logfs.attributes", "logfs.closed", "recovery-point-offset-checkpoint"),
        *("log-start-offset-checkpoint", "cleaner-offset-checkpoint", ".kafka_cleanshutdown"),
        *(f"orders-0/{name}" for name in ("logfs.segments", "leader-epoch-checkpoint")),
        *(f"orders-0/{name}" for name in ("logfs.config", "00000000000000000001.snapshot")),
    ]
    for name in names:
        (theirs / f"{name}.tmp").symlink_to(victim)
    for kind in ("log", "index", "timeindex", "textindex"):
        topic = f"bad-{kind}"
        logfs("topic", "create", theirs / topic)
        (theirs / f"{topic}-0/00000000000000000000.{kind}").unlink(missing_ok=True)
        (theirs / f"{topic}-0/00000000000000000000.{kind}").symlink_to(victim)
    (theirs / "dangling").symlink_to(victim.with_name("new"))
    (theirs / "orders-0/logfs.losses").symlink_to(victim.with_name("new"))
    (theirs / "orders-0/logfs.losses.tmp").symlink_to(victim.with_name("new"))
    with Mount(theirs, theirs.parent / "mnt", "allow_other") as mount:
        mount.point.chmod(0o1777)
        os.setxattr(mount.point / "orders", "user.logfs.segment.ms", b"1")
        for topic in os.listdir(mount.point):
            subprocess.run(["sh", "-c", f"echo more >> {mount.point}/{topic}/0"], check=False)
        (mount.point / "orders/0").chmod(0o640)
        subprocess.run(["sh", "-c", f"echo more >> {mount.point}/orders/0"], check=True)
        assert (mount.point / "orders/0").read_bytes() == b"hello\nmore\nmore\n"
    check_outside(theirs)


def test_a_lock_that_is_a_link_is_refused(theirs: Path) -> None:
    """No name in a data directory leads out of it: a symbolic link is followed neither for reading
    nor for writing.
    """
    (theirs / ".lock").unlink()
    (theirs / ".lock").symlink_to(theirs.parent / "outside/new")
    done = run(*COMMAND, "append", theirs / "orders/0", data=b"more\n")
    assert done.returncode == 1
    assert b"/.lock: a symbolic link" in done.stderr
    check_outside(theirs)


@pytest.mark.parametrize("options", [(), ("ro",)])
def test_nothing_waits_for_what_is_no_regular_file(theirs: Path, options: tuple[str, ...]) -> None:
    """A FIFO, a socket or a device in a data directory is never read: no program waits for it."""
    for name in ("planted", "00000000000000000007.index", "00000000000000000009.snapshot"):
        os.mkfifo(theirs / "orders-0" / name)
    os.mknod(theirs / "orders-0/device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    for name in ("logfs.config", f"{0:020}.log"):
        topic = f"bad-{name[0]}"
        logfs("topic", "create", theirs / topic)
        logfs("append", theirs / topic / "0", data=b"hello\n")
        (theirs / f"{topic}-0" / name).unlink()
        os.mkfifo(theirs / f"{topic}-0" / name)
    (theirs / "meta.properties").unlink(missing_ok=True)
    (theirs / "logfs.daemon").unlink(missing_ok=True)
    for name in ("meta.properties", "logfs.daemon"):
        os.mkfifo(theirs / name)
    for words in (("verify", theirs), ("status", theirs), ("du", theirs)):
        assert run(*COMMAND, *words).returncode in {0, 1}
    with Mount(theirs, theirs.parent / "mnt", "allow_other", *options) as mount:
        raw = mount.point / ".segments/orders-0"
        for name in ("planted", "device", "00000000000000000007.index"):
            assert name not in os.listdir(raw)
            with pytest.raises(FileNotFoundError):
                (raw / name).read_bytes()
        for topic in ("bad-0", "bad-l"):
            with pytest.raises(OSError, match="Input/output error"):
                (mount.point / topic / "0").read_bytes()
        assert (mount.point / "orders/0").read_bytes() == b"hello\n"
        assert "a FIFO" in mount.log


@pytest.mark.parametrize("options", [(), ("ro",)])
def test_a_damaged_partition_keeps_no_other_from_being_served(
    theirs: Path, options: tuple[str, ...]
) -> None:
    """A planted or damaged file in one partition keeps no other partition from being served."""
    directory = theirs / "others-0"
    with (directory / "logfs.config").open("ab") as file:
        file.write(b"retention.ms=\xff\xfe1\n")
    for name in ("leader-epoch-checkpoint", "00000000000000000001.snapshot", "logfs.segments"):
        topic = f"large-{name[:2]}"
        logfs("topic", "create", theirs / topic)
        logfs("append", theirs / topic / "0", data=b"hello\n")
        with (theirs / f"{topic}-0" / name).open("ab") as file:
            file.truncate(1 << 40)
    for words in (("verify", theirs), ("status", theirs), ("du", theirs)):
        assert run(*COMMAND, *words).returncode in {0, 1}
    with Mount(theirs, theirs.parent / "mnt", "allow_other", *options) as mount:
        assert (mount.point / "orders/0").read_bytes() == b"hello\n"
        with pytest.raises(OSError, match="Input/output error"):
            (mount.point / "others/0").read_bytes()
        assert "others-0/logfs.config: line 2 is not UTF-8" in mount.log
        peak = next(
            line
            for line in Path(f"/proc/{mount.pid}/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
        assert int(peak.split()[1]) < 512 * 1024, peak


LINES = b"".join(b"line %d %s\n" % (number, b"x" * 60) for number in range(50_000))


@pytest.mark.parametrize("kind", ["index", "timeindex", "textindex"])
@pytest.mark.parametrize("left", [0.0, 0.5])
def test_files_that_are_made_shorter_end_no_daemon(folder: Path, kind: str, left: float) -> None:
    """An index that another process makes shorter under a mount is ignored: it ends neither the
    daemon nor a read."""
    data = folder / "data"
    data.mkdir()
    settings = ("segment.bytes=1500000", "index.interval.bytes=0", "max.message.bytes=1000")
    configs = [word for setting in settings for word in ("--config", setting)]
    logfs("topic", "create", data / "orders", *configs)
    logfs("append", data / "orders/0", data=LINES)
    with Mount(data, folder / "mnt") as mount:
        names = ["0@offset=5", "0@offset=9000..offset=9010", "0@1700000000000", "0@byte=100000"]

        def heads() -> list[bytes]:
            found = []
            for name in names:
                with (mount.point / "orders" / name).open("rb") as file:
                    found.append(file.read(5000))
            return found

        before = heads()
        assert before[0].startswith(b"line 5 ")
        for path in (data / "orders-0").glob(f"*.{kind}"):
            os.truncate(path, int(path.stat().st_size * left))
        assert heads() == before
        assert heads() == before
        mount.restart()
        assert heads() == before
