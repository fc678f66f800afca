"""The file that says what to mount where: ``/etc/logfs/NAME.toml``, after ``--config-file``.

    data = "/var/lib/logfs"
    mountpoint = "/mnt/logs"
    options = ["allow_other", "umask=027"]      # or one text, as after -o

    [kafka]                                     # settings of a Kafka broker
    num.partitions = 3
    log.retention.hours = 24
    log.cleanup.policy = ["compact", "delete"]

    [[mirror]]                                  # for logfs-mirror@NAME.service; see logfs mirror
    from = "kafka://b1:9092,b2:9092"
    topics = ["orders", "/web-.*/"]
    keep = "30d"
    kafka = { "security.protocol" = "SASL_SSL", "sasl.username" = "logfs",
              "sasl.password.file" = "/etc/logfs/password" }

    [[forward]]                                 # for logfs-forward@NAME.service; see logfs forward
    topic = "web"
    to = "kafka://b1:9092/web"
    hold = "50GB"

Nothing is obligatory: the command line takes precedence. Keys with dots may be quoted or not.
"""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from logfs.errors import InvalidConfigError
from logfs.machine.disks import is_url

_KEYS = ("data", "mountpoint", "options", "kafka", "mirror", "forward")


Tables: TypeAlias = tuple[Mapping[str, object], ...]


class MountFile(NamedTuple):
    """What is in such a file.

    Attributes:
        data: The data directory, from the root, or the URL of a store; None if it is not there.
        mountpoint: The mount point, from the root; None if it is not there.
        mirrors: The ``[[mirror]]`` tables; what is in them ``mirror_jobs`` checks.
        forwards: The ``[[forward]]`` tables, which ``forward_jobs`` checks.
        options: Texts, each as after one ``-o``.
    """

    data: str | None = None
    mountpoint: str | None = None
    options: tuple[str, ...] = ()
    settings: Mapping[str, str] = {}
    mirrors: Tables = ()
    forwards: Tables = ()


def read_mount_file(path: str) -> MountFile:
    """Read a file.

    Raises:
        InvalidConfigError: It is no TOML, or holds what is not described above.
    """
    import tomllib  # most mounts have no such file

    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # tomllib.TOMLDecodeError and UnicodeDecodeError
        raise InvalidConfigError(f"{path}: not TOML: {error}") from None
    for key in table:
        if key not in _KEYS:
            raise InvalidConfigError(f"{path}: {key}: {_hint(key)}")
    kafka = table.get("kafka", {})
    if not isinstance(kafka, dict):
        raise InvalidConfigError(f"{path}: kafka: expected a table: [kafka]")
    return MountFile(
        _path(path, table, "data", may_be_url=True),
        _path(path, table, "mountpoint"),
        _options(path, table),
        dict(flattened(path, kafka)),
        _tables(path, table, "mirror"),
        _tables(path, table, "forward"),
    )


def _hint(key: str) -> str:
    close = difflib.get_close_matches(key, _KEYS, n=1)
    return (
        "expected data, mountpoint, options, or the tables [kafka], [[mirror]] and [[forward]]"
        + (f"; did you mean {close[0]}?" if close else "; settings of a broker stand below [kafka]")
    )


def _path(
    path: str, table: Mapping[str, object], key: str, *, may_be_url: bool = False
) -> str | None:
    value = table.get(key)
    if value is None or (isinstance(value, str) and value.startswith("/")):
        return value
    if may_be_url and isinstance(value, str) and is_url(value):
        return value
    raise InvalidConfigError(f"{path}: {key} = {value!r}: expected a path from the root, in quotes")


def _options(path: str, table: Mapping[str, object]) -> tuple[str, ...]:
    value = table.get("options", [])
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
        return tuple(texts)
    raise InvalidConfigError(
        f'{path}: options = {value!r}: expected a text or a list of texts, as ["allow_other"]'
    )


def _tables(path: str, table: Mapping[str, object], key: str) -> Tables:
    value = table.get(key, [])
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return tuple(value)
    raise InvalidConfigError(f"{path}: {key}: expected tables: [[{key}]]")


def flattened(
    path: str, table: Mapping[str, object], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Flatten: to TOML ``num.partitions = 3`` is a table in a table."""
    for name, value in table.items():
        key = prefix + name
        match value:
            case dict():
                yield from flattened(path, value, f"{key}.")
            case bool():  # before int, which it is as well
                yield key, str(value).lower()
            case str() | int() | float():
                yield key, str(value)
            case list() if all(isinstance(item, str) for item in value):
                yield key, ",".join(value)
            case _:
                raise InvalidConfigError(f"{path}: {key} = {value}: expected a text or a number")
