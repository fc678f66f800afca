"""The jars of Spark's own Kafka source and sink, which ours are compared with.

    python -m tests.spark.connector.jars      fetch and build them, unless they are there

They are kept where those of the broker are, see ``tests.cache``. One of them is built here:
the connector asks the jar spark-token-provider-kafka for the settings of a client, and whether a
delegation token has to go into them. That jar is not in every mirror of Maven Central; ``tokens``
holds the four classes that are asked, for brokers without security, which know no tokens. What
reads and writes records is Spark's own.
"""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests import cache
from tests.kafka import jars
from tests.kafka.jars import MissingError

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
TOKENS = HERE / "tokens"


def jars_directory() -> Path:
    """Return where the jars are, or will be."""
    contents = hashlib.sha256(POM.read_bytes())
    for source in _sources():
        contents.update(source.read_bytes())
    return cache.place() / f"spark-connector-{contents.hexdigest()[:8]}"


def install() -> Path:
    """Fetch and build the jars unless they are there, and return their folder.

    Raises:
        MissingError: Maven, Java or PySpark are missing, or it could not be done.
    """
    return jars.fill(jars_directory(), POM, _build_tokens)


def connector() -> str:
    """Return the setting ``spark.jars`` of a session that knows the format ``kafka``.

    Raises:
        MissingError: The jars are missing.
    """
    directory = jars_directory()
    if not directory.is_dir():
        raise MissingError(
            f"{directory} is missing: run make test, or python -m tests.spark.connector.jars"
        )
    return ",".join(str(path) for path in sorted(directory.glob("*.jar")))


def _build_tokens(directory: Path) -> None:
    (compiler,) = directory.glob("ecj-*.jar")
    classes = directory / "classes"
    try:
        import pyspark
    except ImportError:
        raise MissingError("pyspark is missing: run make test") from None
    spark = Path(pyspark.__file__).parent / "jars"
    path = [*spark.glob("scala-library-*.jar"), *spark.glob("spark-core_*.jar")]
    command = [jars.java(), "-jar", str(compiler), "-17", "-d", str(classes)]
    command += ["-classpath", ":".join(map(str, path)), *map(str, _sources())]
    result = subprocess.run(command, check=False, stdin=subprocess.DEVNULL)
    if result.returncode:
        raise MissingError(f"{' '.join(command)} ended with {result.returncode}")
    with zipfile.ZipFile(directory / "tokens.jar", "w") as jar:
        for found in sorted(classes.rglob("*.class")):
            jar.write(found, found.relative_to(classes))
    shutil.rmtree(classes)
    compiler.unlink()


def _sources() -> list[Path]:
    return sorted(TOKENS.rglob("*.java"))


if __name__ == "__main__":
    try:
        install()
    except MissingError as error:
        sys.exit(f"logfs: {error}")
