"""Programs and system calls on a real mount: what they see, are refused, and what is cached."""

import errno
import json
import mmap
import os
import re
import subprocess
import threading
from pathlib import Path

import pytest

from tests.fs.mounting import Mounted
from tests.mounting import logfs

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


def errno_of(call: object, *args: object) -> int | None:
    """Return the errno a system call ends with."""
    try:
        call(*args)  # type: ignore[operator]  # any function
    except OSError as error:
        return error.errno
    return None


# Programs


def test_a_session(mounted: Mounted) -> None:
    assert mounted.shell("ls -A") == ""
    mounted.shell("mkdir orders; echo hello >> orders/0; printf 'k\\tv\\n' >> orders/0.tsv")
    assert mounted.shell("cat orders/0; cut -f1 orders/0.tsv; ls -A . orders") == (
        "hello\nv\n\\N\nk\n.:\norders\n\norders:\n0\n"
    )
    assert mounted.shell("touch orders/2; ls orders; tail -n 1 orders/0; wc -c < orders/0") == (
        "0\n1\n2\nv\n8\n"
    )
    assert mounted.shell("grep -r v orders | sort") == "orders/0:v\n"
    assert mounted.shell("printf x >> orders/0; cat orders/0") == "hello\nv\nx\n"
    assert mounted.shell("{ printf a; printf 'b\\n'; } >> orders/1; cat orders/1") == "ab\n"
    assert mounted.shell("echo done | tee -a orders/1; cat orders/0@offset=1..latest") == (
        "done\nv\nx\n"
    )
    assert mounted.shell("cp orders/0@earliest..latest ../copy; cat ../copy") == "hello\nv\nx\n"
    assert mounted.shell("rmdir orders 2>&1; ls -A") == (
        "rmdir: failed to remove 'orders': Directory not empty\norders\n"
    )
    assert mounted.shell("mkdir empty; rmdir empty; ls -A") == "orders\n"


def test_lines_of_a_megabyte_a_piece(mounted: Mounted, tmp_path: Path) -> None:
    lines = b"".join(b"%08d %s\n" % (n, b"x" * (n % 200)) for n in range(50_000))
    (tmp_path / "lines").write_bytes(lines)
    mounted.shell("mkdir orders; cat ../lines >> orders/0")
    assert mounted.shell("cmp orders/0 ../lines; cat orders/0 | cmp - ../lines") == ""
    assert mounted.shell("cmp orders/0@earliest..latest ../lines; wc -l < orders/0") == "50000\n"
    assert mounted.shell("tail -n 3 orders/0 | cmp - <(tail -n 3 ../lines)") == ""
    assert mounted.shell("dd if=orders/0 bs=7777 skip=100 count=10 status=none | md5sum") == (
        mounted.shell("dd if=../lines bs=7777 skip=100 count=10 status=none | md5sum")
    )


def test_requests_are_of_a_megabyte(mounted: Mounted) -> None:
    mounted.shell("mkdir orders")
    block = b"x" * 99 + b"\n"
    with (mounted.point / "orders/0").open("ab", buffering=0) as file:
        assert file.write(block * 30_000) == 3_000_000
    segments = json.loads(mounted.shell("cat orders/0.meta"))
    assert segments["log_end_offset"] == 30_000
    with (mounted.point / "orders/0").open("rb", buffering=0) as read:
        assert len(read.read(1 << 20)) == 1 << 20
        assert os.fstat(read.fileno()).st_blksize == 1 << 20


def test_tail_follows(mounted: Mounted) -> None:
    mounted.shell("mkdir orders; echo old >> orders/0")
    follow = subprocess.Popen(
        ["tail", "-n", "0", "-f", "orders/0"], cwd=mounted.point, stdout=subprocess.PIPE
    )
    assert follow.stdout is not None
    try:
        mounted.shell("sleep 0.3; echo new >> orders/0")
        assert follow.stdout.readline() == b"new\n"
    finally:
        follow.terminate()
        follow.wait()
        follow.stdout.close()


def test_many_writers(mounted: Mounted) -> None:
    mounted.shell("mkdir orders")

    def write(number: int) -> None:
        with (mounted.point / f"orders/0{'.tsv' if number % 2 else ''}").open("ab", 0) as file:
            for line in range(200):
                file.write(b"%d " % number)
                file.write(b"%d\n" % line)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (mounted.point / "orders/0").read_bytes().splitlines()
    assert len(lines) == 1600
    for number in range(8):
        mine = [line.split()[1] for line in lines if line.startswith(b"%d " % number)]
        assert mine == [b"%d" % line for line in range(200)]


def test_a_thousand_partitions_are_listed(mounted: Mounted) -> None:
    """More than a process may have files open, as a rule, and than fit into one reply."""
    mounted.shell("mkdir orders")
    for last in range(99, 1100, 100):  # each takes its time on a disk that is busy
        mounted.shell(f"touch orders/{last}")
    assert sorted(map(int, os.listdir(mounted.point / "orders"))) == list(range(1100))
    for program in ("ls orders", "find . -type f", "ls .segments"):
        assert mounted.shell(f"{program} | wc -l") == "1100\n"
    assert len(mounted.shell("ls -l orders").splitlines()) == 1101
    with os.scandir(mounted.point / "orders") as entries:
        assert all(entry.is_file() for entry in entries)


def test_fsync(mounted: Mounted) -> None:
    mounted.shell("mkdir orders; echo one >> orders/0; sync orders/0; sync orders")
    mounted.shell("dd if=/dev/zero of=orders/0 oflag=append,dsync conv=notrunc bs=100 count=3")
    assert json.loads(mounted.shell("cat orders/0.meta"))["durable"]["recovery_point"] == 1


# The kernel's caches


def test_a_fixed_name_is_read_once(mounted: Mounted) -> None:
    mounted.shell("mkdir orders; yes 0123456789 | head -n 100000 >> orders/0")
    path = mounted.point / "orders/0@earliest..latest"
    with path.open("rb") as first, path.open("rb") as second:
        data = first.read()
        assert os.stat(path).st_ino == os.fstat(second.fileno()).st_ino
        mounted.shell("echo more >> orders/0")
        assert second.read() == data
        assert len(data) == 1_100_000


def test_mmap_and_sendfile_of_a_fixed_name(mounted: Mounted) -> None:
    mounted.shell("mkdir orders; seq 10000 >> orders/0")
    expected = "".join(f"{n}\n" for n in range(1, 10001)).encode()
    with (
        (mounted.point / "orders/0@earliest..latest").open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped,
    ):
        assert mapped[:] == expected
    assert mounted.shell("tar -cf - orders/0@earliest..latest | tar -xOf -").encode() == expected


def test_what_is_appended_is_seen_at_once_everywhere(mounted: Mounted) -> None:
    mounted.shell("mkdir orders")
    path = mounted.point / "orders/0"
    with path.open("ab", 0) as writer, path.open("rb", 0) as reader:
        for number in range(50):
            line = b"line %d\n" % number
            writer.write(line)
            assert reader.read(100) == line
            assert os.fstat(reader.fileno()).st_size == os.stat(path).st_size


# Refusals


def test_refusals(mounted: Mounted) -> None:
    mounted.shell("mkdir orders; echo one >> orders/0; cp orders/0 ../file")
    path = mounted.point
    for script in (
        "echo x > orders/0",
        "truncate -s 0 orders/0",
        "rm orders/0",
        "mv orders/0 orders/1",
        "mv orders bills",
        "ln orders/0 orders/copy",
        "ln -s 0 orders/copy",
        "sed -i s/a/b/ orders/0",
        "echo x | tee orders/0",
        "cp ../file orders/0",
        "cp ../file orders/new",
        "echo x >> orders/0@-1h",
        "echo x >> orders/0.meta",
        "echo x >> orders/0.follow",
        "truncate -s 0 orders/0.follow",
        "echo x >> .segments/orders-0/00000000000000000000.log",
        "echo x >> orders/README",
        "mkfifo orders/fifo",
        "mkdir orders/sub",
        "chmod 600 orders/0.meta",
        "touch README",
    ):
        result = mounted.run(script)
        assert result.returncode, script
        assert "Operation not permitted" in result.stdout, (script, result.stdout)
    assert errno_of(os.stat, path / "orders/0@soon") == errno.EINVAL
    assert errno_of(os.stat, path / "orders/1") == errno.ENOENT
    assert errno_of(os.mkdir, path / "with space") == errno.EINVAL
    assert errno_of(os.mkdir, path / ".segments") == errno.EEXIST
    assert errno_of(os.mkdir, path / "orders") == errno.EEXIST
    assert errno_of(os.open, path / "orders/9", os.O_WRONLY | os.O_APPEND | os.O_CREAT) == (
        errno.ENOENT
    )
    assert errno_of(os.open, path / "orders/9", os.O_WRONLY | os.O_EXCL | os.O_CREAT) == (
        errno.EPERM
    )
    assert errno_of(os.stat, path / "orders/0/x") == errno.ENOTDIR
    assert errno_of(os.stat, os.fsencode(path) + b"/orders/\xff") == errno.ENOENT
    assert errno_of(os.setxattr, path / "orders/0", "user.x", b"1") == errno.ENOTSUP
    assert errno_of(os.getxattr, path / "orders/0", "user.x") == errno.ENODATA
    mounted.shell("touch orders/0 orders/0@-1h orders/0.meta orders .segments; cat orders/0")
    assert mounted.shell("cat orders/0") == "one\n"


def test_fallocate_and_its_likes(mounted: Mounted) -> None:
    mounted.shell("mkdir orders")
    with (mounted.point / "orders/0").open("ab") as file:
        assert errno_of(os.posix_fallocate, file.fileno(), 0, 100) in (
            errno.EOPNOTSUPP,
            errno.EBADF,
        )
        assert errno_of(os.ftruncate, file.fileno(), 0) == errno.EPERM
    assert errno_of(os.readlink, mounted.point / "orders/0") == errno.EINVAL


def test_a_line_that_is_too_long_is_emsgsize_and_short(mounted: Mounted) -> None:
    mounted.expected = ["orders/0: line 1"]
    mounted.shell("mkdir orders; setfattr -n user.logfs.max.message.bytes -v 1000 orders")
    with (mounted.point / "orders/0").open("ab", 0) as file:
        assert file.write(b"ok\n" + b"x" * 2000 + b"\n") == 3
        assert errno_of(file.write, b"x" * 2000 + b"\n") == errno.EMSGSIZE
    assert mounted.shell("cat orders/0") == "ok\n"


def test_configuration_and_facts(mounted: Mounted) -> None:
    mounted.expected = ["segment.ms=604800000 is longer than retention.ms=86400000"]
    mounted.shell("mkdir orders; seq 3 >> orders/0")
    mounted.shell("setfattr -n user.logfs.retention.ms -v 86400000 orders")
    assert 'user.logfs.retention.ms="86400000"' in mounted.shell("getfattr -d orders")
    facts = mounted.shell("getfattr -d orders/0")
    assert re.search(r'user.logfs.end="6"', facts)
    assert re.search(r'user.logfs.log_end_offset="3"', facts)
    mounted.shell("setfattr -x user.logfs.retention.ms orders")
    assert errno_of(os.setxattr, mounted.point / "orders", "user.logfs.retention.ms", b"x") == (
        errno.EINVAL
    )


def test_modes_and_owners_survive(mounted: Mounted) -> None:
    mounted.shell(
        "mkdir -m 750 orders; chmod 600 orders/0; chown 33:44 orders orders/0; chmod 711 ."
    )
    expected = "711\n750 33 44\n600 33 44\n"
    script = "stat -c %a .; stat -c '%a %u %g' orders orders/0"
    assert mounted.shell(script) == expected
    mounted.restart()
    assert mounted.shell(script) == expected


def test_df_and_ls_dots(mounted: Mounted) -> None:
    assert mounted.shell("df --output=source . | tail -n 1").strip() == str(mounted.data)
    mounted.shell("mkdir orders")
    assert mounted.shell("ls -a orders") == ".\n..\n0\n"


def test_deleted_topics_are_read_to_the_end(mounted: Mounted) -> None:
    mounted.shell("mkdir orders; echo one >> orders/0")
    path = mounted.point / "orders/0"
    writer = path.open("ab", 0)
    with path.open("rb", 0) as reader:
        logfs("topic", "delete", mounted.point / "orders")
        mounted.shell("mkdir orders; echo other >> orders/0")
        assert reader.read() == b"one\n"
        assert os.fstat(reader.fileno()).st_size == 4
    assert errno_of(writer.write, b"x\n") == errno.ESTALE
    assert errno_of(writer.close) == errno.ESTALE  # close reports what failed earlier
    assert mounted.shell("cat orders/0") == "other\n"


def test_a_corrupt_batch_is_never_shown_and_never_passed_over(mounted: Mounted) -> None:
    mounted.expected = ["does not decode", "checksum differs"]
    mounted.shell("mkdir orders; setfattr -n user.logfs.max.message.bytes -v 1000000 orders")
    mounted.shell("setfattr -n user.logfs.segment.bytes -v 1048576 orders")
    lines = b"".join(b"%07d\n" % number for number in range(400_000))
    with (mounted.point / "orders/0").open("ab", 0) as file:
        for start in range(0, len(lines), 80_000):
            file.write(lines[start : start + 80_000])
    mounted.stop()
    log = mounted.data / "orders-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[data.index(b"0025000")] ^= 1  # in the batch of the lines 20000 to 29999
    log.write_bytes(data)
    mounted.start()
    # The kernel keeps whole pages: a fixed name is exact once the damage is known.
    fixed = "0@earliest..latest"
    for name, page in (("0", 1), (fixed, 4096), (fixed, 1), (f"0@byte=0..byte={len(lines)}", 1)):
        fd = os.open(mounted.point / "orders" / name, os.O_RDONLY)
        got = bytearray()
        while errno_of(lambda fd=fd, got=got: got.extend(os.read(fd, 1 << 16))) is None:
            pass
        assert lines[: len(got)] == got
        assert len(got) == 160_000 // page * page
        behind = -(-240_000 // page) * page
        assert os.pread(fd, 1 << 20, behind) == lines[behind:][: 1 << 20]
        os.close(fd)


def test_create_as_a_mount_option(mounted: Mounted) -> None:
    mounted.options = ("create,num.partitions=2",)
    mounted.restart()
    assert mounted.shell("mkdir orders; ls orders; echo x >> orders/4; ls orders | wc -l") == (
        "0\n1\n5\n"
    )
