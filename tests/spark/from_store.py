"""A program that reads the logs of an object store by Spark, for ``test_store``.

    python -m tests.spark.from_store MASTER URL

Prints as JSON what was found.
"""

import json
import sys
from typing import Any


def main(master: str, url: str) -> None:
    """Read partitions, ranges and moments; try to write."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    logs = spark.read.format("logfs")
    found: dict[str, Any] = {}
    for name in sys.argv[3:]:
        rows = logs.option("minPartitions", "3").load(f"{url}/{name}").collect()
        found[name] = sorted(
            [row.partition, row.offset, (row.key or b"").decode(), row.value.decode()]
            for row in rows
        )
    stream = spark.readStream.format("logfs").option("startingOffsets", "earliest")
    query = (
        stream.load(f"{url}/orders").writeStream.format("memory").queryName("seen")
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    found["streamed"] = spark.table("seen").count()
    try:
        table = logs.load(f"{url}/orders").select("key", "value")
        table.write.format("logfs").mode("append").save(f"{url}/orders")
    except Exception as error:  # noqa: BLE001 - its kind depends on where
        found["refusal"] = str(error)
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:3])
