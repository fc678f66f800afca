"""A total that is always up to date: failed logins per address, in a compacted topic.

    logfs topic create /var/lib/logfs/attackers --config cleanup.policy=compact
    spark-submit examples/pipelines/totals.py /var/lib/logfs checkpoints/totals
    cat /mnt/logs/attackers/0.tsv

It runs until it is stopped, and continues where it was when it is started again with the same
checkpoint. With --once it ends when it has caught up.
"""

import argparse

from parsing import logins  # type: ignore[import-not-found]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql


def totals(attempts: DataFrame) -> DataFrame:
    """Return rows to write: the address as key, what is known of it as value, in JSON."""
    counted = (
        attempts.where("outcome = 'Failed'")
        .groupBy("address")
        .agg(
            sql.count("*").alias("failures"),
            sql.min("time").alias("first"),
            sql.max("time").alias("last"),
        )
    )
    value = sql.to_json(sql.struct("failures", "first", "last"))
    return counted.select(sql.col("address").alias("key"), value.alias("value"))


def main() -> None:
    """Keep the totals up to date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", help="a data directory")
    parser.add_argument("checkpoint", help="its own directory, where Spark keeps its place")
    parser.add_argument("--source", default="ssh", help="topic to read (default: ssh)")
    parser.add_argument("--target", default="attackers", help="topic to write (default: attackers)")
    parser.add_argument("--once", action="store_true", help="end when it has caught up")
    options = parser.parse_args()
    spark = SparkSession.builder.appName("totals").getOrCreate()

    def append(changed: DataFrame, _batch: int) -> None:
        # Only what has changed. A batch that a crash repeats appends the same totals again, and
        # the last record of each key is the valid one.
        sink = changed.write.format("logfs").mode("append")
        sink.option("topic", options.target).save(options.path)

    records = (
        spark.readStream.format("logfs")
        .option("subscribe", options.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_000_000)
        .load(options.path)
    )
    trigger = {"availableNow": True} if options.once else {"processingTime": "1 second"}
    query = (
        totals(logins(records))
        .writeStream.foreachBatch(append)
        .outputMode("update")
        .option("checkpointLocation", options.checkpoint)
        .trigger(**trigger)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
