"""Records as Arrow record batches, without a Python object for a record. Needs pyarrow.

    columns   which columns there are, and what of a record each takes     without pyarrow
    batches   native columns as record batches
    reading   the record batches of a range of offsets

The library, Spark's data source and the export read with it, so all of them have the same columns.
"""
