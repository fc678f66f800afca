"""How much of what is new goes into one batch of a stream. Pure.

    maxOffsetsPerTrigger   shared out in proportion to what each partition has
    maxBytesPerTrigger     the same in bytes of the log, in whole record batches; partitions take
                           turns where the share of each would be less than a batch
    minOffsetsPerTrigger   no batch before there are so many, or maxTriggerDelay is over

Source: Spark KafkaMicroBatchStream.rateLimit, delayBatch.
"""

import bisect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from logfs.errors import InvalidConfigError
from logfs.spark.values import positive
from logfs.types import TopicPartition

_DELAY = re.compile(r"([0-9]+)([a-z]*)")
_UNITS_MS = {
    "ms": 1,
    "": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_SIZE = re.compile(r"([0-9]+)([kmg]?)b?")
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
DEFAULT_DELAY = "15m"

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The limits of a stream; None is none.

    Attributes:
        max_offsets, max_bytes: The most that a batch has.
        min_offsets: The fewest that a batch has.
        max_delay_ms: How long a batch may wait for that.
    """

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 900_000


def parse_limits(given: Mapping[str, str]) -> StreamLimits:
    """Return what the options say; raise InvalidConfigError."""
    limits = StreamLimits(
        positive(given, "maxOffsetsPerTrigger"),
        _parse_size(given),
        positive(given, "minOffsetsPerTrigger"),
        _parse_delay(given.get("maxTriggerDelay", DEFAULT_DELAY)),
    )
    if limits.max_offsets and limits.min_offsets and limits.min_offsets > limits.max_offsets:
        raise InvalidConfigError(
            f"minOffsetsPerTrigger {limits.min_offsets} is more than maxOffsetsPerTrigger "
            f"{limits.max_offsets}"
        )
    return limits


def share(most: int, begins: Offsets, ends: Offsets, sizes: Offsets) -> dict[TopicPartition, int]:
    """Return where a batch ends that takes about so much of what there is.

    Args:
        most: How much, in the unit of ``sizes``.

    Returns:
        The ends; each is at least one offset after its start where there is one, so that a small
        partition never starves. The sum may exceed ``most`` by that.
    """
    total = sum(sizes.values())
    if total <= most:
        return dict(ends)
    shared = {}
    for one, end in ends.items():
        begin = begins[one]
        if end <= begin:
            shared[one] = end
            continue
        wanted = (end - begin) * most / total if sizes[one] else end - begin
        shared[one] = min(begin + (math.ceil(wanted) if wanted < 1 else math.floor(wanted)), end)
    return shared


def share_bytes(
    most: int,
    begins: Offsets,
    ends: Offsets,
    sizes: Offsets,
    first_piece: Callable[[TopicPartition, int], tuple[int, int]],
    turn: TopicPartition | None,
) -> tuple[dict[TopicPartition, int], TopicPartition | None]:
    """Return where a batch ends that takes about so many bytes of what there is.

    Args:
        first_piece: For a partition: where a beginning of at least so many bytes ends, and its
            size.
        turn: The partition that was served last; None before the first batch.

    Returns:
        The ends, and the partition that was served last. At least one partition moves on if there
        is anything. The sum may exceed ``most`` by the last piece.
    """
    total = sum(sizes.values())
    if total <= most:
        return dict(ends), turn
    shared = {one: min(end, begins[one]) for one, end in ends.items()}
    waiting = sorted(one for one, end in ends.items() if end > begins[one])
    after = 0 if turn is None else bisect.bisect(waiting, turn)
    taken = 0
    for one in [*waiting[after:], *waiting[:after]]:
        if taken >= most:
            break
        wanted = max(1, most * sizes[one] // total)
        shared[one], size = first_piece(one, wanted)
        taken, turn = taken + size, one
    return shared, turn


def has_enough(limits: StreamLimits, begins: Offsets, ends: Offsets, waited_ms: float) -> bool:
    """Return whether there is enough for a batch, or it has waited long enough."""
    if limits.min_offsets is None or waited_ms >= limits.max_delay_ms:
        return True
    return sum(end - begins[one] for one, end in ends.items()) >= limits.min_offsets


def _parse_size(given: Mapping[str, str]) -> int | None:
    name = "maxBytesPerTrigger"
    if name not in given:
        return None
    match = _SIZE.fullmatch(given[name].strip().lower())
    if match is None or int(match[1]) == 0:
        raise InvalidConfigError(f"{name} {given[name]!r}: expected bytes, as in 67108864 or 64m")
    return int(match[1]) * _FACTORS[match[2]]


def _parse_delay(text: str) -> int:
    match = _DELAY.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        raise InvalidConfigError(f"maxTriggerDelay {text!r}: expected a time, as in 90s or 15m")
    return int(match[1]) * _UNITS_MS[match[2]]
