"""The guide to an archive in a bucket, with a real store."""

from pathlib import Path

import pytest

from tests.guides import GUIDES, run_guide
from tests.remote.servers import Bucket

pytestmark = [pytest.mark.fuse, pytest.mark.programs]


def test_what_the_guide_shows_is_what_happens(bucket: Bucket, tmp_path: Path) -> None:
    places = {"s3://logs/web": bucket.url}
    run_guide(GUIDES["bucket-archive"], tmp_path, bucket.environment, places)
