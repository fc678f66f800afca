"""What a query of the tests copies from the topic ``in`` to ``out``, and the check that it did."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from tests.mounting import COMMAND, run
from tests.spark.reading import rows

KEPT = "CAST(split(CAST(value AS STRING), ' ')[0] AS INT) % 10 <> 0"
"""``is_kept`` in the words of Spark SQL."""


def is_kept(value: bytes) -> bool:
    """Whether a record is copied, by the number with which its value begins."""
    return int(value.split()[0]) % 10 != 0


def check_copied(data: Path, acknowledged: Collection[int]) -> None:
    """See that all is in ``in``, and in ``out`` just once, with its time, what is copied of it."""
    columns = ("value", "timestamp")
    written = rows(data, columns, subscribe="in")
    values = [value for value, _ in written if isinstance(value, bytes)]
    assert set(acknowledged) <= {int(value.split()[0]) for value in values}
    wanted = Counter(row for row, value in zip(written, values, strict=True) if is_kept(value))
    assert wanted
    found = Counter(rows(data, columns, subscribe="out"))
    assert (wanted - found, found - wanted) == (Counter(), Counter())
    assert not list(data.glob("*/*.staged"))
    verified = run(*COMMAND, "verify", data)
    assert verified.returncode == 0, verified.stdout
