"""A day of a log most of which is in an object store, and programs that read it all the time.

    day = Day(records=20_000)
    with Readers(file, day, directory, seed=1):   # a thread that reads ranges; tail and cat
        for hour in range(24):
            day.append(file, hour)
    # every program has every byte by now, and no other

What a name has to return is computed from the records, not from another log.
"""

import contextlib
import subprocess
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Self

from tests.processes import PATIENCE_S, wait_until

HOURS = 24
_MIDNIGHT = datetime(2026, 1, 5, tzinfo=UTC)
_DAY_MS = 86_400_000
_LONGEST_RANGE = 3000
"""Records of one range."""
_WRITE_BYTES = 50_000
"""Bytes of one write; most end within a line."""


class Day:
    """The records of a day, in equal distances of time, with lines of many lengths.

    Args:
        records: How many; each hour has the same number.

    Attributes:
        lines: The values, each with its newline.
        text: All of them together.
        json: All records, as ``.jsonl`` shows them.
        done: Records that are appended.
    """

    def __init__(self, records: int) -> None:
        self.count = records - records % HOURS
        self.lines = [
            b"%08d %s\n" % (n, b"abcdefg"[n % 7 :][:1] * (n * 7919 % 190))
            for n in range(self.count)
        ]
        self.text = b"".join(self.lines)
        self.rows = [
            b'{"offset":%d,"timestamp":%d,"key":"k%d","value":"%s","headers":[]}\n'
            % (n, self.time_ms(n), n, line[:-1])
            for n, line in enumerate(self.lines)
        ]
        self.json = b"".join(self.rows)
        self.done = 0
        self._starts = [0, *accumulate(map(len, self.lines))]

    def time_ms(self, number: int) -> int:
        """Return the timestamp of a record, in ms since the epoch."""
        return int(_MIDNIGHT.timestamp()) * 1000 + number * _DAY_MS // self.count

    def position(self, number: int) -> int:
        """Return the byte at which a record begins."""
        return self._starts[number]

    def first_of(self, hour: int) -> int:
        """Return the first record of an hour."""
        return hour * self.count // HOURS

    def append(self, file: Path, hour: int) -> None:
        """Append the records of an hour, in writes that end anywhere."""
        first, stop = self.first_of(hour), self.first_of(hour + 1)
        data = b"".join(self.rows[first:stop])
        with Path(f"{file}.jsonl").open("ab", buffering=0) as out:
            for start in range(0, len(data), _WRITE_BYTES):
                piece = data[start : start + _WRITE_BYTES]
                assert out.write(piece) == len(piece)
        self.done = stop


class Readers:
    """Programs that read a partition from now on, until the end of the ``with`` block.

    Args:
        file: The name of the partition in the mount.
        day: What is appended to it meanwhile.
        directory: For what the programs print.
        seed: The seed of what is read.

    Attributes:
        counts: What was compared, by kind.
    """

    def __init__(self, file: Path, day: Day, directory: Path, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._file = file
        self._day = day
        self._directory = directory
        self._chance = Random(seed)
        self._is_over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="readers")
        self._programs = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for name, command in self._following().items():
                output = stack.enter_context((self._directory / name).open("wb"))
                process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
                stack.callback(process.wait)
                stack.callback(process.kill)
            self._programs = stack.pop_all()
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._programs:
            self._is_over.set()
            self._thread.join(PATIENCE_S)
            if kind is None:
                self._check()

    def check_error(self) -> None:
        """Raise what a comparison has raised."""
        if self._error is not None:
            raise self._error

    def compare(self, kind: str) -> None:
        """Read one range of what is appended, and compare it with the records."""
        day, chance = self._day, self._chance
        first = chance.randrange(day.done)
        stop = min(first + chance.randint(1, _LONGEST_RANGE), day.done)
        expected = b"".join(day.lines[first:stop])
        found = None
        match kind:
            case "@offset":
                found = self._cat(f"@offset={first}..offset={stop}")
            case "@time":
                found = self._cat(f"@{day.time_ms(first)}..{self._end_ms(stop)}")
            case "@byte":
                start, end = day.position(first) + 3, day.position(stop) - 1
                found, expected = self._cat(f"@byte={start}..byte={end}"), day.text[start:end]
            case ".jsonl":
                found = self._cat(f"@offset={first}..offset={stop}.jsonl")
                expected = b"".join(day.rows[first:stop])
            case ".tsv":
                found = self._cat(f"@{day.time_ms(first)}..{self._end_ms(stop)}.tsv")
                expected = b"".join(b"k%d\t%s" % (n, day.lines[n]) for n in range(first, stop))
            case "cat":
                done = day.position(day.done)
                found = self._run("cat", self._file)
                assert day.text.startswith(found), f"cat: differs from the records, {len(found)}"
                assert len(found) >= done, f"cat: {len(found)} bytes of {done}"
                found = expected
            case "seek":
                start = day.position(first)
                with self._file.open("rb", buffering=0) as file:
                    file.seek(start)
                    found = file.read(len(expected))
                # A read may end before a segment ends that is not there yet.
                assert found, f"seek: nothing at {start}"
                expected = expected[: len(found)]
            case "grep of an hour":
                found, expected = self._grep(chance.randint(0, (day.done - 1) * HOURS // day.count))
        assert found == expected, f"{kind}: {first} to {stop}: {len(found or b'')} bytes"
        self.counts[kind] += 1

    def _following(self) -> dict[str, list[str]]:
        return {
            "tail": ["tail", "-n", "+1", "-f", str(self._file)],
            "tail of .jsonl": ["tail", "-c", "+1", "-f", f"{self._file}.jsonl"],
            "follow": ["cat", f"{self._file}@byte=0.follow"],
        }

    def _work(self) -> None:
        try:
            while not self._is_over.is_set():
                if self._day.done:
                    self.compare(self._chance.choice(KINDS))
        except BaseException as error:  # noqa: BLE001  the test raises it
            self._error = error

    def _check(self) -> None:
        """See that every program that followed the log has every byte, and no other."""
        self.check_error()
        for name in self._following():
            path, expected = self._directory / name, self._day.text
            if "json" in name:
                expected = self._day.json
            wait_until(
                partial(_is_as_long, path, len(expected)),
                f"{name} has all of {len(expected)} bytes, not {path.stat().st_size}",
            )
            assert path.read_bytes() == expected, f"{name} printed other bytes"

    def _end_ms(self, stop: int) -> int:
        """Return a time after the record before ``stop``, and not after the one at ``stop``."""
        return self._day.time_ms(stop) if stop < self._day.done else self._day.time_ms(stop - 1) + 1

    def _grep(self, hour: int) -> tuple[bytes, bytes]:
        """Return the lines of an hour with ``77``: as grep finds them, and as they should be."""
        day = self._day
        start = _MIDNIGHT + timedelta(hours=hour)
        names = [(start + timedelta(hours=n)).strftime("%Y-%m-%dT%H:%M") for n in (0, 1)]
        last = min(day.first_of(hour + 1), day.done)
        lines = day.lines[day.first_of(hour) : last]
        end = names[1] if last == day.first_of(hour + 1) and last < day.done else f"offset={last}"
        name = f"{self._file}@{names[0]}..{end}"
        return self._run("grep", "-a", "77", name, may_fail=True), b"".join(
            line for line in lines if b"77" in line
        )

    def _cat(self, selector: str) -> bytes:
        return self._run("cat", f"{self._file}{selector}")

    def _run(self, *command: str | Path, may_fail: bool = False) -> bytes:
        result = subprocess.run(command, capture_output=True, check=False)
        assert may_fail or not result.returncode, result.stderr
        assert not result.stderr, result.stderr
        return result.stdout


def _is_as_long(path: Path, size: int) -> bool:
    return path.stat().st_size >= size


KINDS = ("@offset", "@time", "@byte", ".jsonl", ".tsv", "cat", "seek", "grep of an hour")
