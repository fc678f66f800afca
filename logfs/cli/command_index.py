"""The first sentence of each command's help.

``logfs --help`` prints it without loading the commands; a test compares both. A command that is
missing here is loaded.
"""

COMMAND_INDEX = {
    "mount": "Mount the data directory DATA at MOUNTPOINT and serve it.",
    "umount": "Unmount what logfs has mounted at MOUNTPOINT.",
    "topic": "Create, list, describe, alter, delete and restore topics.",
    "append": "Append the lines of FILEs, or of stdin, as records.",
    "cat": "Print what addresses mean, one after the other.",
    "tail": "Print the last records of partitions, and with -f those that come.",
    "trim": "Delete the records before a point; Kafka calls this DeleteRecords.",
    "compact": "Keep only the last record of each key.",
    "metrics": (
        "Print the metrics of the daemon that serves PATH, a data directory or a mount point."
    ),
    "offsets": (
        "Print the offsets of moments in a partition, in those of a topic, or in all there are."
    ),
    "dump": "Print logs, indexes, snapshots and checkpoints as kafka-dump-log does, line for line.",
    "verify": (
        "Check that everything in data directories, topics and partitions is as it was written."
    ),
    "reindex": ("Rebuild the indexes of a stopped data directory from its logs."),
    "backup": "Back up the data directory SOURCE into the directory DESTINATION.",
    "restore": "Restore the backup BACKUP into the data directory DATA.",
    "status": "Show the topics of a data directory and the daemon that serves it.",
    "plan": (
        "Calculate how much disk a topic takes; or, for the directory PATH, when its disk is full."
    ),
    "du": "Print how much of the disk topics and partitions take, in bytes.",
    "export": (
        "Export records to Parquet files in the directory DESTINATION; the next run continues."
    ),
    "spark-job": ("Print the path of the file for spark-submit; a job's command line follows it."),
}
