"""A program that reads and writes logs by Spark, for ``test_everywhere``.

    python -m tests.spark.everywhere WHERE DATA CHECKPOINT

WHERE is a master, or ``sc://HOST:PORT``, a Spark Connect server. The topic ``in`` is read, as a
table and as a stream; both are written to the topic ``out``. Prints as JSON what was found.
"""

import json
import sys
from typing import Any


def main(where: str, data: str, checkpoint: str) -> None:
    """Do it all, in order."""
    from pyspark.sql import SparkSession

    is_remote = where.startswith("sc://")
    if is_remote:
        spark = SparkSession.builder.remote(where).getOrCreate()
    else:
        spark = (
            SparkSession.builder.master(where)
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )
    found: dict[str, Any] = {"session": type(spark).__module__, "driver": _lacking()}
    if not is_remote:
        (found["worker"],) = spark.sparkContext.parallelize([0], 1).map(_lacking).collect()
    logs = spark.read.format("logfs")
    table = logs.option("minPartitions", "4").load(f"{data}/in")
    found["read"] = sorted([row.partition, row.offset] for row in table.collect())
    try:
        logs.load(f"{data}/nowhere").count()
    except Exception as error:  # noqa: BLE001 - its kind depends on where
        found["refusal"] = str(error)
    written = table.select("key", "value").write.format("logfs").option("topic", "out")
    written.mode("append").save(data)
    stream = (
        spark.readStream.format("logfs").option("startingOffsets", "earliest").load(f"{data}/in")
    )
    query = (
        stream.select("key", "value").writeStream.format("logfs").option("topic", "out")
        .option("checkpointLocation", checkpoint).trigger(availableNow=True).start(data)
    )  # fmt: skip
    query.awaitTermination()
    found["written"] = sorted(row.value.decode() for row in logs.load(f"{data}/out").collect())
    print(json.dumps(found), flush=True)
    spark.stop()


def _lacking(_: object = None) -> list[str]:
    """Return which modules this process does not have."""
    import importlib

    found = []
    for name in ("pandas", "pyfuse3", "trio"):
        try:
            importlib.import_module(name)
        except ImportError:
            found.append(name)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
