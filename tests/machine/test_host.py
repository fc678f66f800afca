from pathlib import Path

from logfs.machine.host import read_boot_id


def test_the_boot_is_the_same_each_time() -> None:
    assert read_boot_id() == read_boot_id() != ""


def test_an_unknown_boot_is_another_each_time(tmp_path: Path) -> None:
    assert read_boot_id(str(tmp_path / "none")) != read_boot_id(str(tmp_path / "none"))
