"""Topics with quotas, of which most lines are appended natively, through the kernel."""

import errno
import json
import os
import threading
from functools import partial
from pathlib import Path

import pytest

from tests.fs.mounting import Mounted
from tests.fs.test_native_opens import APPEND, errno_of, metric
from tests.semantics.programs import configure

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

LINE = b"%07d a line of a log that is written again and again, a hundred bytes with its newline\n"
PARTITIONS = 4


def topic_with(mounted: Mounted, **quotas: int) -> Path:
    topic = mounted.point / "limited"
    topic.mkdir()
    (topic / str(PARTITIONS - 1)).touch()
    configure(topic, **{f"logfs_quota_{name}": value for name, value in quotas.items()})
    return topic


def write_until_refused(path: Path) -> int:
    """Write lines; returns how many were accepted before one was refused."""
    file, number = os.open(path, APPEND), 0
    while not (refused := errno_of(partial(os.write, file, LINE % number))):
        number += 1
    assert refused == errno_of(partial(os.close, file)) == errno.EDQUOT
    return number


def test_most_lines_take_no_python(native: Mounted) -> None:
    topic = topic_with(native, bytes=1 << 40, producer_byte_rate=1 << 30)
    file = os.open(topic / "0", APPEND)
    before = metric(native.data, "logfs_native_writes_total")
    for number in range(2000):
        os.write(file, LINE % number)
    os.close(file)
    assert metric(native.data, "logfs_native_writes_total") - before > 1800


def test_writers_of_all_partitions_together_stay_within_the_quota(native: Mounted) -> None:
    native.expected = ["no room in the quota"]
    limit = 3_000_000
    topic = topic_with(native, bytes=limit)
    accepted = [0] * PARTITIONS

    def write(number: int) -> None:
        accepted[number] = write_until_refused(topic / str(number))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(PARTITIONS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    logs = list((native.point / ".segments").glob("limited-*/*.log"))
    used = sum(log.stat().st_size for log in logs)
    assert limit - 40_000 < used <= limit
    for number in range(PARTITIONS):
        assert (topic / str(number)).read_bytes().count(b"\n") == accepted[number]


def test_a_smaller_quota_applies_to_open_files(native: Mounted) -> None:
    native.expected = ["no room in the quota"]
    topic = topic_with(native, bytes=1 << 30)
    file = os.open(topic / "0", APPEND)
    for number in range(100):
        os.write(file, LINE % number)
    configure(topic, logfs_quota_bytes=100)
    assert errno_of(partial(os.write, file, LINE % 100)) == errno.EDQUOT
    configure(topic, logfs_quota_bytes=1 << 30)
    os.write(file, LINE % 100)
    assert errno_of(partial(os.close, file)) == errno.EDQUOT


def test_a_writer_that_has_used_the_allowance_waits(native: Mounted) -> None:
    topic = topic_with(native, producer_byte_rate=200_000)
    file = os.open(topic / "0", APPEND)
    lines = 0
    while lines < 3000:
        lines += 1
        os.write(file, LINE % lines)
    os.close(file)
    quota = json.loads((topic / "0.meta").read_text())["quota"]
    assert quota["throttled"] > 0
    assert metric(native.data, "logfs_native_writes_total") > 100
