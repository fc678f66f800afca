"""Small files of an export, merged; stopped at every step, in a directory and in a store."""

import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pyarrow.parquet as pq
import pytest

from logfs.disk.posix import PosixDisk
from logfs.disk.vfs import ReadableBuffer
from logfs.types import TopicPartition
from tests.cli.conftest import Call, command, environment, run
from tests.fakestate import Stopped
from tests.remote.fakestore import FakeStore
from tests.spark.exports import DAYS, NOW_MS, rows_in, three_days, written
from tests.spark.logs import Logs

pytestmark = pytest.mark.spark

ORDERS = ("orders", 0), ("orders", 1)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    logs = Logs(tmp_path / "store", NOW_MS)
    logs.topic("orders", 2)
    yield logs
    logs.close()


def export_often(logs: Logs, destination: str, runs: int = 3, *, only: int | None = None) -> None:
    """Export a few records at a time, as a run each minute does."""
    for number in range(runs):
        logs.append("orders", 0, three_days(10 * number, 10))
        logs.append("orders", 1, three_days(5 * number, 5))
        export_again(logs, destination, only=only)


def export_again(
    logs: Logs, destination: str, *, only: int | None = None, compact: bool = False
) -> None:
    from logfs.cli.parquet_export import export_to

    wanted = None if only is None else [TopicPartition("orders", only)]
    done = export_to(str(logs.path), wanted, destination, 1, lambda *_: None, compact=compact)
    assert done.refused == []


def parquet_files(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.glob("**/*.parquet"))


def test_small_files_become_one_for_each_day(logfs: Call, logs: Logs, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    export_often(logs, str(out))
    assert len(parquet_files(out)) == 18
    status, printed, errors = logfs("export", "--compact", "--verify", logs.path, out)
    assert (status, errors) == (0, [])
    assert printed.decode().splitlines()[1:] == [
        "compacted: 18 files into 6",
        "verified: 45 records in 6 files, intact",
    ]
    assert parquet_files(out) == sorted(
        f"topic=orders/day={day}/orders-{number}-{0:020}-{end:020}.parquet"
        for day in DAYS
        for number, end in ((0, 30), (1, 15))
    )
    assert rows_in(out) == written(logs, *ORDERS)
    told = json.loads(logfs("export", "--compact", "--json", logs.path, out).out)
    assert told["compacted"] == [0, 0]
    export_often(logs, str(out), 1)
    told = json.loads(logfs("export", "--compact", "--json", logs.path / "orders/0", out).out)
    assert told["compacted"] == [6, 3]
    assert len(parquet_files(out)) == 9
    assert rows_in(out) == written(logs, *ORDERS)


class StoppingDisk(PosixDisk):
    """A disk whose process dies before or after a change."""

    left = -1
    dies_after = False

    @classmethod
    def stop(cls, change: int, *, dies_after: bool) -> None:
        cls.left, cls.dies_after = change, dies_after

    def rename(self, old: str, new: str) -> None:
        self._change(lambda: super(StoppingDisk, self).rename(old, new))

    def replace(self, name: str, data: ReadableBuffer) -> None:
        self._change(lambda: super(StoppingDisk, self).replace(name, data))

    def remove(self, name: str) -> None:
        self._change(lambda: super(StoppingDisk, self).remove(name))

    def _change(self, change: Callable[[], None]) -> None:
        cls = type(self)
        cls.left -= 1
        is_last = cls.left == -1
        if is_last and not cls.dies_after:
            raise Stopped
        change()  # a ``replace`` renames, which is a change too
        if is_last:
            raise Stopped


@pytest.mark.parametrize("dies_after", [False, True])
def test_a_merge_that_stops_at_any_step_in_a_directory_continues_with_the_next_run(
    logs: Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_after: bool
) -> None:
    monkeypatch.setattr("logfs.spark.exporting.targets.PosixDisk", StoppingDisk)
    StoppingDisk.stop(-1, dies_after=False)
    stops = 0
    export_often(logs, str(tmp_path / "lake"), 2, only=0)
    first = {name: (tmp_path / "lake" / name).read_bytes() for name in _all(tmp_path / "lake")}
    while True:
        out = tmp_path / str(stops)
        for name, data in first.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(data)
        StoppingDisk.stop(stops, dies_after=dies_after)
        try:
            export_again(logs, str(out), only=0, compact=True)
        except Stopped:
            stops += 1
        else:
            break
        due = written(logs, ORDERS[0])
        assert set(rows_in(out)) == set(due)  # none is missing at any time
        StoppingDisk.stop(-1, dies_after=False)
        export_again(logs, str(out), only=0)
        assert rows_in(out) == due
        assert not list(out.glob("_logfs/writing/*"))
    assert stops > 8
    assert len(parquet_files(out)) == 3


def _all(out: Path) -> list[str]:
    return [str(path.relative_to(out)) for path in out.glob("**/*") if path.is_file()]


@pytest.mark.parametrize("after", [False, True])
def test_a_merge_that_stops_at_any_step_in_a_store_continues_with_the_next_run(
    logs: Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    store = FakeStore("s3://fake/lake")
    monkeypatch.setattr("logfs.spark.exporting.targets.open_objects", lambda _: store)
    export_often(logs, store.url, 2)
    first, stops = dict(store.objects), 0
    while True:
        store.objects = dict(first)
        (store.stop_after if after else store.stop_before)(stops)
        try:
            export_again(logs, store.url, compact=True)
        except Stopped:
            stops += 1
        else:
            break
        store.heal()
        due = written(logs, *ORDERS)
        assert set(rows_in(_copied(store, tmp_path / f"{stops}-stopped"))) == set(due)
        export_again(logs, store.url)
        assert rows_in(_copied(store, tmp_path / f"{stops}-again")) == due
    assert stops > 12
    assert len([name for name in store.objects if name.endswith(".parquet")]) == 6


def _copied(store: FakeStore, out: Path) -> Path:
    for name, data in store.objects.items():
        if name.endswith(".parquet"):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(data)
    return out


def test_a_killed_merge_continues_with_the_next_run(logs: Logs, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    export_often(logs, str(out), 4)
    logs.close()
    due = written(logs, *ORDERS)
    process = subprocess.Popen(
        command("export", "--compact", "-j", "1", logs.path, out), env=environment()
    )
    while not list(out.glob(f"topic=orders/*/orders-0-{0:020}-{40:020}.parquet")):
        assert process.poll() is None
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert set(rows_in(out)) == set(due)
    done = run("export", "--verify", logs.path, out)
    assert (done.status, done.errors) == (0, [])
    assert rows_in(out) == due


def test_files_of_a_table_are_not_merged(logfs: Call, logs: Logs, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    export_often(logs, str(out), 2)
    before, path = parquet_files(out), out / "_logfs" / "manifest.json"
    options = "--compact", "--iceberg", "lake.logs.orders"
    status, _, errors = logfs("export", *options, logs.path, out)
    assert (status, "--compact removes files" in errors[-1]) == (2, True)
    manifest = json.loads(path.read_text())
    for tables, said in (
        (["lake.logs.orders"], "table lake.logs.orders has"),
        (None, "did not note"),
    ):
        path.write_text(json.dumps({**manifest, "tables": tables}))
        status, _, errors = logfs("export", "--compact", logs.path, out)
        assert (status, said in errors[-1]) == (1, True)
    assert parquet_files(out) == before


def test_a_damaged_file_is_not_merged(logfs: Call, logs: Logs, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    export_often(logs, str(out), 2)
    path = out / parquet_files(out)[1]
    whole, before = path.read_bytes(), parquet_files(out)
    data = bytearray(whole)
    column = pq.read_metadata(path).row_group(0).column(0)
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    status, _, errors = logfs("export", "--compact", "-j", "1", logs.path, out)
    assert (status, f"{path.name}: it cannot be merged" in errors[-1]) == (1, True)
    assert set(before[:2]) <= {*parquet_files(out)}
    path.write_bytes(whole)
    assert logfs("export", logs.path, out).errors == []
    assert rows_in(out) == written(logs, *ORDERS)


def test_a_file_that_is_gone_is_named_and_the_others_are_merged(
    logfs: Call, logs: Logs, tmp_path: Path
) -> None:
    out = tmp_path / "lake"
    export_often(logs, str(out), 3)
    gone, path = out / parquet_files(out)[1], out / "_logfs" / "manifest.json"
    with pytest.raises(Stopped):
        _stop_before_merges(logs, out)
    assert json.loads(path.read_text())["merges"]
    gone.unlink()
    status, _, errors = logfs("export", logs.path, out)
    assert (status, f"{gone.name}: it is gone" in errors[-1]) == (1, True)
    assert len(parquet_files(out)) == 6


def _stop_before_merges(logs: Logs, out: Path) -> None:
    from logfs.spark.exporting.export import Exporter

    def stop(*_: object) -> NoReturn:
        raise Stopped

    exporter = Exporter(str(logs.path), str(out), lambda *_: (), merge=stop)
    with exporter.owned():
        exporter.compact([TopicPartition(*one) for one in ORDERS])


def test_ranges_of_different_days_and_large_ones_stay_apart() -> None:
    from logfs.spark.exporting.manifest import ExportRange, Merge, file_name
    from logfs.spark.exporting.merging import SMALL_BYTES, plan_merges

    def files(*parts: tuple[int, int, dict[str, int]]) -> list[Merge]:
        sizes, found = {}, []
        for start, end, days in parts:
            one = ExportRange("orders", 0, start, end)
            for day, size in days.items():
                sizes[file_name(one, day, 0)] = size
                found.append((one, file_name(one, day, 0)))
        return plan_merges(found, sizes, {TopicPartition("orders", 0)})

    monday, tuesday = DAYS[:2]
    both = {monday: 9, tuesday: 1}
    merges = files((0, 5, {monday: 9}), (5, 8, both), (8, 9, {tuesday: 9}), (9, 12, {tuesday: 9}))
    assert [(one.into, len(one.sources)) for one in merges] == [
        (file_name(ExportRange("orders", 0, 0, 8), monday, 0), 2),
        (file_name(ExportRange("orders", 0, 0, 8), tuesday, 0), 1),
        (file_name(ExportRange("orders", 0, 8, 12), tuesday, 0), 2),
    ]
    assert files((0, 5, {monday: SMALL_BYTES}), (5, 8, {monday: 9})) == []
    assert files((0, 5, {monday: 9}), (5, 8, {tuesday: 9})) == []


def test_files_on_their_way_to_a_store_have_no_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logfs.spark.exporting.spool import Spool

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spool = Spool()
    one, other = spool.create(), spool.create()
    for file, data in ((one, b"a"), (other, b"12"), (one, b"b"), (one, b"cd"), (other, b"3")):
        assert file.write(data) == len(data)
    assert list(tmp_path.iterdir()) == []
    one.close()
    assert (b"".join(one.parts()), one.size) == (b"abcd", 4)
    assert (b"".join(other.parts()), other.size) == (b"123", 3)
    spool.close()


def test_offsets_of_files_to_merge_have_to_go_up(logfs: Call, logs: Logs, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    export_often(logs, str(out), 2)
    first, second = (out / name for name in parquet_files(out)[:2])
    second.write_bytes(first.read_bytes())
    status, _, errors = logfs("export", "--compact", logs.path, out)
    assert (status, "its offsets do not go up after" in errors[-1]) == (1, True)
    assert first.exists()
