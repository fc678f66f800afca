"""The library while a daemon owns the directory: through its socket, and reading the files."""

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import logfs
from logfs.client import Daemon
from logfs.errors import ControlError, ReadOnlyError
from tests.dying import WRITES, dying_variables
from tests.mounting import Mount

pytestmark = pytest.mark.fuse


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    with Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        (mount.point / "orders").mkdir()
        yield mount


def values(records: Iterable[logfs.Record]) -> list[bytes | None]:
    return [record.value for record in records]


def append_line(path: Path, line: bytes) -> None:
    with path.open("ab") as file:
        file.write(line + b"\n")


@pytest.mark.parametrize("through", ["data", "point"])
def test_both_sides_see_what_the_other_writes(mount: Mount, through: str) -> None:
    file = mount.point / "orders" / "0"
    with logfs.open(getattr(mount, through) / "orders" / "0") as orders:
        coming = orders.follow("earliest")
        for n in range(3):
            assert orders.append(b"library %d" % n, key=b"k") == 2 * n
            append_line(file, b"mount %d" % n)
            assert [next(coming).value for _ in range(2)] == [b"library %d" % n, b"mount %d" % n]
        orders.flush()
        assert file.read_bytes().splitlines() == values(orders.read())
        assert (mount.point / "orders" / "0.tsv").read_bytes().startswith(b"k\tlibrary 0\n")
        assert orders.append_many([b"x" * 1000] * 20_000, durable=True) == range(6, 20_006)
        assert sum(map(len, orders.read_batches(6))) == 20_000


def test_a_follower_is_woken_by_what_the_mount_is_written(mount: Mount) -> None:
    with logfs.open(mount.data / "orders" / "0") as orders:
        found = orders.follow(timeout=30)
        timer = threading.Timer(0.2, append_line, [mount.point / "orders" / "0", b"here"])
        timer.start()
        assert next(found).value == b"here"
        timer.join()


def test_the_daemon_changes_topics(mount: Mount) -> None:
    with logfs.open_store(mount.point) as store:
        assert store.data == str(mount.data)
        store.create_topic("prices", 2, {"retention.ms": "1000000"})
        assert sorted(path.name for path in mount.point.iterdir()) == ["orders", "prices"]
        store.partition("prices", 1).append(b"v")
        assert (mount.point / "prices" / "1").read_bytes() == b"v\n"
        store.delete_topic("prices")
        assert [path.name for path in mount.point.iterdir()] == ["orders"]


def test_a_daemon_that_was_restarted_is_found_again(mount: Mount) -> None:
    with logfs.open(mount.data / "orders" / "0") as orders:
        orders.append(b"one")
        coming = orders.follow("earliest")
        assert next(coming).value == b"one"
        mount.restart()
        orders.append(b"two")
        assert next(coming).value == b"two"
        mount.crash()
        orders.append(b"three")
        assert next(coming).value == b"three"
        mount.stop()
        orders.append(b"four")  # under the lock now
        assert next(coming).value == b"four"
    mount.start()
    assert (mount.point / "orders" / "0").read_bytes() == b"one\ntwo\nthree\nfour\n"


@pytest.mark.parametrize("is_done", [False, True])
def test_an_append_without_an_answer_is_written_once(tmp_path: Path, is_done: bool) -> None:
    """The daemon dies before the write, or after it; the program cannot know."""
    died = tmp_path / "died"
    variables = dying_variables(tmp_path / "path", died, is_behind=is_done)
    with Mount(tmp_path / "data", tmp_path / "mnt", variables=variables) as mount:
        (mount.point / "orders").mkdir()
        with logfs.open(mount.data / "orders" / "0") as orders:
            producer = orders.producer(1)
            for n in range(WRITES - 1):
                producer.append_many([b"%d" % n])
            with pytest.raises(ControlError, match="may be done or not"):
                producer.append_many([b"last"])
            assert died.exists()
            mount.crash()
            assert producer.append_many([b"last"]).is_duplicate == is_done
            assert values(orders.read()) == [b"%d" % n for n in range(WRITES - 1)] + [b"last"]


def test_the_default_isolation_level_is_that_of_the_mount(tmp_path: Path) -> None:
    level = "isolation.level=read_committed"
    with Mount(tmp_path / "data", tmp_path / "mnt", level) as mount:
        (mount.point / "orders").mkdir()
        with logfs.open(mount.data / "orders" / "0") as orders:
            assert orders.isolation_level == "read_committed"
            producer = orders.producer(1)
            with producer.transaction():
                producer.append_many([b"a"])
                assert orders.end_offset == 0
            assert values(orders.read()) == [b"a"]
        path = mount.data / "orders" / "0"
        with logfs.open(path, isolation_level="read_uncommitted") as everything:
            assert everything.end_offset == 2


@pytest.mark.allow_log("removed before they were read")
def test_followers_see_everything_while_the_daemon_compacts_rolls_and_trims(mount: Mount) -> None:
    """Each record that is kept, once and in order; one that is removed in time may be missed."""
    with logfs.open_store(mount.data) as store:
        small = {"internal.segment.bytes": "20000", "cleanup.policy": "compact,delete"}
        store.create_topic("keyed", config=small)
        keyed, seen = store.partition("keyed"), list[logfs.Record]()
        thread = threading.Thread(target=lambda: seen.extend(keyed.follow("earliest", 3000)))
        thread.start()
        daemon = Daemon.connect(str(mount.data))
        assert daemon is not None
        for turn in range(30):
            keyed.append_many(
                logfs.NewRecord(b"%d" % (100 * turn + n) + b"." * 90, key=b"%d" % (n % 40))
                for n in range(100)
            )
            request = {"topic": "keyed", "partition": 0}
            if turn % 3 == 1:
                daemon.ask("compact", {**request, "roll": True})
            if turn % 7 == 5:
                names = ["keyed", f"0@offset={100 * turn - 500}"]
                daemon.ask("trim", {"names": names, "at_once": True})
        daemon.close()
        thread.join()
        offsets = [record.offset for record in seen]
        assert offsets == sorted(set(offsets))
        assert all(record.value == b"%d" % record.offset + b"." * 90 for record in seen)
        kept = list(keyed.read())
        assert {record.offset for record in kept} <= set(offsets)
        last = {n % 40: 2900 + n for n in range(100)}
        assert {int(record.key or b""): record.offset for record in kept} == last


def test_through_a_read_only_mount_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with logfs.open_store(tmp_path / "data") as store:
        store.create_topic("orders")
        store.partition("orders").append(b"v")
    with (
        Mount(tmp_path / "data", tmp_path / "mnt", "ro") as mount,
        logfs.open(mount.point / "orders" / "0") as orders,
    ):
        assert values(orders.read()) == [b"v"]
        with pytest.raises(ReadOnlyError, match="read-only"):
            orders.append(b"w")
        with logfs.open(mount.data / "orders" / "0") as direct:  # no process owns it
            direct.append(b"w")
        assert values(orders.follow("earliest", 2)) == [b"v", b"w"]
