"""A plain copy of a data directory has the id of the first one: it must not remove its objects."""

import subprocess
from pathlib import Path

import pytest

from logfs.disk import generations
from logfs.disk.posix import PosixDisk
from logfs.errors import FencedError
from logfs.log.remote.directory import forget_directory_id, own_directory
from logfs.services.tiering.removing import SHORTEST_DELAY_MS
from tests.log.support import text_of
from tests.mounting import Mount, logfs, wait_until
from tests.remote.servers import Bucket, ObjectServer
from tests.remote.test_tiered_mount import append, make_topic, remote_of, text, tiered_mount
from tests.remote.tiering import TIERED, TieredBench, no_throttle


def copied(bench: TieredBench) -> TieredBench:
    """Return a second directory with the same records and the same id."""
    return TieredBench(TIERED, disk=bench.disk.after_kill(), objects=bench.objects)


def delete_topic(bench: TieredBench) -> None:
    """Delete the topic, until its own files are gone."""
    bench.store.delete_topic("t", bench.now_ms)
    bench.now_ms += SHORTEST_DELAY_MS + 1
    bench.store.remove_due_files(bench.now_ms)


@pytest.mark.expect_log("another data directory has taken over this partition")
def test_a_topic_deleted_in_a_copy_keeps_what_the_other_one_has_copied_since() -> None:
    bench = TieredBench()
    text = bench.fill(20)
    bench.tier_all()
    other = copied(bench)
    text += bench.fill(20, first=20)
    bench.tier_all()
    delete_topic(other)
    topics = other.deleted_topics()
    for _ in range(3):
        other.now_ms += SHORTEST_DELAY_MS + 1
        assert not topics.remove_due(other.now_ms)
    text += bench.fill(20, first=40)
    bench.tier_all()
    assert text_of(bench.log) == text


@pytest.mark.expect_log("fenced by")
@pytest.mark.expect_log("another data directory has taken over this partition")
def test_a_fenced_daemon_removes_no_objects_of_a_topic_that_is_deleted() -> None:
    bench = TieredBench()
    text = bench.fill(20)
    bench.tier_all()
    other = copied(bench)
    other.tiering.begin()
    bench.fill(20, first=20)
    with pytest.raises(FencedError):
        bench.tiering.copy(no_throttle)
    place = bench.place
    delete_topic(bench)
    topics = bench.deleted_topics(given_up={place})
    for _ in range(3):
        bench.now_ms += SHORTEST_DELAY_MS + 1
        assert not topics.remove_due(bench.now_ms)
    assert text_of(other.log) == text


def test_a_directory_knows_that_it_is_a_copy(tmp_path: Path) -> None:
    def new_id() -> bytes:
        return b"d" * 16

    first = PosixDisk(str(tmp_path / "first"))
    (tmp_path / "first").mkdir()
    first.replace("logfs.remote", b"url=s3://bucket/logs")
    assert own_directory(first, new_id, "m1") == (b"d" * 16, False)
    assert own_directory(first, new_id, "m1") == (b"d" * 16, False)
    subprocess.run(["cp", "-a", tmp_path / "first", tmp_path / "second"], check=True)
    second = PosixDisk(str(tmp_path / "second"))
    assert own_directory(second, new_id, "m1") == (b"d" * 16, True)
    assert own_directory(second, new_id, "m1", is_moved=True) == (b"d" * 16, False)
    assert own_directory(second, new_id, "m1") == (b"d" * 16, False)
    assert own_directory(first, new_id, "m1") == (b"d" * 16, False)
    forget_directory_id(second)
    assert second.read("logfs.remote") == b"url=s3://bucket/logs\n"


def test_a_directory_whose_place_was_not_noted_notes_it(tmp_path: Path) -> None:
    disk = PosixDisk(str(tmp_path))
    disk.replace("logfs.remote", b"url=s3://bucket/logs\ndirectory.id=" + b"ab" * 16 + b"\n")
    for _ in range(2):
        assert own_directory(disk, lambda: b"", "m1") == (b"\xab" * 16, False)


def noted(path: Path) -> PosixDisk:
    """Return a directory that has its id."""
    path.mkdir()
    disk = PosixDisk(str(path))
    disk.replace("logfs.remote", b"url=s3://bucket/logs")
    assert not own_directory(disk, lambda: b"d" * 16, "m1").is_copy
    return disk


def is_copy(path: Path, machine: str = "m1") -> bool:
    return own_directory(PosixDisk(str(path)), lambda: b"", machine).is_copy


def test_a_disk_that_goes_to_another_machine_is_no_copy(tmp_path: Path) -> None:
    if not has_generations(tmp_path):
        pytest.skip("the file system has no generations of inodes")
    noted(tmp_path / "first")
    assert not is_copy(tmp_path / "first", "m2")
    (tmp_path / "first").rename(tmp_path / "second")
    assert not is_copy(tmp_path / "second")
    subprocess.run(["cp", "-al", tmp_path / "second", tmp_path / "linked"], check=True)
    assert is_copy(tmp_path / "linked")
    assert not is_copy(tmp_path / "second")


def test_without_generations_machine_and_inode_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "_GET_VERSION", 0)
    noted(tmp_path / "first")
    assert not is_copy(tmp_path / "first")
    assert is_copy(tmp_path / "first", "m2")


def test_the_note_of_an_earlier_version_is_completed(tmp_path: Path) -> None:
    disk = noted(tmp_path / "first")
    place = disk.read("logfs.remote.home").splitlines(keepends=True)[0]
    disk.replace("logfs.remote.home", place)
    assert is_copy(tmp_path / "first", "m2")
    for machine in ("m1", "m2"):
        expected = machine == "m2" and not has_generations(tmp_path)
        assert is_copy(tmp_path / "first", machine) == expected


def test_a_note_that_a_crash_has_cut_is_written_again(tmp_path: Path) -> None:
    disk = noted(tmp_path / "first")
    whole = disk.read("logfs.remote.home")
    (tmp_path / "first" / "logfs.remote.home").write_bytes(whole[:5])
    assert not is_copy(tmp_path / "first", "m2")
    assert disk.read("logfs.remote.home").splitlines()[1:] == whole.splitlines()[1:]


def has_generations(path: Path) -> bool:
    """Whether the file system gives the generation of an inode."""
    file = PosixDisk(str(path)).open("asked", write=True, create=True)
    return generations.generation_of(file) is not None


@pytest.mark.fuse
@pytest.mark.slow
def test_a_topic_that_is_deleted_in_a_copy_stays_in_the_store(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    first = tiered_mount(tmp_path, bucket)
    with first:
        file, lines = make_topic(first), text(0, 30_000)
        append(file, lines)
        wait_until(lambda: remote_of(file)["remote_only_segments"], "segments are only there")
    stored = logfs("cat", f"{bucket.url}/orders/0")
    second = Mount(tmp_path / "copy", tmp_path / "mnt2", variables=bucket.environment)
    second.options = ("log.segment.delete.delay.ms=0",)
    second.data.rmdir()
    subprocess.run(["cp", "-a", first.data, second.data], check=True)
    with first, second:
        logfs("topic", "delete", str(second.point / "orders"))
        wait_until(lambda: "of a deleted topic: this data" in second.log, "told")
        assert "nothing is copied to the object store" in second.log
        assert logfs("cat", f"{bucket.url}/orders/0") == stored
        assert file.read_bytes() == lines
    first.start()
    try:
        more = text(30_000, 30_000)
        append(file, more)
        wait_until(lambda: remote_of(file)["remote_only_segments"] > 5, "it copies again")
        assert file.read_bytes() == lines + more
    finally:
        first.stop()


@pytest.mark.fuse
@pytest.mark.slow
def test_a_bucket_that_was_copied_continues_in_the_place_of_the_first(
    tmp_path: Path,
    bucket: Bucket,
    object_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy has the same bytes, and other ETags and times."""
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    copy = object_server.bucket("copied", "elsewhere/logs")
    lines = text(0, 60_000)
    with tiered_mount(tmp_path, bucket) as mount:
        file = make_topic(mount)
        append(file, lines[:3_000_000])
        wait_until(lambda: remote_of(file)["remote_only_segments"] == 3, "the local files are gone")
        mount.stop()
        source, target = bucket.open(), copy.open()
        for stat in list(source.list_all("")):
            target.put(stat.key, [source.get(stat.key, 1 << 30)[0]])
        for stat in list(source.list_all("")):
            source.delete(stat.key)
        place = mount.data / "logfs.remote"
        place.write_text(place.read_text().replace(f"url={bucket.url}", f"url={copy.url}"))
        mount.start()
        assert file.read_bytes() == lines[:3_000_000]
        append(file, lines[3_000_000:])
        wait_until(lambda: remote_of(file)["remote_only_segments"] == 6, "the copy is written")
        assert file.read_bytes() == lines
        stored = logfs("cat", f"{copy.url}/orders/0")
        assert lines.startswith(stored)
        assert len(stored) > 5_000_000
