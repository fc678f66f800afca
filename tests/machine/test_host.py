import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from logfs.machine.host import read_boot_id, system_clock

_SLEEP_S = 0.1
_USED_S = 0.3


def test_the_boot_is_the_same_each_time() -> None:
    assert read_boot_id() == read_boot_id() != ""


def test_an_unknown_boot_is_another_each_time(tmp_path: Path) -> None:
    assert read_boot_id(str(tmp_path / "none")) != read_boot_id(str(tmp_path / "none"))


def test_sleeping_is_told_from_waiting_for_a_processor() -> None:
    slept_s = system_clock().slept_s
    found: list[float] = []

    def measure() -> None:
        """Sleep, then use the processor together with another program."""
        os.sched_setaffinity(threading.get_native_id(), processor)
        begun_s = slept_s()
        time.sleep(_SLEEP_S)
        woken_s = slept_s()
        before_s, used_s = time.perf_counter(), time.thread_time()
        while time.thread_time() - used_s < _USED_S:
            pass
        found.extend((woken_s - begun_s, slept_s() - woken_s, time.perf_counter() - before_s))

    processor = {max(os.sched_getaffinity(0))}
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        os.sched_setaffinity(other.pid, processor)
        thread = threading.Thread(target=measure)
        thread.start()
        thread.join()
        other.kill()
    asleep_s, busy_s, in_all_s = found
    assert asleep_s >= 0.9 * _SLEEP_S
    assert in_all_s > _USED_S + _SLEEP_S / 2  # it had to share the processor
    assert busy_s < _SLEEP_S / 2
