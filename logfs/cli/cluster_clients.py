"""The needs of commands that are clients of a Kafka cluster: the package, and their settings."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from logfs.errors import InvalidConfigError, LogfsError
from logfs.machine.packages import how_to_add


def properties_of(
    file: str | None, options: Sequence[str], rack: str | None = None
) -> dict[str, str]:
    """Return the settings of a client from a file, options and ``--rack``; the later ones win.

    Raises:
        InvalidConfigError, OSError: See ``logfs.kafka.settings``.
    """
    from logfs.kafka.settings import parse_options, read_client_file

    properties = read_client_file(Path(file)) if file else {}
    properties |= parse_options(options)
    return properties | ({} if rack is None else {"client.rack": rack})


def read_table(
    path: str,
    name: str,
    table: Mapping[str, object],
    required: tuple[str, ...],
    texts: tuple[str, ...],
) -> tuple[dict[str, str], dict[str, object]]:
    """Check a table ``[[mirror]]`` or ``[[forward]]`` of a file.

    Args:
        required: The keys that the caller checks.
        texts: The optional keys, whose values are texts.

    Returns:
        The settings of the client, and the texts that are given, by name.

    Raises:
        InvalidConfigError: The table has another key, or a value is not valid.
    """
    from logfs.cli.mount_file import flattened

    keys, kafka = (*required, *texts, "kafka"), table.get("kafka", {})
    for key in table:
        if key not in keys:
            raise InvalidConfigError(f"{path}: {name}.{key}: expected one of {', '.join(keys)}")
    if not isinstance(kafka, dict):
        raise InvalidConfigError(f"{path}: {name}.kafka: expected a table of settings")
    given = {key.replace("-", "_"): table[key] for key in texts if key in table}
    if not all(isinstance(text, str) for text in given.values()):
        raise InvalidConfigError(f"{path}: {name}: expected texts for {', '.join(given)}")
    if "sasl.password" in (settings := dict(flattened(path, kafka))):
        raise InvalidConfigError(f"{path}: {name}.kafka: expected sasl.password.file, no password")
    return settings, given


def check_installed() -> None:
    """Refuse by a LogfsError to continue without kafka-python."""
    if importlib.util.find_spec("kafka") is None:
        raise LogfsError(f"this needs kafka-python: {how_to_add('kafka')}")
