"""Spark's data source ``logfs``: logs as tables and streams, in PySpark's Python data source API.

    spark.read.format("logfs").option("subscribe", "orders").load("/var/lib/logfs")
    spark.readStream.format("logfs").load("/var/lib/logfs/orders/0@-1h")

Columns, option names, defaults and precedence are those of Spark's Kafka source, so that a job
moves between the two by its format and its path. Spark finds the source without registration,
through the module ``pyspark_logfs`` beside this package.

    options      what may be asked for: names, defaults, refusals                     pure
    values       what the values of options look like                                 pure
    selection    the options that choose topics and partitions                        pure
    bounds       where to begin and end                                               pure
    limits       how much of what is new goes into one batch of a stream              pure
    planning     ranges of offsets to tasks                                           pure
    schema       the columns as Spark declares them
    jsonvalues   the columns of a table of JSON values                                 pyspark
    tasks        what a task carries and what it does on a worker
    batch, streaming, source                                                          pyspark
    target       where rows go, which columns they have
    staging      a task's rows as files in the partition directories                  pyarrow
    times        a table of the records of a time, pruned by the index               pyspark
    partitions   the partitions as a table: offsets and sizes                        pyspark
    lag          the lag of the queries of a session, after each batch               pyspark
    sink         the sink: tasks stage rows, the driver publishes                    pyspark

The driver resolves everything to ranges of offsets; a task finds the files by itself, so that
compaction and retention may continue meanwhile. Readers take no lock and write nothing; a sink
stages without one, and publishes through the daemon or under the lock (``logfs.log.publishing``).
Workers need neither pyfuse3 nor trio.

The columns are those of ``logfs.arrow``; the library finds directories and their partitions.

Beside it stand ``exporting``, records to Parquet and Iceberg, and ``jobs``: verify, reindex,
compact and export on a cluster, over the code of the local commands.
"""
