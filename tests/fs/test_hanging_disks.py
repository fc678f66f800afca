"""Each call that hangs under one topic, while programs use the others."""

from pathlib import Path

import pytest

from tests.fs.hanging import CALLS, OPTIONS, check_others

pytestmark = [pytest.mark.fuse, pytest.mark.long]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", CALLS)
def test_no_call_that_hangs_keeps_another_topic(tmp_path: Path, option: str, name: str) -> None:
    check_others(tmp_path, option, name)
