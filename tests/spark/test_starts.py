"""A query starts Python several times: each process imports what it needs, and no more."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("logfs.spark.source", ("pyarrow", "numpy", "logfs.log", "logfs.library", "logfs.disk")),
        ("logfs.spark.target", ("pyarrow", "numpy")),
        ("logfs.spark.sink", ("pyarrow", "numpy")),
    ],
)
def test_a_process_imports_only_what_it_needs(module: str, absent: tuple[str, ...]) -> None:
    code = f"import {module}, sys; print([name for name in {absent} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout == "[]\n"
