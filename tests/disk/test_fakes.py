"""The fake disk lies as it should: what the log's tests build on."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import LockedError
from tests.disk.crashes import SEEDS, file_of, outcomes
from tests.fakes import FakeDisk
from tests.fakestate import Ranges


def test_a_kill_keeps_everything_and_a_later_crash_still_can_take_it() -> None:
    disk = FakeDisk()
    file = file_of(disk, durable=b"old")
    file.pwrite(b"new", 3)
    killed = disk.after_kill()
    assert killed.read("a") == b"oldnew"
    assert killed.after_crash(None).read("a") == b"old"
    file.pwrite(b"!", 6)
    assert killed.read("a") == b"oldnew"


def test_a_crash_keeps_what_was_synced() -> None:
    disk = FakeDisk()
    file_of(disk, durable=b"synced")
    assert outcomes(disk) == {b"synced"}
    assert disk.after_crash(None).read("a") == b"synced"


def test_a_crash_keeps_any_prefix_of_the_rest() -> None:
    disk = FakeDisk()
    file = file_of(disk, durable=b"old")
    file.pwrite(b"ab", 3)
    file.pwrite(b"cd", 5)
    assert {b"old", b"olda", b"oldab", b"oldabc", b"oldabcd"} <= outcomes(disk)
    assert disk.after_crash(None).read("a") == b"old"


def test_a_crash_may_leave_wrong_bytes_but_only_among_the_unsynced() -> None:
    disk = FakeDisk()
    file = file_of(disk, durable=b"old")
    file.pwrite(b"abcd", 3)
    found = outcomes(disk)
    assert all(outcome.startswith(b"old") for outcome in found)
    assert any(set(outcome[3:]) - set(b"abcd\0") for outcome in found)
    assert any(b"\0" in outcome for outcome in found)


def test_a_crash_may_tear_what_overwrites_synced_bytes() -> None:
    disk = FakeDisk()
    file = file_of(disk, durable=b"0123456789")
    file.pwrite(b"abc", 4)
    found = outcomes(disk)
    assert {b"0123456789", b"0123a56789", b"0123abc789"} <= found
    assert all(outcome[:4] == b"0123" and outcome[7:] == b"789" for outcome in found)


def test_a_crash_may_undo_a_truncation_until_it_is_synced() -> None:
    disk = FakeDisk()
    file = file_of(disk, durable=b"0123")
    file.truncate(2)
    assert outcomes(disk) == {b"01", b"0123"}
    file.sync()
    assert outcomes(disk) == {b"01"}


def test_a_failed_sync_drops_the_bytes_for_good() -> None:
    disk = FakeDisk()
    file = file_of(disk, durable=b"old")
    file.pwrite(b"lost", 3)
    disk.fail_next_sync("a")
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    assert file.pread(9, 0) == b"oldlost"  # the page cache calls it clean
    file.sync()  # proves nothing
    assert outcomes(disk) == {b"old", b"old\0\0\0\0"}
    file.pwrite(b"kept", 7)
    file.sync()
    assert outcomes(disk) == {b"old\0\0\0\0kept"}
    assert disk.after_kill().read("a") == b"oldlostkept"


def test_a_new_name_needs_a_sync_of_its_folder() -> None:
    disk = FakeDisk()
    disk.open("a", write=True, create=True).sync()
    assert {disk.after_crash(seed).exists("a") for seed in SEEDS} == {True, False}
    assert not disk.after_crash(None).exists("a")
    disk.sync_directory("")
    assert {disk.after_crash(seed).exists("a") for seed in (*SEEDS, None)} == {True}


def test_renamed_and_removed_names_are_independent_of_each_other() -> None:
    disk = FakeDisk()
    for name in "abc":
        file_of(disk, name, durable=name.encode())
    disk.rename("a", "A")
    disk.remove("b")
    disk.rename("c", "C")
    found = {"".join(name for name, _ in disk.after_crash(seed).list("")) for seed in SEEDS}
    every = (a + b + c for a in "aA" for b in ("b", "") for c in "cC")
    assert found == {"".join(sorted(names)) for names in every}
    assert disk.after_crash(None).read("b") == b"b"
    disk.sync_directory("")
    assert [name for name, _ in disk.after_crash(None).list("")] == ["A", "C"]


def test_changes_of_one_name_are_kept_in_order() -> None:
    disk = FakeDisk()
    file_of(disk, durable=b"1")
    disk.open("new", write=True, create=True)
    disk.rename("new", "a")
    found = {tuple(name for name, _ in disk.after_crash(seed).list("")) for seed in SEEDS}
    assert found == {("a",), ("a", "new")}


def test_a_name_used_again_does_not_swallow_what_it_named() -> None:
    disk = FakeDisk()
    file_of(disk, durable=b"synced")
    disk.rename("a", "b")
    disk.open("a", write=True, create=True)
    for seed in SEEDS:
        crashed = disk.after_crash(seed)
        assert b"synced" in [crashed.read(name) for name, _ in crashed.list("")]


def test_a_directory_that_is_lost_takes_its_files_along() -> None:
    disk = FakeDisk()
    disk.make_directory("d")
    disk.open("d/a", write=True, create=True)
    disk.sync_directory("d")
    assert not disk.after_crash(None).exists("d")
    disk.sync_directory("")
    assert disk.after_crash(None).exists("d/a")


def test_a_failed_sync_of_a_folder_loses_its_names_for_good() -> None:
    disk = FakeDisk()
    disk.open("a", write=True, create=True)
    disk.fail_next("sync_directory", "")
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync_directory("")
    assert disk.exists("a")
    disk.sync_directory("")
    assert not any(disk.after_crash(seed).exists("a") for seed in SEEDS)


def test_replace_is_old_or_new_after_any_failure_and_crash() -> None:
    """Cuts the power before every operation, and lets every operation fail."""
    steps = 0
    for steps in range(1, 20):
        crashed = crash_in_replace(steps)
        assert set(crashed) <= {b"old", b"new one"}
        if not crashed:
            break
    assert 5 < steps < 19


def crash_in_replace(step: int) -> list[bytes]:
    """Return what is found after power cuts before an operation, which then fails."""
    disk = FakeDisk()
    disk.replace("a", b"old")
    crashed: list[bytes] = []
    calls = 0

    def look(operation: str, _name: str, _size: int) -> None:
        nonlocal calls
        calls += 1
        if calls == step:
            crashed.extend(disk.after_crash(seed).read("a") for seed in range(20))
            raise OSError(errno.EIO, operation)

    disk.before = look
    try:
        disk.replace("a", b"new one")
    except OSError:
        assert crashed
        assert disk.read("a") in {b"old", b"new one"}
    else:
        assert disk.after_crash(None).read("a") == b"new one"
    return crashed


def test_failures_hit_once_and_only_what_matches() -> None:
    disk = FakeDisk()
    log, index = file_of(disk, "a.log"), file_of(disk, "a.index")
    disk.fail_next_sync("*.log", errno.EDQUOT)
    index.sync()
    with pytest.raises(OSError, match=r"a\.log") as caught:
        log.sync()
    assert caught.value.errno == errno.EDQUOT
    log.sync()
    disk.fail_next("rename")
    with pytest.raises(OSError, match=r"a\.log"):
        disk.rename("a.log", "b.log")
    assert disk.list("") == [("a.index", False), ("a.log", False)]


def test_failed_write_leaves_its_first_bytes() -> None:
    disk = FakeDisk()
    file = file_of(disk, durable=b"old")
    disk.fail_next_write("a", errno.EIO, after_bytes=2)
    with pytest.raises(OSError, match="Input/output error"):
        file.pwrite(b"abcd", 3)
    assert disk.read("a") == b"oldab"
    disk.fail_next_write("a")
    with pytest.raises(OSError, match="Input/output error"):
        file.pwrite(b"abcd", 3)
    assert disk.read("a") == b"oldab"
    file.pwrite(b"abcd", 3)
    assert disk.read("a") == b"oldabcd"


def test_a_full_disk_takes_a_prefix_and_holes_are_free() -> None:
    disk = FakeDisk()
    disk.space_bytes = 10
    file = file_of(disk, durable=b"0123")
    file.truncate(1000)
    other = file_of(disk, "b")
    with pytest.raises(OSError, match="No space left") as caught:
        other.pwrite(b"abcdefgh", 0)
    assert caught.value.errno == errno.ENOSPC
    assert disk.read("b") == b"abcdef"
    assert disk.free().f_bavail == 0
    file.pwrite(b"9876", 0)  # overwriting needs no room
    other.truncate(3)
    file.pwrite(b"xyz", 500)
    assert disk.used_bytes == 10
    disk.remove("b")
    assert disk.used_bytes == 10  # still open
    other.close()
    assert disk.used_bytes == 7


def test_a_full_disk_lets_replace_fail_and_keep_the_old() -> None:
    disk = FakeDisk()
    disk.replace("a", b"old")
    disk.space_bytes = 5
    with pytest.raises(OSError, match="No space left"):
        disk.replace("a", b"new one")
    assert disk.list("") == [("a", False)]
    assert disk.read("a") == b"old"
    assert disk.used_bytes == 3


def test_operations_are_counted_and_announced() -> None:
    disk = FakeDisk()
    seen: list[tuple[str, str, int]] = []
    disk.before = lambda *call: seen.append(call)
    file = disk.open("a", write=True, create=True)
    file.pwrite(b"abc", 0)
    file.sync()
    file.pread(2, 0)
    assert seen == [("open", "a", 0), ("pwrite", "a", 3), ("sync", "a", 0), ("pread", "a", 2)]
    assert disk.counts["sync"] == 1
    assert disk.bytes_of["pwrite"] == 3


def test_cold_files_make_the_impatient_wait() -> None:
    disk = FakeDisk()
    file = file_of(disk, "a.log", durable=b"abc")
    buffer = memoryview(bytearray(3))
    assert file.pread_nowait_into(buffer, 0) == 3
    disk.cold = ["*.log"]
    assert file.pread_nowait_into(buffer, 0) is None
    assert file.pread_into(buffer, 0) == 3


def test_files_and_locks_of_a_dead_process_are_gone() -> None:
    disk = FakeDisk()
    file, lock = file_of(disk, durable=b"abc"), disk.lock(".lock")
    disk.kill()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(b"x", 0)
    again = disk.lock(".lock")
    lock.close()
    with pytest.raises(LockedError):
        disk.lock(".lock")
    again.close()
    disk.crash(1)
    assert disk.read("a") == b"abc"


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10))),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 20),
    st.integers(0, 40),
)
def test_ranges_are_a_set_of_numbers(
    added: list[tuple[int, int]], cut: int, start: int, size: int, room: int
) -> None:
    ranges, model = Ranges(), set[int]()
    for first, count in added:
        ranges.add(first, first + count)
        model.update(range(first, first + count))
    assert ranges.size == len(model)
    ranges.cut(cut)
    model = {number for number in model if number < cut}
    assert {n for first, end in ranges for n in range(first, end)} == model
    best = max(
        end for end in range(start, start + size + 1) if len(set(range(start, end)) - model) <= room
    )
    assert ranges.fitting(start, start + size, room) == best
