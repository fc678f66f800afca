"""What a broker leaves, printed by ``logfs dump`` and by kafka-dump-log: the same."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.services.dumping.dump import SUFFIXES
from tests.kafka import jars, theirs
from tests.kafka.dumping import compare
from tests.kafka.written import killed, stopped

pytestmark = [pytest.mark.kafka, pytest.mark.slow, jars.usual]

DECODERS = {
    "__consumer_offsets-0": ("--offsets-decoder", b'"subscription":{"topics":["idempotent"]'),
    "__transaction_state-0": ("--transaction-log-decoder", b'"transactionalId":"left-open"'),
    "__cluster_metadata-0": ("--cluster-metadata-decoder", b'"type":"REGISTER_BROKER_RECORD"'),
}
"""Directory -> option, and something that is printed then."""


@pytest.fixture(scope="module")
def killed_and_stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Data directories of a broker that was killed, and of the same one stopped later."""
    directory = tmp_path_factory.mktemp("broker")
    return killed(directory / "killed"), stopped(directory / "stopped")


def files_of(data: Path) -> Iterator[list[Path]]:
    topics = (*theirs.TOPICS, *(directory.removesuffix("-0") for directory in DECODERS))
    for topic in sorted(topics):
        partition = data / f"{topic}-0"
        yield sorted(path for path in partition.iterdir() if path.suffix in SUFFIXES)


@pytest.mark.parametrize("which", [0, 1], ids=["killed", "stopped"])
def test_all_files_of_a_broker(killed_and_stopped: tuple[Path, Path], which: int) -> None:
    # Where the killed broker had reserved room and used none of it, Kafka's tool gives up.
    unread = [] if which else ["empty-0", "preallocated-0"]
    found = [
        file
        for files in files_of(killed_and_stopped[which])
        for file in files
        if file.parent.name not in unread
    ]
    assert {file.suffix for file in found} >= {".log", ".index", ".timeindex", ".snapshot"}
    assert any(file.suffix == ".txnindex" for file in found)
    for options in ([], ["--print-data-log"], ["--verify-index-only", "--deep-iteration"]):
        compare(found, *options)


@pytest.mark.parametrize("directory", DECODERS)
def test_the_logs_that_kafka_keeps_for_itself(
    killed_and_stopped: tuple[Path, Path], directory: str
) -> None:
    logs = sorted((killed_and_stopped[1] / directory).glob("*.log"))
    option, expected = DECODERS[directory]
    assert expected in compare(logs, option, "--skip-record-metadata").out
    compare(logs, option)
