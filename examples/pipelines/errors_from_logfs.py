"""Errors of a web server by the hour, read from logfs. `diff` it with errors_from_kafka.py.

spark-submit examples/pipelines/errors_from_logfs.py /var/lib/logfs
"""

import sys

from parsing import web_errors  # type: ignore[import-not-found]
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

spark = SparkSession.builder.appName("errors by the hour").getOrCreate()
records = (
    spark.read.format("logfs")
    .option("path", sys.argv[1])
    .option("subscribe", "web")
    .option("startingOffsets", "earliest")
    .load()
)
hour = sql.date_trunc("hour", "time").alias("hour")
web_errors(records).where("level = 'error'").groupBy(hour).count().orderBy("hour").show(100)
