"""The alerts of the examples, as Prometheus evaluates them."""

import subprocess

import pytest

from tests.mounting import ROOT

EXAMPLES = ROOT / "examples" / "prometheus"


@pytest.mark.programs
@pytest.mark.parametrize(
    "arguments", [("check", "rules", "logfs.rules.yml"), ("test", "rules", "logfs.tests.yml")]
)
def test_promtool_finds_nothing_wrong(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        ["promtool", *arguments], check=False, capture_output=True, text=True, cwd=EXAMPLES
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout
