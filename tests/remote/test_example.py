"""The tour of a tiered log in ``examples``, with a real store."""

import os
import subprocess

import pytest

from tests.mounting import ROOT
from tests.remote.servers import Bucket

pytestmark = [pytest.mark.fuse, pytest.mark.programs, pytest.mark.long]


def test_the_tour_ends_well(bucket: Bucket) -> None:
    done = subprocess.run(
        [ROOT / "examples" / "tiered.sh", bucket.url, bucket.endpoint],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **bucket.environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("All results are as expected.\n")
