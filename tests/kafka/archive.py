"""The classes of a broker, loaded once for all that start: else most of a start is to load them.

    python -m tests.kafka.archive      make the archive, unless it is there

It is for one Java and one directory of jars, and is stored beside them. A Java that cannot use or
find it loads the classes from the jars, so tests do not need it.

Source: JEP 350, dynamic class data sharing archives.
"""

import sys
import tempfile
from pathlib import Path

from tests.kafka import jars
from tests.kafka.broker import Broker


def make() -> Path:
    """Make the archive unless it is there; returns its path.

    Raises:
        MissingError: Java or the jars are missing.
    """
    archive = jars.archive()
    if archive.exists():
        return archive
    with tempfile.TemporaryDirectory(prefix="archive-", dir=archive.parent) as folder:
        made = Path(folder) / archive.name
        with Broker(
            Path(folder) / "kafka", flags=(*jars.SMALL, f"-XX:ArchiveClassesAtExit={made}")
        ) as broker:
            broker.stop()
        made.replace(archive)
    return archive


if __name__ == "__main__":
    try:
        make()
    except jars.MissingError as error:
        sys.exit(f"logfs: {error}")
