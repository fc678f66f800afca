"""The metrics of users with limits; see ``logfs.fs.partitions.quotas``."""

from collections.abc import Callable, Iterator

from logfs.fs.metrics.family import Family, Kind, Sample, Value
from logfs.fs.options import MountOptions
from logfs.fs.partitions.quotas import UserUsage

_LIMITS: tuple[tuple[str, str, Callable[[MountOptions], Value | None]], ...] = (
    (
        "logfs_user_max_open_files",
        "Files and directories that a user may have open.",
        lambda options: options.user_max_open_files,
    ),
    (
        "logfs_user_max_bytes",
        "Bytes that the topics of one user may have together.",
        lambda options: options.user_max_bytes,
    ),
    (
        "logfs_user_max_byte_rate",
        "Bytes a second that a user may write.",
        lambda options: options.user_max_byte_rate,
    ),
)
_METRICS: tuple[tuple[str, Kind, str, Callable[[UserUsage], Value | None]], ...] = (
    (
        "logfs_user_open_files",
        "gauge",
        "Files and directories that a user with limits has open.",
        lambda user: user.open_files,
    ),
    (
        "logfs_user_used_bytes",
        "gauge",
        "Bytes of the logs of the topics of a user with limits on this disk.",
        lambda user: user.stored_bytes,
    ),
    (
        "logfs_user_refused_total",
        "counter",
        "Requests that were refused because of a limit of the user.",
        lambda user: user.refused,
    ),
    (
        "logfs_user_throttled_total",
        "counter",
        "Writes that had to wait for the rate of the user.",
        lambda user: user.throttled,
    ),
    (
        "logfs_user_throttled_seconds_total",
        "counter",
        "Seconds that writes of the user had to wait.",
        lambda user: user.throttled_s,
    ),
)

NAMES = frozenset(name for name, *_ in (*_LIMITS, *_METRICS))


def families(options: MountOptions, usages: list[UserUsage]) -> Iterator[Family]:
    """Yield the limits of users and what each has used; nothing before such a user was seen."""
    if not usages:
        return
    for name, text, limit in _LIMITS:
        value = limit(options)
        if value is not None:
            yield Family(name, "gauge", text, (), [Sample((), value)])
    for name, kind, text, of in _METRICS:
        values = [(str(user.user), of(user)) for user in usages]
        rows = [Sample((user,), value) for user, value in values if value is not None]
        if rows:
            yield Family(name, kind, text, ("user",), rows)
