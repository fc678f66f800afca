"""What commands that are clients of a Kafka cluster need: the package, and their settings."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from logfs.errors import LogfsError
from logfs.machine.packages import how_to_add


def properties_of(
    file: Path | None, options: Sequence[str], rack: str | None = None
) -> dict[str, str]:
    """Return the settings of a client from a file, options and ``--rack``; the later ones win.

    Raises:
        InvalidConfigError, OSError: See ``logfs.kafka.settings``.
    """
    from logfs.kafka.settings import parse_options, read_client_file

    properties = {} if file is None else read_client_file(file)
    properties |= parse_options(options)
    return properties | ({} if rack is None else {"client.rack": rack})


def check_installed() -> None:
    """Refuse by a LogfsError to go on without kafka-python."""
    if importlib.util.find_spec("kafka") is None:
        raise LogfsError(f"this needs kafka-python: {how_to_add('kafka')}")
