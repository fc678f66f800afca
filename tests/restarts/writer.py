"""A program that appends numbered lines to one file until it is told to stop.

    python writer.py PATH NAME SEED LARGEST SYNC STOP

It opens PATH once. Its lines are cut into writes at any byte. It prints how many lines it has
written, and ends with 1 at the first error. SYNC is none, fsync or dsync. It stops when the file
STOP exists. No logfs.
"""

import json
import os
import random
import sys
import time


def line(path: str, name: str, number: int, padding: str) -> bytes:
    """Return a line in the form that the view of a path takes."""
    value = f"{name} {number} {padding}"
    if path.endswith(".jsonl"):
        return (json.dumps({"value": value}) + "\n").encode()
    if path.endswith(".tsv"):
        return f"{name}\t{value}\n".encode()
    return f"{value}\n".encode()


def write_all(file: int, data: bytes) -> None:
    """Write all bytes; write(2) may accept fewer."""
    while data:
        data = data[os.write(file, data) :]


def main(path: str, name: str, seed: str, largest: str, sync: str, stop: str) -> int:
    """Write until the file ``stop`` exists."""
    chance = random.Random(int(seed))
    flags = os.O_WRONLY | os.O_APPEND | (os.O_DSYNC if sync == "dsync" else 0)
    file = os.open(path, flags)
    number, waiting = 0, b""
    while not os.path.exists(stop):
        for _ in range(chance.randint(1, 4)):
            number += 1
            padding = "x" * int(chance.random() ** 4 * int(largest))
            waiting += line(path, name, number, padding)
        cut = chance.randint(0, len(waiting)) if chance.random() < 0.7 else len(waiting)
        write_all(file, waiting[:cut])
        waiting = waiting[cut:]
        if sync == "fsync" and chance.random() < 0.3:
            os.fsync(file)
        time.sleep(chance.random() * 0.01)
    write_all(file, waiting)
    os.close(file)
    print(number)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except OSError as error:
        print(f"{sys.argv[1:3]}: {error}", file=sys.stderr)
        sys.exit(1)
