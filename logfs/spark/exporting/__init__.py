"""Records as Parquet files, a directory a day, run after run from where the last one ended.

    DESTINATION/topic=orders/day=2026-11-20/orders-0-START-END.parquet
    DESTINATION/_logfs/                     what readers of such directories pass over
        manifest.json                       up to which offset; the ranges a run is about to write
        done/orders-0-START-END.json        of these, one that is written
        writing/                            files that are not whole yet

    spool        files on their way to a store
    targets      a directory, or a prefix of an object store
    manifest     the small files below ``_logfs``
    dayfiles     records to a file for each day                                       pyarrow
    ranges       one range of offsets: the unit of work
    merging      small files into larger ones                                         pyarrow
    export       a run: continues with what was interrupted, then with what is new
    verifying    the files, read again and compared with the log
    iceberg      the files into an Iceberg table, each once                           pyiceberg

A run first writes down which ranges it is about to write, then each is written under ``writing``,
made durable and renamed, day by day, and noted as done. A run that finds the ranges of another one
that was killed writes those that are not done, under the same names, before it looks for more: so
nothing is missing, and nothing there twice. Nothing knows of Spark here but that ``ranges`` is a
function of plain data.
"""
