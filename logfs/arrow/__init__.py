"""Records as Arrow record batches, without a Python object for a record. Needs pyarrow.

    columns   which columns there are, and what of a record each takes     without pyarrow
    batches   native columns as record batches
    members   members of JSON values as columns
    merging   the record batches of several partitions, by time
    pruning   what a filter of Polars says about offsets and times        without pyarrow
    lazy      a lazy frame of Polars
    reading   the record batches of a range of offsets

The library, Spark's data source and the export read with it, so all of them have the same columns.
"""
