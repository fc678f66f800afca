"""The jars of Kafka, and Java to run them.

    python -m tests.kafka.jars      fetch the jars that pom.xml names, unless they are there;
                                    those of storage.xml, for a broker with tiered storage;
                                    and those of old.xml, a broker of 2022

``LOGFS_KAFKA_VERSION=4.4.0`` is another version than that of the poms.

They are kept outside the tree, see ``tests.cache``, in a folder whose name holds the version and
the checksum of the pom: another pom is another folder. ``make test`` calls this. A test finds
nothing by itself: where the jars or Java are missing it fails and says what to run.
"""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests import cache

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
STORAGE_POM = HERE / "storage.xml"
OLD_POM = HERE / "old.xml"
LOG4J = HERE / "log4j2.properties"
OLDEST_JAVA = 17
_USUAL = (4, 1)
SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""How Java starts quickly and stays small; with ``archive`` more quickly, if that is there."""


_WITHOUT_STORAGE = {"4.2.2", "4.4.0"}


class MissingError(Exception):
    """Java, Maven or the jars are not there; the text says what to do."""


def version(pom: Path = POM) -> str:
    """Return the version of Kafka: that which a pom names, or another one that was asked for."""
    asked = os.environ.get("LOGFS_KAFKA_VERSION")
    if asked and pom is not OLD_POM:
        return asked
    found = re.search(r"<kafka\.version>(.+)</kafka\.version>", pom.read_text())
    assert found is not None
    return found[1]


def version_info() -> tuple[int, ...]:
    """Return the version of Kafka as numbers."""
    return tuple(map(int, version().split(".")))


usual = pytest.mark.skipif(
    version_info()[:2] != _USUAL,
    reason=f"of what Kafka {'.'.join(map(str, _USUAL))} prints or knows",
)
"""Marks a test of what logfs takes from one version to the letter."""


def jars_directory() -> Path:
    """Return where the jars are, or will be."""
    return _directory_of(POM, "kafka")


def storage_directory() -> Path:
    """Return where Kafka's LocalTieredStorage is, or will be."""
    return _directory_of(STORAGE_POM, "kafka-storage")


def old_directory() -> Path:
    """Return where the jars of an old broker are, or will be."""
    checksum = hashlib.sha256(OLD_POM.read_bytes()).hexdigest()[:8]
    return cache.place() / f"kafka-{version(OLD_POM)}-{checksum}"


def _directory_of(pom: Path, name: str) -> Path:
    checksum = hashlib.sha256(pom.read_bytes()).hexdigest()[:8]
    return cache.place() / f"{name}-{version()}-{checksum}"


def install() -> Path:
    """Fetch the jars unless they are there, and return their folder.

    Raises:
        MissingError: Maven is missing or could not fetch them.
    """
    fill(old_directory(), OLD_POM)
    directory = fill(jars_directory(), POM)
    if has_storage():
        fill(storage_directory(), STORAGE_POM)
    return directory


def has_storage() -> bool:
    """Whether the test files of this version, with LocalTieredStorage, are published."""
    return version() not in _WITHOUT_STORAGE


def fill(directory: Path, pom: Path, finish: Callable[[Path], None] | None = None) -> Path:
    """Fetch the jars that a pom names, unless they are there.

    Args:
        directory: Their folder.
        pom: Names them.
        finish: Gets the folder before it is treated as being there, under another name.

    Returns:
        The folder.

    Raises:
        MissingError: Maven is missing or could not fetch them.
    """

    def fetch(filled: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            raise MissingError("mvn is missing: run .ci/system-packages kafka")
        command = [maven, "--batch-mode", "--quiet", "--file", str(pom)]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={filled}"]
        if pom in {POM, STORAGE_POM}:
            command.append(f"-Dkafka.version={version()}")
        result = subprocess.run(command, check=False, stdin=subprocess.DEVNULL)
        if result.returncode:
            raise MissingError(f"{' '.join(command)} ended with {result.returncode}")
        if finish is not None:
            finish(filled)

    return cache.filled(directory, fetch)


@functools.cache
def java() -> str:
    """Return the Java to use.

    Raises:
        MissingError: There is none, or it is too old for Kafka.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(f"{home}/bin/java" if home else "java")
    if found is None:
        raise MissingError("java is missing: run .ci/system-packages kafka")
    shown = _version_of(found)
    number = re.search(r'version "(\d+)', shown)
    if number is None or int(number[1]) < OLDEST_JAVA:
        raise MissingError(f"Kafka needs Java {OLDEST_JAVA} or newer, {found} says: {shown}")
    return found


@functools.cache
def _version_of(path: str) -> str:
    return subprocess.run([path, "-version"], check=True, capture_output=True, text=True).stderr


def archive() -> Path:
    """Return where the classes of a broker are, or will be, as in Java in memory.

    Raises:
        MissingError: As ``java``.
    """
    name = f"{jars_directory()} {java()} {_version_of(java())}"
    return cache.place() / f"kafka-{version()}-{hashlib.sha256(name.encode()).hexdigest()[:8]}.jsa"


def command(
    main: str,
    arguments: Sequence[str | Path] = (),
    *,
    heap: str = "256m",
    flags: Sequence[str] = SMALL,
    has_storage: bool = False,
) -> list[str]:
    """Return the command that runs a Java class of Kafka.

    Args:
        main: The class.
        arguments: Its arguments.
        heap: What Java may have.
        flags: How Java runs; the default is a small, quickly started machine.
        has_storage: It knows LocalTieredStorage.

    Raises:
        MissingError: Java or the jars are missing.
    """
    places = [jars_directory(), *([storage_directory()] if has_storage else [])]
    for place in places:
        if not place.is_dir():
            raise MissingError(f"{place} is missing: run make test, or python -m tests.kafka.jars")
    logging = f"-Dlog4j2.configurationFile={LOG4J}"
    if flags == SMALL and archive().exists():
        flags = (*SMALL, f"-XX:SharedArchiveFile={archive()}")
    machine = [f"-Xmx{heap}", *flags, logging]
    return [
        java(),
        *machine,
        "-cp",
        ":".join(f"{place}/*" for place in places),
        main,
        *map(str, arguments),
    ]


if __name__ == "__main__":
    try:
        install()
    except MissingError as error:
        sys.exit(f"logfs: {error}")
