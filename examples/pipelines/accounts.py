"""Whose account is being tried? The logins of one topic joined with the accounts of another.

    logfs topic create /var/lib/logfs/accounts --config cleanup.policy=compact
    getent passwd | awk -F: '{ print $1 "\t" $5 }' | logfs append /var/lib/logfs/accounts/0.tsv
    spark-submit examples/pipelines/accounts.py /var/lib/logfs

A compacted topic is a table: the last record of each key is its row, and a record without a value
deletes the row.
"""

import argparse

from parsing import logins  # type: ignore[import-not-found]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql


def latest(records: DataFrame) -> DataFrame:
    """Return a compacted topic as the table it means: columns ``key`` and ``value``."""
    newest = sql.max_by(sql.struct("value"), "offset").alias("newest")
    return (
        records.groupBy("partition", "key")
        .agg(newest)
        .select(
            sql.col("key").cast("string").alias("key"),
            sql.col("newest.value").cast("string").alias("value"),
        )
        .where("value IS NOT NULL")
    )


def tried(attempts: DataFrame, accounts: DataFrame) -> DataFrame:
    """Return the users that were tried, most often first, with their names if they exist."""
    counts = attempts.groupBy("user").agg(
        sql.count_if(sql.col("outcome") == "Failed").alias("failed"),
        sql.count_if(sql.col("outcome") == "Accepted").alias("accepted"),
        sql.count_distinct("address").alias("addresses"),
    )
    return (
        counts.join(accounts, counts.user == accounts.key, "left")
        .select("user", sql.col("key").isNotNull().alias("exists"), sql.col("value").alias("name"),
                "failed", "accepted", "addresses")
        .orderBy(sql.desc("failed"), "user")
    )  # fmt: skip


def main() -> None:
    """Print the accounts that were tried."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", help="a data directory")
    parser.add_argument("--logins", default="ssh", help="topic of sshd (default: ssh)")
    parser.add_argument("--accounts", default="accounts", help="topic of users (default: accounts)")
    options = parser.parse_args()
    spark = SparkSession.builder.appName("accounts").getOrCreate()
    logs = spark.read.format("logfs")
    attempts = logins(logs.option("subscribe", options.logins).load(options.path))
    accounts = latest(logs.option("subscribe", options.accounts).load(options.path))
    tried(attempts, accounts).show(50, truncate=False)


if __name__ == "__main__":
    main()
