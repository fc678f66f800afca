"""Which addresses try passwords? Those with many failed logins within minutes, and when.

    logfs append --create /var/lib/logfs/ssh/0 /var/log/auth.log
    spark-submit examples/pipelines/brute_force.py /var/lib/logfs --picture attacks.svg

The path is a data directory or an address in it, such as /var/lib/logfs/ssh/0@-7d. With --web the
picture shows the lines of a web server's error log below.
"""

import argparse

from parsing import logins, web_errors  # type: ignore[import-not-found]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql


def attacks(tried: DataFrame, minutes: int, failures: int) -> DataFrame:
    """Return one row per window and address that failed often enough in it, the worst first."""
    return (
        tried.where("outcome = 'Failed'")
        .groupBy(sql.window("time", f"{minutes} minutes").start.alias("since"), "address")
        .agg(
            sql.count("*").alias("failures"),
            sql.count_distinct("user").alias("users"),
            sql.max("time").alias("last"),
        )
        .where(sql.col("failures") >= failures)
        .orderBy(sql.desc("failures"), "since", "address")
    )


def main() -> None:
    """Print the attacks and draw them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", help="a data directory, or an address in it")
    parser.add_argument("--topic", default="ssh", help="what sshd says (default: ssh)")
    parser.add_argument("--minutes", type=int, default=10, help="length of a window (default: 10)")
    parser.add_argument("--failures", type=int, default=5, help="so many are many (default: 5)")
    parser.add_argument("--picture", metavar="FILE", help="draw the events over time: .svg or .png")
    parser.add_argument("--web", metavar="TOPIC", help="what the web server complains of")
    options = parser.parse_args()
    spark = SparkSession.builder.appName("brute force").getOrCreate()
    logs = spark.read.format("logfs").schema("value binary, timestamp timestamp")
    tried = logins(logs.option("subscribe", options.topic).load(options.path)).cache()
    attacks(tried, options.minutes, options.failures).show(50, truncate=False)
    if options.picture:
        from picture import draw  # type: ignore[import-not-found]

        errors = None
        if options.web:
            errors = web_errors(logs.option("subscribe", options.web).load(options.path))
        draw(tried.where("outcome = 'Failed'"), errors, options.picture)
        print(f"drawn: {options.picture}")


if __name__ == "__main__":
    main()
