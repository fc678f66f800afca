r"""logfs: Kafka's log storage engine with a file system for an API.

A directory of Kafka-format logs is mounted, and every partition of every topic is one file: append
with ``>>``, read with ``cat``, follow with ``tail -f``, jump to a moment with ``@`` in the path.

The layers; imports go down only, and ``tests/test_layering.py`` says so::

                cli             the command line: click, exit codes, logging
            /    |    \
          fs  library  spark    pyfuse3 and trio; partitions for programs; Spark's data source
            \    |    /
         machine, client        clocks, mounts; asks the daemon, control: what is said to it
                 |
                log             one partition, and the store of all; no async, no clock
               /   \
        records     disk        bytes <-> records, pure; the only code that touches data files
               \   /
        errors types config     the vocabulary

Everything below ``fs`` and ``spark`` imports without pyfuse3, trio and pyspark.
"""

__version__ = "0.1.0"
