"""One of the writers that a test runs while it kills the daemon: its own program.

    python appender.py FILE JOURNAL NAME LINES [SIZE...]

It appends lines ``NAME NUMBER PADDING CHECKSUM`` to FILE in writes of about the given sizes, whole
lines or not, in turn. When the mount dies it opens the file again, until that works, and repeats
every line that was not acknowledged as a whole. JOURNAL, a file outside the mount, gets a line of
numbers before and after every write:

    try FIRST AFTER       lines that the next call of write(2) holds, at least in part
    ack AFTER             every line before this one has been accepted
    fail FIRST AFTER N    the call failed, or accepted less than it was given, since a large one is
                          several requests: these lines may be there, as a whole or in part, and
                          of the first one N bytes have been accepted
"""

import errno
import os
import sys
import time
import zlib
from bisect import bisect_left
from pathlib import Path

DEAD = {errno.ENOTCONN, errno.ENOENT, errno.EIO, errno.ECONNABORTED, errno.ENODEV, errno.ENXIO}
"""What a mount answers while its daemon dies, is dead, or is not back yet."""


def make_line(name: str, number: int) -> bytes:
    """Return a line, with its newline; its length depends on its number."""
    text = f"{name} {number} {'#' * (number * 7919 % 211)}".encode()
    return b"%s %08x\n" % (text, zlib.crc32(text))


def open_again(path: str) -> int:
    """Open the file for appending, as soon as it is there."""
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            if error.errno not in DEAD:
                raise
            time.sleep(0.005)


def close(descriptor: int) -> None:
    """Close a file of a mount that may be dead."""
    try:
        os.close(descriptor)
    except OSError as error:
        if error.errno not in DEAD:
            raise


def main() -> None:
    """Append all lines."""
    path, journal_path, name, count, *rest = sys.argv[1:]
    sizes = [int(size) for size in rest]
    lines = [make_line(name, number) for number in range(int(count))]
    ends = [0]
    for line in lines:
        ends.append(ends[-1] + len(line))
    data = b"".join(lines)
    descriptor, at, acknowledged, turn = open_again(path), 0, 0, 0
    with Path(journal_path).open("w", buffering=1) as journal:
        while at < len(data):
            stop = min(at + sizes[turn % len(sizes)], len(data))
            turn += 1
            behind = bisect_left(ends, stop, acknowledged)
            journal.write(f"try {acknowledged} {behind}\n")
            try:
                at += os.write(descriptor, data[at:stop])
            except OSError as error:
                if error.errno not in DEAD:
                    raise
            else:
                while ends[min(acknowledged + 1, len(lines))] <= at and acknowledged < len(lines):
                    acknowledged += 1
                journal.write(f"ack {acknowledged}\n")
            if at < stop:
                journal.write(f"fail {acknowledged} {behind} {at - ends[acknowledged]}\n")
                close(descriptor)
                descriptor, at = open_again(path), ends[acknowledged]
    close(descriptor)


if __name__ == "__main__":
    main()
