"""Where a path lies: the rule, on paper and on a disk."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import NoDataDirectoryError
from logfs.library import places
from logfs.library.places import DirectoryKind, Place, split_path
from logfs.machine.daemonnote import read_daemon_note
from tests.cli.conftest import Mounted, fill


def split(
    path: str,
    kinds: Mapping[str, DirectoryKind],
    mount_points: set[str] | None = None,
    *,
    may_begin: bool = False,
) -> tuple[str, tuple[str, ...]]:
    """Split a path where only these directories exist besides ``/``."""
    kinds = {"/": DirectoryKind.OTHER, **kinds}
    place = split_path(
        path,
        mount_points or set(),
        lambda path: kinds.get(path, DirectoryKind.MISSING),
        may_begin=may_begin,
    )
    assert place.is_mount == (place.root in (mount_points or set()))
    return place.root, place.address


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/srv/data", ()),
        ("/srv/data/orders", ("orders",)),
        ("/srv/data/orders/0@-1h..now.jsonl", ("orders", "0@-1h..now.jsonl")),
        ("/srv/data/.segments/orders-0/1.log", (".segments", "orders-0", "1.log")),
    ],
)
def test_the_address_begins_after_the_data_directory(path: str, address: tuple[str, ...]) -> None:
    assert split(path, {"/srv/data": DirectoryKind.DATA}) == ("/srv/data", address)


def test_the_longest_data_directory_is_the_root() -> None:
    kinds = {
        "/srv": DirectoryKind.DATA,
        "/srv/data": DirectoryKind.DATA,
        "/srv/data/orders": DirectoryKind.OTHER,
    }
    assert split("/srv/data/orders/0", kinds) == ("/srv/data", ("orders", "0"))


def test_a_mount_point_precedes_any_data_directory() -> None:
    kinds = {"/srv": DirectoryKind.DATA, "/srv/mnt/.segments": DirectoryKind.DATA}
    points = {"/srv/mnt"}
    assert split("/srv/mnt/.segments/a-0", kinds, points) == ("/srv/mnt", (".segments", "a-0"))


def test_nothing_below_a_mount_point_is_asked_for() -> None:
    def kind_of(path: str) -> DirectoryKind:
        raise AssertionError(path)

    assert split_path("/m/a/0", {"/m"}, kind_of) == Place("/m", ("a", "0"), is_mount=True)


def test_the_longest_mount_point_is_the_root() -> None:
    assert split("/m/a/0", {}, {"/m", "/m/a"}) == ("/m/a", ("0",))


def test_only_whole_names_are_leading_parts() -> None:
    with pytest.raises(NoDataDirectoryError):
        split("/srv/database/0", {"/srv/data": DirectoryKind.DATA}, {"/srv/datab"})


def test_the_root_of_the_machine_can_be_a_data_directory() -> None:
    assert split("/orders/0", {"/": DirectoryKind.DATA}) == ("/", ("orders", "0"))


@pytest.mark.parametrize("path", ["/srv/new/orders", "/srv/new/orders/0"])
def test_an_empty_directory_is_a_root_for_the_first_topic(path: str) -> None:
    kinds = {"/srv": DirectoryKind.DATA, "/srv/new": DirectoryKind.EMPTY}
    assert split(path, kinds, may_begin=True)[0] == "/srv/new"
    assert split(path, kinds)[0] == "/srv"


@pytest.mark.parametrize("path", ["/srv/new", "/srv/new/a/b/c"])
def test_an_empty_directory_is_no_root_without_a_topic(path: str) -> None:
    with pytest.raises(NoDataDirectoryError, match="/srv/new is empty"):
        split(path, {"/srv": DirectoryKind.OTHER, "/srv/new": DirectoryKind.EMPTY}, may_begin=True)


def test_the_refusal_names_the_last_directory_that_exists() -> None:
    with pytest.raises(NoDataDirectoryError, match="/srv/x, the last directory of the path that"):
        split("/srv/x/orders/0", {"/srv": DirectoryKind.OTHER, "/srv/x": DirectoryKind.OTHER})


NAMES = st.sampled_from(["a", "b", "orders", "0@-1h"])


@given(
    parts=st.lists(NAMES, max_size=5),
    kinds=st.dictionaries(
        st.lists(NAMES, max_size=5).map("/".join), st.sampled_from(DirectoryKind)
    ),
    mount_points=st.sets(st.lists(NAMES, max_size=3).map("/".join), max_size=2),
    may_begin=st.booleans(),
)
def test_root_and_address_are_the_path_again(
    parts: list[str], kinds: dict[str, DirectoryKind], mount_points: set[str], *, may_begin: bool
) -> None:
    path = "/" + "/".join(parts)
    points = {"/" + point for point in mount_points}
    try:
        place = split_path(
            path, points, lambda p: kinds.get(p[1:], DirectoryKind.MISSING), may_begin=may_begin
        )
    except NoDataDirectoryError:
        assert not any(path == p or path.startswith(p.rstrip("/") + "/") for p in points)
        return
    assert "/".join([place.root.rstrip("/"), *place.address]) == path.rstrip("/")
    assert not any(part == "" for part in place.address)


# On a disk


@pytest.mark.parametrize("name", places.ROOT_FILES)
def test_a_file_of_the_root_makes_a_data_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    (tmp_path / "README").touch()
    assert places.kind_of(str(tmp_path)) is DirectoryKind.DATA


@pytest.mark.parametrize("name", ["partition.metadata", "00000000000000000000.log"])
def test_a_partition_directory_makes_a_data_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "orders-0").mkdir()
    assert places.kind_of(str(tmp_path)) is DirectoryKind.OTHER
    (tmp_path / "orders-0" / name).touch()
    assert places.kind_of(str(tmp_path)) is DirectoryKind.DATA


def test_a_partition_directory_is_no_data_directory(tmp_path: Path) -> None:
    fill(tmp_path / "data", {"orders/0": b"a\n"})
    assert places.kind_of(str(tmp_path / "data")) is DirectoryKind.DATA
    assert places.kind_of(str(tmp_path / "data" / "orders-0")) is DirectoryKind.OTHER


def test_deleted_partitions_are_no_data_directory(tmp_path: Path) -> None:
    deleted = tmp_path / "orders-0.0123456789abcdef0123456789abcdef-delete"
    deleted.mkdir()
    (deleted / "partition.metadata").touch()
    assert places.kind_of(str(tmp_path)) is DirectoryKind.OTHER


def test_other_directories_and_files(tmp_path: Path) -> None:
    assert places.kind_of(str(tmp_path)) is DirectoryKind.EMPTY
    (tmp_path / "lost+found").mkdir()
    assert places.kind_of(str(tmp_path)) is DirectoryKind.EMPTY
    (tmp_path / ".lock").touch()
    assert places.kind_of(str(tmp_path)) is DirectoryKind.EMPTY
    (tmp_path / "file-1").touch()
    assert places.kind_of(str(tmp_path)) is DirectoryKind.OTHER
    assert places.kind_of(str(tmp_path / "file-1")) is DirectoryKind.MISSING
    assert places.kind_of(str(tmp_path / "none")) is DirectoryKind.MISSING


def test_relative_paths_dots_and_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").touch()
    (tmp_path / "link").symlink_to(data)
    place = Place(str(data), ("orders", "0"), is_mount=False)
    monkeypatch.chdir(tmp_path)
    assert places.locate("data/orders/0") == place
    assert places.locate("./data/clicks/../orders//0/") == place
    assert places.locate("link/orders/0") == place
    monkeypatch.chdir(data)
    assert places.locate("orders/0") == place
    assert places.locate(".") == Place(str(data), (), is_mount=False)


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version":2,"pid":1,"mountpoint":"/m"}',
        b'{"version":1,"pid":"x","mountpoint":"/m"}',
        b"\xff",
    ],
)
def test_an_invalid_note_is_ignored(tmp_path: Path, note: bytes) -> None:
    (tmp_path / "logfs.daemon").write_bytes(note)
    assert read_daemon_note(str(tmp_path)) is None
    assert places.served_at(str(tmp_path)) is None


def test_a_note_alone_does_not_prove_that_a_daemon_serves(tmp_path: Path) -> None:
    note = {"version": 1, "pid": 1, "mountpoint": "/proc"}
    (tmp_path / "logfs.daemon").write_text(json.dumps(note))
    assert read_daemon_note(str(tmp_path)) == (1, "/proc")
    assert places.served_at(str(tmp_path)) is None


@pytest.mark.fuse
def test_a_mount_serves_only_its_own_data_directory(mounted: Mounted, tmp_path: Path) -> None:
    assert places.served_at(str(mounted.data)) == str(mounted.point)
    other = tmp_path / "other"
    other.mkdir()
    (other / "logfs.daemon").write_bytes((mounted.data / "logfs.daemon").read_bytes())
    assert places.served_at(str(other)) is None


@pytest.mark.fuse
def test_paths_below_a_mount(mounted: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    (mounted.point / "orders").mkdir()
    place = Place(str(mounted.point), ("orders", "0@-1h"), is_mount=True)
    assert places.locate(f"{mounted.point}/orders/0@-1h") == place
    monkeypatch.chdir(mounted.point / "orders")
    assert places.locate("0@-1h") == place
