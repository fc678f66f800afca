"""Background tasks of the mount; ``tasks`` has their periods and starts them.

    retention     deletion by age and size, and the limits of the directory
    rewriting     compaction by key; packing: sealed segments are written once more, smaller
    tiering       sealed segments go to an object store
    journaling    what is not sealed goes there as well
    following     the look at another program's directory
    tasks         all of them, and maintenance, flushes, checkpoints, removals

The work itself is in ``logfs.log``. Here is when it runs, and in which thread.
"""
