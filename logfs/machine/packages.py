"""How to add a package to the Python environment in which this process runs."""

import shlex
import sys

_INSTALLED = "/opt/logfs/"
"""The directory in which ``make install`` makes an environment for each version."""


def how_to_add(extra: str) -> str:
    """Return the command that adds the packages of an extra of logfs to this environment.

    Args:
        extra: One of ``pyproject.toml``: arrow, export, iceberg, kafka, remote, spark.
    """
    python = shlex.join([sys.executable or "python3", "-m", "pip", "install", *_needs(extra)])
    if not sys.prefix.startswith(_INSTALLED):
        return f"add it with {python}"
    return (
        f"add it with {python}, or install logfs again with 'sudo make install EXTRAS={extra}', "
        "which later installations keep"
    )


def _needs(extra: str) -> list[str]:
    """Return what an extra requires, without what marks it as such."""
    from importlib import metadata  # it takes long to load

    try:
        lines = metadata.requires("logfs") or []
    except metadata.PackageNotFoundError:
        lines = []
    needs = [line.partition(";") for line in lines]
    return [name.strip() for name, _, marker in needs if f'extra == "{extra}"' in marker]
