"""The commands: the module of each, and the first sentence of its help.

``logfs --help`` prints the sentences and loads no module; a test compares them with the help texts.
"""

from typing import NamedTuple


class Entry(NamedTuple):
    """A module of ``logfs.cli.commands``, which is loaded when the command is called."""

    module: str
    sentence: str


COMMANDS = {
    "mount": Entry("mount", "Mount the data directory DATA at MOUNTPOINT and serve it."),
    "umount": Entry("mount", "Unmount what logfs has mounted at MOUNTPOINT."),
    "reload": Entry("reload", "Give the mount at MOUNTPOINT to a new daemon, with new code."),
    "topic": Entry("topic", "Create, list, describe, alter, delete and restore topics."),
    "group": Entry("group", "List, describe, reset and delete consumer groups."),
    "append": Entry("append", "Append the lines of FILEs, or of stdin, as records."),
    "cat": Entry("cat", "Print the records that each PATH names, one PATH after the other."),
    "tail": Entry("tail", "Print the last records of partitions, and with -f also new ones."),
    "trim": Entry("trim", "Delete the records before a point; Kafka calls this DeleteRecords."),
    "compact": Entry("compact", "Keep only the last record of each key."),
    "pack": Entry("pack", "Write sealed segments once more, with larger and compressed batches."),
    "metrics": Entry(
        "metrics",
        "Print the metrics of the daemon that serves PATH, a data directory or a mount point.",
    ),
    "offsets": Entry(
        "offsets",
        "Print the offsets of times in a partition, a topic or a whole data directory.",
    ),
    "explain": Entry(
        "explain",
        "Print what an address means now: its first and its last offset, and their times.",
    ),
    "dump": Entry(
        "dump",
        "Print logs, indexes, snapshots and checkpoints as kafka-dump-log does, line for line.",
    ),
    "status": Entry("status", "Show the topics of a data directory and the daemon that serves it."),
    "top": Entry("top", "Show which programs append to and read which topics, and how fast."),
    "verify": Entry(
        "verify",
        "Check all files of data directories, topics and partitions.",
    ),
    "reindex": Entry("reindex", "Rebuild the indexes of a stopped data directory from its logs."),
    "du": Entry("du", "Print the disk usage of topics and partitions, in bytes."),
    "backup": Entry("backup", "Back up the data directory SOURCE into the directory DESTINATION."),
    "restore": Entry("backup", "Restore the backup BACKUP into the data directory DATA."),
    "salvage": Entry(
        "salvage", "Copy what can be read of the damaged data directory DAMAGED into DATA."
    ),
    "remote": Entry("remote", "Copy logs to an object store, check it, and get logs back from it."),
    "standby": Entry(
        "standby",
        "Keep DATA ready to continue the logs of the store URL, and serve it at MOUNTPOINT.",
    ),
    "promote": Entry(
        "promote",
        "Continue the logs of the store URL in DATA, after the machine that wrote them was lost.",
    ),
    "doctor": Entry("doctor", "Collect what a bug report about a data directory needs."),
    "plan": Entry(
        "plan",
        "Estimate the disk usage of a topic, or when the disk of the directory PATH will be full.",
    ),
    "mirror": Entry(
        "mirror",
        "Keep topics of a Kafka cluster as local topics, up to date and byte for byte.",
    ),
    "forward": Entry(
        "forward", "Send what is appended to a topic to a Kafka cluster, exactly once."
    ),
    "export": Entry(
        "export",
        "Export records to Parquet files in DESTINATION; the next run continues.",
    ),
    "spark-job": Entry(
        "spark_job",
        "Print the path of the file for spark-submit; a job's command line follows it.",
    ),
}
"""In the order in which ``logfs --help`` lists them."""
