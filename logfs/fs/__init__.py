"""The file system: the only code that imports pyfuse3 and trio.

The packages, lowest first. Each imports only from those above it in this table, which
``tests/test_layering.py`` checks:

    threads       where calls run that the event loop must not make
    options       the text after ``-o``
    kernel        what lies between the kernel and Python: the C library beside libfuse, errnos,
                  permissions, signals, passthrough, what the kernel has cached
    partitions    a partition in the mount; the threads in which its calls run; limits of users
    tree          names: nodes and their attributes, look-ups, inode numbers, extended attributes
    upkeep        background tasks: retention, compaction, packing, tiering, following
    handover      what outlives the daemon, and how the next one continues
    files         open files: reads, appends, fsyncs, readers that wait, listings
    operations    the requests of the kernel, and changes of topics
    metrics       what Prometheus and ``logfs status`` read
    service       the control socket
    session       the connection to the kernel, and the start and the end of all of it

The docstring of each package lists its modules. A request comes through ``operations``, finds its
node in ``tree``, its open file in ``files``, and runs on the executor of a partition. What the
hooks answer takes the same way in C: see ``kernel/native/hooks.h``.
"""
