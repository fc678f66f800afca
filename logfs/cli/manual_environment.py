"""The environment variables that commands read, for the page of each command.

A test compares the table with the variables that occur in the code.
"""

from typing import NamedTuple

from logfs.cli.manual_page import Item


class Variable(NamedTuple):
    """Environment variables with one meaning.

    Attributes:
        commands: The commands of ``logfs`` that read them; None: all.
    """

    names: str
    meaning: str
    commands: frozenset[str] | None = None


_BATCHES = frozenset({
    "append", "cat", "tail", "trim", "compact", "pack", "offsets", "dump", "verify",
    "reindex", "backup", "restore", "mirror", "forward", "export", "remote", "group",
})  # fmt: skip
_TIMES = frozenset({
    "mount", "mount.logfs", "append", "cat", "tail", "trim", "offsets", "status", "group",
    "mirror", "plan",
})  # fmt: skip
_STORES = frozenset({
    "mount", "mount.logfs", "topic", "cat", "tail", "offsets", "dump", "status", "verify",
    "du", "backup", "export", "remote",
})  # fmt: skip
_SERVICES = frozenset(("mount", "mirror", "forward"))
_JOBS = frozenset(("verify", "reindex", "compact", "export"))

VARIABLES = (
    Variable("LOGFS_DEBUG", "1: show tracebacks, as 'logfs --debug'."),
    Variable(
        "LOGFS_DECOMPRESSED_MAX_BYTES",
        "The most memory that the records of a compressed batch may take, as 'logfs "
        "--decompressed-max-bytes'; default: 128 MiB.",
        _BATCHES,
    ),
    Variable(
        "TZ",
        "The time zone of dates without one where no daemon serves the data directory, and of "
        "printed times.",
        _TIMES,
    ),
    Variable(
        "CACHE_DIRECTORY, XDG_CACHE_HOME",
        "Where positions of read-only mounts and parts of a store's objects are kept: "
        "$CACHE_DIRECTORY, else $XDG_CACHE_HOME/logfs, else ~/.cache/logfs.",
        _STORES,
    ),
    Variable(
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN",
        "Credentials for s3://. Without them they are found as the command aws finds them: by "
        "web identity (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN), in the files of AWS's tools, "
        "by the role of the container (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, "
        "AWS_CONTAINER_CREDENTIALS_FULL_URI) or the machine. AWS_SKIP_SIGNATURE: send requests "
        "without credentials.",
        _STORES,
    ),
    Variable(
        "AWS_PROFILE, AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE, HOME",
        "The profile in the files of AWS's tools, and where these files are; default: "
        "~/.aws/credentials and ~/.aws/config.",
        _STORES,
    ),
    Variable(
        "AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION",
        "The server of s3://, and its region; logfs.remote and the mount options endpoint and "
        "region take precedence.",
        _STORES,
    ),
    Variable(
        "AWS_CA_BUNDLE",
        "A file with the certificate of a private authority, for gs:// and az:// as well.",
        _STORES,
    ),
    Variable(
        "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY, GOOGLE_APPLICATION_CREDENTIALS",
        "Credentials for az:// and gs://; other variables AZURE_ and GOOGLE_ are those of obstore.",
        _STORES,
    ),
    Variable(
        "SPARK_HOME, SPARK_CONF_DIR, SPARK_REMOTE, MASTER, PYSPARK_SUBMIT_ARGS",
        "With --spark: the cluster; without them, and without --master, every core of this "
        "machine.",
        _JOBS,
    ),
    Variable(
        "PYSPARK_PYTHON, SPARK_LOCAL_IP",
        "With --spark: the Python of the workers, default the one that runs logfs, and the "
        "address of Spark on this machine, default 127.0.0.1.",
        _JOBS,
    ),
    Variable(
        "PYICEBERG_HOME, PYICEBERG_CATALOG__NAME__KEY",
        "With --iceberg: the configuration of pyiceberg.",
        frozenset(("export",)),
    ),
    Variable(
        "NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID, LISTEN_FDS, LISTEN_FDNAMES, LISTEN_PID",
        "Set by systemd: where to report the state, how often, and the open files that the "
        "daemon before has left.",
        _SERVICES,
    ),
    Variable(
        "JOURNAL_STREAM, INVOCATION_ID",
        "Set by systemd: whether stderr is the journal, and that this is a service.",
        frozenset(("mount",)),
    ),
    Variable(
        "PATH, HOME",
        "mount.logfs(8) sets defaults where mount(8) has removed them.",
        frozenset(("mount.logfs",)),
    ),
    Variable(
        "_LOGFS_COMPLETE",
        "bash_source, zsh_source or fish_source: print the completion for this shell.",
        frozenset(("logfs",)),
    ),
)


def environment_of(command: str) -> tuple[Item, ...]:
    """Return the variables of a command: ``cat``, ``mount.logfs``; ``logfs``: those of all."""
    return tuple(
        Item(names, meaning)
        for names, meaning, commands in VARIABLES
        if command == "logfs" or commands is None or command in commands
    )
