"""What is restored is what was backed up, and nothing that was there is touched."""

from pathlib import Path

import pytest

from logfs.errors import BackupError, TopicExistsError
from logfs.log import names
from logfs.log.lines.writer import LineWriter
from logfs.log.store import LogStore
from logfs.services.backup.restoring import restore_all, restore_topics
from logfs.services.backup.taking import back_up
from logfs.types import View
from tests.log.backups import (
    LINES,
    Killed,
    Steps,
    asker,
    bytes_below,
    files_below,
    job,
    opened,
    seen_in,
    write,
)
from tests.mounting import now_ms


@pytest.fixture
def backup(store: LogStore, data: Path, tmp_path: Path) -> Path:
    back_up(job(data, tmp_path / "backup"), "data", asker(store))
    return tmp_path / "backup"


def test_a_backup_is_restored_into_an_empty_directory(backup: Path, tmp_path: Path) -> None:
    before = bytes_below(backup)
    restore_all(job(backup, tmp_path / "new", may_link=False), "backup")
    assert seen_in(tmp_path / "new") == seen_in(backup)
    assert not (tmp_path / "new" / names.BACKUP).exists()
    assert all(path.stat().st_nlink == 1 for path in files_below(tmp_path / "new"))
    new = opened(tmp_path / "new")
    write(new, 240, 50)
    new.close(now_ms())
    assert bytes_below(backup) == before


def test_a_restore_killed_at_any_step_is_not_opened_and_can_be_completed(
    backup: Path, tmp_path: Path
) -> None:
    for last in range(0, 2000, 13):
        target = tmp_path / f"killed-at-{last}"
        try:
            restore_all(job(backup, target, steps=Steps(last), may_link=False), "backup")
        except Killed:
            if any(target.glob("*-0")) and (target / names.BACKUP).exists():
                with pytest.raises(BackupError, match="a restore of backup was interrupted"):
                    opened(target)
            if any(target.iterdir()) and not (target / names.BACKUP).exists():
                assert seen_in(target) == seen_in(backup)
                continue
        else:
            break
        restore_all(job(backup, target, may_link=False), "backup")
        assert seen_in(target) == seen_in(backup)
    assert last > 20


def other_directory(root: Path) -> Path:
    """Make a data directory with its own topic, without a daemon."""
    root.mkdir()
    store = opened(root)
    store.create_topic("other", 1, {}, now_ms())
    LineWriter(store.partition("other", 0), View.TEXT).write(b"ours\n", now_ms())
    store.close(now_ms())
    return root


def test_a_topic_is_restored_beside_others(backup: Path, tmp_path: Path) -> None:
    root = other_directory(tmp_path / "other")
    ours = seen_in(root)
    restore_topics(job(backup, root, may_link=False), ["lines"])
    assert seen_in(root) == ours | {LINES: seen_in(backup)[LINES]}
    back = opened(root)
    assert [log.losses for log in back.all_partitions()] == [[], []]
    assert back.partition("lines", 0).log_start_offset == 53
    LineWriter(back.partition("lines", 0), View.TEXT).write(b"continues\n", now_ms())
    back.close(now_ms())
    with pytest.raises(TopicExistsError, match="topic lines exists already"):
        restore_topics(job(backup, root, may_link=False), ["lines"])


def test_a_restored_topic_exists_whole_or_not_at_all_after_a_kill(
    backup: Path, tmp_path: Path
) -> None:
    whole = seen_in(backup)
    for last in range(0, 2000, 9):
        root = other_directory(tmp_path / f"killed-at-{last}")
        ours = seen_in(root)
        try:
            restore_topics(job(backup, root, steps=Steps(last), may_link=False), ["keys", "lines"])
        except Killed:
            left = seen_in(root)
            assert left.items() <= (ours | whole).items()
        else:
            break
        if last % 8:
            opened(root).close(now_ms())  # removes what no attempt will complete
            assert not list(root.glob("*-delete"))
        if not left.keys() & whole.keys() or not last % 8:
            restore_topics(job(backup, root, may_link=False), ["keys", "lines"])
            assert seen_in(root) == ours | whole
    assert last > 20
