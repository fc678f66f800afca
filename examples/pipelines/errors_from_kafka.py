"""Errors of a web server by the hour, read from Kafka. `diff` it with errors_from_logfs.py.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0 \
        examples/pipelines/errors_from_kafka.py localhost:9092
"""

import sys

from parsing import web_errors  # type: ignore[import-not-found]
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

spark = SparkSession.builder.appName("errors by the hour").getOrCreate()
records = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", sys.argv[1])
    .option("subscribe", "web")
    .option("startingOffsets", "earliest")
    .load()
)
hour = sql.date_trunc("hour", "time").alias("hour")
web_errors(records).where("level = 'error'").groupBy(hour).count().orderBy("hour").show(100)
