"""Calling ``logfs`` in the process that has the Spark session of the tests."""

from pathlib import Path

import pytest

from logfs.cli.main import main
from tests.cli.conftest import Outcome


def call(capture: pytest.CaptureFixture[bytes], *arguments: str | Path) -> Outcome:
    """Call ``logfs`` in this process; jobs run in the session that is there."""
    capture.readouterr()
    status = main([str(argument) for argument in arguments])
    out, err = capture.readouterr()
    return Outcome(status, out, err.decode().splitlines())
