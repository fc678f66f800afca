"""The budgets of logfs, measured: ``python -m benchmarks``, or ``make bench``.

Every row compares logfs with something else in one run on one machine, and is the ratio of two
medians of alternating runs (A B A B ...):

    plain   the same command on an ordinary file with the same bytes on the same file system
    floor   a pyfuse3 handler that does nothing, or serves from memory (``floor``), mounted with the
            same options, flags and ``st_blksize``, in its own process

With ``--peers`` (``make bench-peers``) the same table compares with a Kafka broker, its tools and
kcat, which are started here: see ``peers``. It needs Java, the jars that the tests use, and kcat.

With ``--record`` the run is kept below ``runs``; the README, its plot and ``RESULTS.md`` show the
last ones that are kept: ``runs``, ``published``, ``drawing``.

A question is a module below ``questions`` and yields rows; ``runner`` has the clock, ``mounts`` the
daemons, ``data`` the logs, ``report`` the table. A missed budget is a result and no error: the exit
status is 0; one that could not be measured is named, and the status is 1.
"""
