"""Makes the data source ``logfs`` known to Spark, which looks into every ``pyspark_*`` module."""

from logfs.spark.source import LogfsDataSource as DefaultSource

__all__ = ["DefaultSource"]
