"""``logfs://``: what pandas, DuckDB, Polars and other users of fsspec read and append by URL."""

import io
from collections.abc import Iterator
from pathlib import Path

import duckdb
import fsspec
import pandas
import polars
import pytest

import logfs
from logfs.fsspec import LogfsFileSystem
from tests.mounting import Mount

ROWS = [("apple", "red"), ("plum", "blue"), ("pear", "green")]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    with logfs.open_store(data) as store:
        store.create_topic("fruits", 2)
        with store.partition("fruits", 0) as fruits:
            for key, value in ROWS:
                fruits.append(value.encode(), key=key.encode())
    return data


@pytest.fixture(params=["files", pytest.param("mount", marks=pytest.mark.fuse)])
def root(request: pytest.FixtureRequest, data: Path, tmp_path: Path) -> Iterator[Path]:
    """The data directory, or where it is mounted."""
    if request.param == "files":
        yield data
        return
    with Mount(data, tmp_path / "mnt") as mount:
        yield mount.point


@pytest.fixture
def system() -> LogfsFileSystem:
    found = fsspec.filesystem("logfs", skip_instance_cache=True)
    assert isinstance(found, LogfsFileSystem)
    return found


# DuckDB leaves files open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_pandas_polars_and_duckdb_read_an_address(root: Path, system: LogfsFileSystem) -> None:
    url = f"logfs://{root}/fruits/0@earliest..latest"
    table = pandas.read_csv(f"{url}.tsv", sep="\t", names=["key", "value"])
    assert [*table.itertuples(index=False, name=None)] == ROWS
    lines = pandas.read_json(f"{url}.jsonl", lines=True)
    assert [*zip(lines["key"], lines["value"], strict=True)] == ROWS
    with fsspec.open(f"{url}.tsv") as file:
        assert polars.read_csv(file, separator="\t", has_header=False).rows() == ROWS
    connection = duckdb.connect()
    connection.register_filesystem(system)
    query = f"select key, value from read_json('{url}.jsonl', format='newline_delimited')"
    assert connection.sql(query).fetchall() == ROWS


def test_pandas_appends(root: Path) -> None:
    url = f"logfs://{root}/fruits/1"
    table = pandas.DataFrame(ROWS)
    for _ in range(2):
        table.to_csv(f"{url}.tsv", sep="\t", header=False, index=False, mode="a")
    with logfs.open(root / "fruits" / "1") as fruits:
        found = [(record.key, record.value) for record in fruits.read()]
    assert found == [(key.encode(), value.encode()) for key, value in ROWS] * 2


def test_a_file_is_read_in_pieces_anywhere(root: Path, system: LogfsFileSystem) -> None:
    path = f"{root}/fruits/0"
    expected = b"red\nblue\ngreen\n"
    assert system.cat_file(path) == expected
    assert system.cat_file(path, start=4, end=8) == b"blue"
    assert system.size(path) == len(expected)
    with system.open(path) as file:
        assert file.read(3) == b"red"
        assert file.seek(-6, io.SEEK_END) == 9
        assert file.read() == b"green\n"
    with system.open(path, "rt") as file:
        assert [*file] == ["red\n", "blue\n", "green\n"]


def test_directories_are_listed(root: Path, system: LogfsFileSystem) -> None:
    topics = system.ls(f"logfs://{root}", detail=False)
    assert f"{root}/fruits" in topics
    assert system.ls(f"{root}/fruits", detail=False) == [f"{root}/fruits/0", f"{root}/fruits/1"]
    assert system.isdir(f"{root}/fruits")
    assert system.isfile(f"{root}/fruits/0")
    assert not system.exists(f"{root}/fruits/7")
    assert not system.exists(f"{root}/vegetables/0")
    assert sorted(system.glob(f"{root}/fruits/*")) == [f"{root}/fruits/0", f"{root}/fruits/1"]


def test_a_topic_is_created_and_a_line_without_an_end_becomes_a_record(
    root: Path, system: LogfsFileSystem
) -> None:
    system.mkdir(f"{root}/new")
    with pytest.raises(FileExistsError):
        system.mkdir(f"{root}/new")
    with system.open(f"{root}/new/0", "ab") as file:
        file.write(b"first\nsec")
        file.write(b"ond")
    assert system.cat_file(f"{root}/new/0") == b"first\nsecond\n"


def test_what_was_compacted_is_left_out(data: Path, system: LogfsFileSystem) -> None:
    with logfs.open_store(data) as store:
        store.create_topic("keys", 1, {"cleanup.policy": "compact"})
        with store.partition("keys", 0) as keys:
            for value in (b"old", b"new"):
                keys.append(value, key=b"k")
    assert system.cat_file(f"{data}/keys/0") == b"old\nnew\n"


@pytest.mark.parametrize(
    ("name", "mode", "error"),
    [
        ("fruits/0", "wb", PermissionError),
        ("fruits/0", "xb", PermissionError),
        ("fruits/0@-1h", "ab", PermissionError),
        ("fruits/0.meta", "ab", PermissionError),
        ("fruits", "ab", PermissionError),
        ("fruits/7", "rb", FileNotFoundError),
        ("fruits/0@soon", "rb", FileNotFoundError),
        ("../none/0", "rb", FileNotFoundError),
    ],
)
def test_what_is_not_possible_is_refused(
    data: Path, system: LogfsFileSystem, name: str, mode: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        system.open(f"{data}/{name}", mode)
    assert system.cat_file(f"{data}/fruits/0") == b"red\nblue\ngreen\n"
