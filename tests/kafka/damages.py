"""Ways to damage a partition directory, each a function of the directory.

They are made for a log of six or so segments of uncompressed batches.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.log.support import batches_in

Damage = Callable[[Path], object]


def logs(directory: Path) -> list[Path]:
    """Return the ``.log`` files, oldest first."""
    return sorted(directory.glob("*.log"))


def _last(directory: Path) -> Path:
    return logs(directory)[-1]


def _old(directory: Path) -> Path:
    return logs(directory)[2]


def _cut(log: Path, size: int) -> None:
    log.write_bytes(log.read_bytes()[:-size])


def _flip(log: Path, batch: int, byte: int) -> None:
    """Flip a bit of the byte at a place in a batch; negative ones count back from its end."""
    data = bytearray(log.read_bytes())
    position, header = batches_in(bytes(data))[batch]
    data[position + (byte if byte >= 0 else header.size_bytes + byte)] ^= 4
    log.write_bytes(data)


def _append(log: Path, data: bytes) -> None:
    log.write_bytes(log.read_bytes() + data)


def _zero(log: Path, size: int) -> None:
    log.write_bytes(log.read_bytes()[:-size] + bytes(size))


def _drop(log: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        log.with_suffix(suffix).unlink()


def _write(log: Path, suffix: str, data: bytes) -> None:
    log.with_suffix(suffix).write_bytes(data)


def _batches(log: Path, *numbers: int) -> bytes:
    data = log.read_bytes()
    places = batches_in(data)
    return b"".join(data[p : p + places[n][1].size_bytes] for n in numbers for p in [places[n][0]])


def _leave(log: Path, suffix: str, *, with_indexes: bool = True) -> None:
    """Leave a copy of a segment that holds its first two batches, under another suffix."""
    Path(f"{log}{suffix}").write_bytes(_batches(log, 0, 1))
    if with_indexes:
        for index in (".index", ".timeindex"):
            Path(f"{log.with_suffix(index)}{suffix}").write_bytes(b"")


def _leave_merged(directory: Path) -> None:
    """Stop compaction between naming its result ``.swap`` and giving up what it replaces."""
    first, second = logs(directory)[1:3]
    Path(f"{first}.swap").write_bytes(_batches(first, 0, 3) + _batches(second, 1, 2))
    for index in (".index", ".timeindex"):
        Path(f"{first.with_suffix(index)}.swap").write_bytes(b"")


def _leave_half_merged(directory: Path) -> None:
    """As ``_leave_merged``, but the first of the two segments has been given up already."""
    _leave_merged(directory)
    log = logs(directory)[1]
    for suffix in (".log", ".index", ".timeindex"):
        path = log.with_suffix(suffix)
        path.rename(f"{path}.deleted")


def _leave_both(directory: Path) -> None:
    _leave(_old(directory), ".cleaned")
    _leave(logs(directory)[4], ".swap")


def _remove_segment(directory: Path, number: int) -> None:
    _drop(logs(directory)[number], ".log", ".index", ".timeindex")


def _remove(directory: Path, *patterns: str) -> None:
    for pattern in patterns:
        for path in directory.glob(pattern):
            path.unlink()


UNNOTICED: Mapping[str, Damage] = {
    "none": lambda d: None,
    # Where recovery does not read.
    "flipped-old": lambda d: _flip(_old(d), 2, -3),
    "flipped-old-length": lambda d: _flip(_old(d), 2, 11),
    "cut-old": lambda d: _cut(_old(d), 100),
    # Indexes.
    "no-index": lambda d: _drop(_last(d), ".index"),
    "no-timeindex": lambda d: _drop(_last(d), ".timeindex"),
    "no-indexes": lambda d: _drop(_last(d), ".index", ".timeindex"),
    "no-old-index": lambda d: _drop(_old(d), ".index"),
    "no-old-timeindex": lambda d: _drop(_old(d), ".timeindex"),
    "no-old-indexes": lambda d: _drop(_old(d), ".index", ".timeindex"),
    "odd-old-index": lambda d: _write(_old(d), ".index", b"odd"),
    "garbage-old-index": lambda d: _write(_old(d), ".index", bytes(range(240))),
    "garbage-old-timeindex": lambda d: _write(_old(d), ".timeindex", bytes(range(240))),
    "garbage-index": lambda d: _write(_last(d), ".index", bytes(range(240))),
    # Leftover files.
    "cleaned": lambda d: _leave(_old(d), ".cleaned"),
    "deleted": lambda d: _leave(_old(d), ".deleted"),
    "index-swap": lambda d: Path(f"{_old(d).with_suffix('.index')}.swap").write_bytes(b""),
    "index-without-log": lambda d: (d / f"{10**6:020}.index").write_bytes(bytes(16)),
    # Whole files.
    "first-segment-gone": lambda d: _remove_segment(d, 0),
    "old-segment-gone": lambda d: _remove_segment(d, 2),
    "last-segment-gone": lambda d: _remove_segment(d, -1),
    "no-log": lambda d: _remove(d, "*.log", "*.index", "*.timeindex"),
    "no-snapshots": lambda d: _remove(d, "*.snapshot"),
    "garbage-snapshots": lambda d: [p.write_bytes(b"bad") for p in d.glob("*.snapshot")],
    "no-epochs": lambda d: (d / "leader-epoch-checkpoint").unlink(),
}  # fmt: skip
"""What a broker lives with after a clean stop, too."""

TAILS: Mapping[str, Damage] = {
    "cut-in-a-batch": lambda d: _cut(_last(d), 100),
    "cut-in-a-header": lambda d: _cut(_last(d), len(_batches(_last(d), -1)) - 20),
    "cut-a-byte": lambda d: _cut(_last(d), 1),
    "cut-at-a-batch": lambda d: _cut(_last(d), len(_batches(_last(d), -1))),
    "cut-all": lambda d: _last(d).write_bytes(b""),
    "zeros-behind": lambda d: _append(_last(d), bytes(4096)),
    "few-zeros-behind": lambda d: _append(_last(d), bytes(7)),
    "zeros-in-the-tail": lambda d: _zero(_last(d), 300),
    "zeros-throughout": lambda d: _zero(_last(d), _last(d).stat().st_size),
    "garbage-behind": lambda d: _append(_last(d), bytes(range(1, 256)) * 3),
    # Flipped bits where recovery reads.
    "flipped-value": lambda d: _flip(_last(d), 2, -3),
    "flipped-crc": lambda d: _flip(_last(d), 2, 17),
    "flipped-length": lambda d: _flip(_last(d), 2, 11),
    "flipped-high-length": lambda d: _flip(_last(d), 2, 8),
    "flipped-epoch": lambda d: _flip(_last(d), 2, 15),
    "flipped-first": lambda d: _flip(_last(d), 0, -3),
}  # fmt: skip
"""What only an unclean stop explains; after a clean one some of it keeps a broker from starting."""

SWAPS: Mapping[str, Damage] = {
    "swap": lambda d: _leave(_old(d), ".swap"),
    "swap-without-indexes": lambda d: _leave(_old(d), ".swap", with_indexes=False),
    "swap-of-two": _leave_merged,
    "swap-of-two-half-done": _leave_half_merged,
    "cleaned-and-swap": _leave_both,
}  # fmt: skip
"""What a compaction leaves that was stopped."""

DAMAGES = {**UNNOTICED, **SWAPS, **TAILS}


def copy_segments(source: Path, to: Path) -> None:
    """Replace the segments of a partition directory, and what belongs to them, by another's."""
    for path in to.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        if path.name != "partition.metadata":
            shutil.copy2(path, to)
