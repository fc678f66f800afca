"""A query that copies what ``tests.spark.copied`` says, in many batches, and ends.

python -m tests.spark.copying MASTER DATA CHECKPOINT
"""

import sys

from tests.spark.copied import KEPT


def main(master: str, data: str, checkpoint: str) -> None:
    """Copy what there is."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "20",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    builder = SparkSession.builder.master(master)
    for name, text in settings.items():
        builder = builder.config(name, text)
    spark = builder.getOrCreate()
    options = {
        "startingOffsets": "earliest",
        "subscribe": "in",
        "minPartitions": "3",
        "maxOffsetsPerTrigger": "400",
    }
    stream = spark.readStream.format("logfs").options(**options).load(data)
    copied = stream.where(KEPT).select("key", "value", "timestamp").writeStream.format("logfs")
    copied = copied.option("topic", "out").option("checkpointLocation", checkpoint)
    copied.trigger(availableNow=True).start(data).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
