r"""Mount options: the text after ``-o``, as mount(8), fstab and systemd give it.

    allow_other        users other than the mounting one may use the files (as their modes allow)
    uid=N gid=N        owner of all files without a chown, a number or a name; default: the
                       mounting user
    umask=OCTAL        bits missing in the mode of all files without a chmod; default 022
    create             >> on a missing partition makes it
    rmdir=WHICH        what rmdir deletes: "empty" (default), topics that hold no records; "delete",
                       every topic, with its records, as Kafka deletes topics
    ro                 read-only: nothing is written into DATA; appends of other programs appear
    fresh              with ro and the URL of an object store: follow its journal, so that records
                       appear that are in no segment yet, about half a second after they are sent
    cache_dir=DIR      where a read-only mount keeps positions for the next mount; default
                       $CACHE_DIRECTORY, else $XDG_CACHE_HOME/logfs, else ~/.cache/logfs
    isolation.level=L  which records readers see: read_uncommitted (default), everything;
    read_committed, up
                       to the first record of an open transaction and without aborted records;
                       high_watermark, up to the high watermark
    metrics=ADDRESS    metrics for Prometheus under /metrics, and under /healthz whether the mount
                       answers. 9464: a port of this machine, for its own programs (127.0.0.1);
                       0.0.0.0:9464 or [::1]:9464: a port of an address, without a password;
                       /run/logfs.sock: a socket for its owner and group. Port 0 is any free
                       port; the daemon logs which
    no_topic_metrics   metrics of all topics together instead of each: no topic names appear, and
                       a scrape stays small with thousands of topics
    access_log=FILE    a line of JSON for each open, creation, change and removal, and for each
                       command that changes something: time, user, process, program, operation,
                       name, result. At most 4000 lines a second; FILE is opened again after a
                       rotation
    endpoint=URL       the server of an object store, https://HOST or http://HOST:PORT; default:
                       $AWS_ENDPOINT_URL, else the cloud of the address
    region=NAME        the region of its bucket; default: $AWS_REGION, else us-east-1
    remote=URL         the object store of the data directory, with endpoint and region as above,
                       instead of the one that its logfs.remote names. Needed if another user may
                       have written that file: it says where the daemon's credentials are sent
    no_native          Python applies all writes and fsyncs and opens all files; by default native
                       threads do so for lines, several times as fast
    no_passthrough     the daemon reads the files of sealed segments and the kernel caches them,
                       even if the kernel can read them itself (Linux 6.9, CAP_SYS_ADMIN)
    keep_awake         no processor sleeps while programs read growing names in small pieces: twice
                       as fast in many virtual machines, for more power (needs root)
    user_max_partitions=N, user_max_message_bytes=N, user_max_open_files=N
                       limits for users of the mount: partitions of all topics of a user, the value
                       of max.message.bytes (both EDQUOT), open files of a user (EMFILE). Default
                       1000, 104857600 and 20000; no limits for root and the daemon's user
    user_max_bytes=N, user_max_byte_rate=N
                       the same for the logs of all topics of a user together (EDQUOT), and for the
                       bytes a second that a user writes (the write returns later); default: none
    sync               every write is durable when it returns, as with O_SYNC
    fsname=TEXT        the device that /proc/mounts shows; default: the data directory
    config=FILE        more options from a file, as --config-file; those given here override it
    setuid=USER        the daemon gives up root first, and runs as this user
    KEY=VALUE          a setting of a Kafka broker: num.partitions=3, log.retention.hours=24

nosuid, nodev, noexec, noatime and the like go to the kernel; default_permissions is always set.
Options about when and for which users to mount (defaults, user, nofail, x-systemd.automount …) are
ignored, and so is native, which 0.2.0 had. Any other option is refused. A comma in a value is
written ``\,``.
"""

import difflib
import grp
import pwd
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logfs.config import StoreConfig
from logfs.disk.remote.urls import is_store_url
from logfs.errors import InvalidConfigError
from logfs.types import IsolationLevel

_KERNEL = frozenset({
    "atime", "noatime", "dev", "nodev", "diratime", "nodiratime", "exec", "noexec", "lazytime",
    "nolazytime", "nosymfollow", "relatime", "norelatime", "strictatime", "nostrictatime", "suid",
    "nosuid",
})  # fmt: skip
_MEANINGLESS = frozenset({
    "_netdev", "async", "auto", "noauto", "default_permissions", "defaults", "dirsync", "group",
    "iversion", "noiversion", "loud", "mand", "nomand", "native", "nofail", "nonempty", "owner",
    "rw", "silent", "user", "nouser", "users", "nousers",
})  # fmt: skip
_MEANINGLESS_PREFIXES = ("x-", "X-", "comment=", "subtype=", "user=", "helper=", "uhelper=")
_LABELS = ("context=", "fscontext=", "defcontext=", "rootcontext=")
_REFUSED = {
    "remount": "a mount of logfs cannot be changed: unmount it, then mount it with other options",
    "auto_unmount": "the mount of a daemon that died stays, to prevent writes below it, until "
    "the next 'logfs mount' or 'logfs umount'",
    "allow_root": "root may enter with allow_other; see also uid, gid and umask",
    "bind": "a bind mount needs no file system type: mount --bind",
}
LOOPBACK = "127.0.0.1"
_HIGHEST_PORT = 65535

USER_MAX_PARTITIONS = 1000
USER_MAX_OPEN_FILES = 20_000
USER_MAX_MESSAGE_BYTES = 100 * 1024 * 1024
"""The largest request of a broker by default. Source: Kafka socket.request.max.bytes."""


class MetricsAddress(NamedTuple):
    """Where metrics are read.

    Attributes:
        host: The address or name; empty for a socket in the file system.
        port: The port, 0 for any.
        path: The path of the socket; empty for a port.
    """

    host: str
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_metrics_address(text: str) -> MetricsAddress:
    """Parse the value of the option.

    Raises:
        ValueError: It is none; the message says what is expected.
    """
    if text.startswith("/"):
        return MetricsAddress("", path=text)
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if "[" in host else host
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= _HIGHEST_PORT
    if not is_port or (colon and not host) or (":" in host and "[" not in text):
        raise ValueError(
            "expected a port, as 9464, an address and a port, as 127.0.0.1:9464 or [::1]:9464, or "
            "the path of a socket, from the root"
        )
    return MetricsAddress(host or LOOPBACK, int(port))


@dataclass(frozen=True, slots=True, kw_only=True)
class MountOptions:
    """The options of a mount.

    Attributes:
        allow_other: Other users may use the mount.
        uid: Owner by default; None for the user of the daemon.
        gid: Group by default; None for the group of the daemon.
        umask: Bits missing in the modes by default; None for 022.
        create: ``>>`` on a missing partition makes it.
        rmdir_deletes: rmdir deletes topics with records too.
        keep_awake: No processor sleeps while small reads are answered.
        no_topic_metrics: There are no metrics of single topics.
        no_native: No writes are applied in a native thread.
        no_passthrough: Sealed files are not passed through to the kernel.
        read_only: Nothing is written.
        fresh: The mount of an object store follows its journal.
        sync: Every write is durable when it returns.
        cache_dir: The directory for the positions of a read-only mount; None for the default.
        isolation_level: Which records readers see.
        metrics: The address at which metrics are served; None: nowhere.
        access_log: The file of the access log; None: none is kept.
        endpoint: The server of an object store; None for that of the environment.
        region: The region of its bucket; None for that of the environment.
        remote: The object store of the data directory; None for that of ``logfs.remote``.
        fsname: The device that /proc/mounts shows; None for the data directory.
        config_file: The file with more options; reading it is the caller's.
        run_as: Name of the user to become; that, too, is the caller's.
        unknown: Options that were ignored (``is_sloppy``).
        kernel: Options for the kernel.
        user_max_partitions: The most partitions that topics of one user have.
        user_max_open_files: The most files and directories that one user has open.
        user_max_bytes: The most bytes that topics of one user have; None: no limit.
        user_max_byte_rate: The most bytes a second that one user writes; None: no limit.
        user_max_message_bytes: The most that a user can set ``max.message.bytes`` to.
        store: The settings of the store.
    """

    allow_other: bool = False
    uid: int | None = None
    gid: int | None = None
    umask: int | None = None
    create: bool = False
    rmdir_deletes: bool = False
    keep_awake: bool = False
    no_native: bool = False
    no_passthrough: bool = False
    no_topic_metrics: bool = False
    read_only: bool = False
    fresh: bool = False
    sync: bool = False
    cache_dir: str | None = None
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    metrics: MetricsAddress | None = None
    access_log: str | None = None
    endpoint: str | None = None
    region: str | None = None
    remote: str | None = None
    fsname: str | None = None
    config_file: str | None = None
    run_as: str | None = None
    unknown: tuple[str, ...] = ()
    kernel: tuple[str, ...] = ()
    user_max_partitions: int = USER_MAX_PARTITIONS
    user_max_open_files: int = USER_MAX_OPEN_FILES
    user_max_message_bytes: int = USER_MAX_MESSAGE_BYTES
    user_max_bytes: int | None = None
    user_max_byte_rate: int | None = None
    store: StoreConfig = field(default_factory=lambda: StoreConfig.from_properties({}))


def parse_options(texts: Iterable[str], *, is_sloppy: bool = False) -> MountOptions:
    """Parse the text after each ``-o``.

    Args:
        texts: Options separated by commas. If an option is given twice, the last one applies.
        is_sloppy: Ignore unknown options, like ``mount -s``.

    Raises:
        InvalidConfigError: An option is unknown or its value not valid.
    """
    fields: dict[str, object] = {}
    kernel: list[str] = []
    unknown: list[str] = []
    properties: dict[str, str] = {}
    for option in (o for text in texts for o in _split(text)):
        name, equals, value = option.partition("=")
        known = _OPTIONS.get(name)
        if known is not None and bool(equals) is not known.is_flag:
            fields[known.field] = known.is_flag or _parse_value(name, value)
        elif option in _KERNEL or option.startswith(_LABELS):
            kernel.append(option)
        elif "." in name and equals and not option.startswith(_MEANINGLESS_PREFIXES):
            properties[name] = value
        elif option == "rw":
            fields["read_only"] = False
        elif option not in _MEANINGLESS and not option.startswith(_MEANINGLESS_PREFIXES):
            if not is_sloppy:
                raise _unknown(option)
            unknown.append(option)
    store = StoreConfig.from_properties(properties)
    kept = {"kernel": tuple(kernel), "unknown": tuple(unknown)}
    return MountOptions(**kept, store=store, **fields)  # type: ignore[arg-type]  # the tables above name the fields


def option_names() -> list[str]:
    """Return the names of all options of this module; one that needs a value ends in ``=``."""
    return sorted(f"{name}{'' if option.is_flag else '='}" for name, option in _OPTIONS.items())


def _split(text: str) -> list[str]:
    parts = re.findall(r"((?:[^\\,]|\\.)+)", text)
    return [re.sub(r"\\(.)", r"\1", part).strip() for part in parts]


def _parse_octal(text: str) -> int:
    if not re.fullmatch(r"[0-7]{1,4}", text):
        raise ValueError("expected up to four octal digits, as 022")
    return int(text, 8)


def _parse_user(text: str) -> int:
    return _parse_id(text, "user", lambda: pwd.getpwnam(text).pw_uid)


def _parse_group(text: str) -> int:
    return _parse_id(text, "group", lambda: grp.getgrnam(text).gr_gid)


def _parse_id(text: str, what: str, look_up: Callable[[], int]) -> int:
    if re.fullmatch(r"[0-9]{1,10}", text) and int(text) < 2**32 - 1:
        return int(text)
    try:
        return look_up()
    except (KeyError, ValueError):
        raise ValueError(f"expected the name of a {what}, or a number") from None


def _parse_text(text: str) -> str:
    if not text or not text.isascii() or not text.isprintable():
        raise ValueError("expected printable ASCII")
    return text


def _parse_level(text: str) -> IsolationLevel:
    try:
        return IsolationLevel(text)
    except ValueError:
        raise ValueError(f"expected one of {', '.join(IsolationLevel)}") from None


def _parse_rmdir(text: str) -> bool:
    if text not in ("empty", "delete"):
        raise ValueError("expected empty or delete")
    return text == "delete"


def _parse_path(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("expected a path from the root, as /var/cache/logfs")
    return text


def _parse_endpoint(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text):
        raise ValueError("expected an address, as http://127.0.0.1:9000")
    return text.rstrip("/")


def _parse_store(text: str) -> str:
    if not is_store_url(text):
        raise ValueError("expected the address of a store, as s3://BUCKET/PREFIX")
    return text.rstrip("/")


def _parse_limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ValueError("expected a number, as 1000")
    return int(text)


def _parse_rate(text: str) -> int:
    if not _parse_limit(text):
        raise ValueError("expected at least 1")
    return int(text)


class _Option(NamedTuple):
    """One row of the table of options.

    Attributes:
        field: The field of ``MountOptions``.
        parse: Returns the value of a text, or raises ValueError; ``bool`` for a flag, which has no
            value.
        format: Returns the text of a value; None: ``option_words`` leaves the option out.
    """

    field: str
    parse: Callable[[str], object] = bool
    format: Callable[[Any], str] | None = str

    @property
    def is_flag(self) -> bool:
        """Whether the option takes no value."""
        return self.parse is bool


_OPTIONS = {
    "ro": _Option("read_only"),
    "fresh": _Option("fresh"),
    "allow_other": _Option("allow_other"),
    "create": _Option("create"),
    "rmdir": _Option("rmdir_deletes", _parse_rmdir, lambda _: "delete"),
    "keep_awake": _Option("keep_awake"),
    "no_native": _Option("no_native"),
    "no_passthrough": _Option("no_passthrough"),
    "no_topic_metrics": _Option("no_topic_metrics"),
    "sync": _Option("sync"),
    "uid": _Option("uid", _parse_user),
    "gid": _Option("gid", _parse_group),
    "umask": _Option("umask", _parse_octal, "{:03o}".format),
    "user_max_partitions": _Option("user_max_partitions", _parse_limit),
    "user_max_open_files": _Option("user_max_open_files", _parse_limit),
    "user_max_message_bytes": _Option("user_max_message_bytes", _parse_limit),
    "user_max_bytes": _Option("user_max_bytes", _parse_limit),
    "user_max_byte_rate": _Option("user_max_byte_rate", _parse_rate),
    "isolation.level": _Option("isolation_level", _parse_level),
    "fsname": _Option("fsname", _parse_text, None),
    "cache_dir": _Option("cache_dir", _parse_path, None),
    "access_log": _Option("access_log", _parse_path, None),
    "endpoint": _Option("endpoint", _parse_endpoint, None),
    "region": _Option("region", _parse_text, None),
    "remote": _Option("remote", _parse_store, None),
    "config": _Option("config_file", _parse_path, None),
    "setuid": _Option("run_as", _parse_text, None),
    "metrics": _Option("metrics", parse_metrics_address, None),
}


def _parse_value(name: str, text: str) -> object:
    try:
        return _OPTIONS[name].parse(text)
    except ValueError as error:
        raise InvalidConfigError(f"mount option {name}={text}: {error}") from None


def _unknown(option: str) -> InvalidConfigError:
    name = option.partition("=")[0]
    known = [*_OPTIONS, *_KERNEL, *_MEANINGLESS]
    close = difflib.get_close_matches(name, known, n=1)
    if name in _REFUSED:
        hint = _REFUSED[name]
    elif name in _OPTIONS:
        hint = "it takes no value" if _OPTIONS[name].is_flag else "it needs a value"
    elif close:
        hint = f"did you mean {close[0]}?"
    else:
        hint = "a setting of the store has a dot in its name, as num.partitions=3"
    return InvalidConfigError(f"mount option {option}: {hint}")


def option_words(options: MountOptions) -> list[str]:
    """Return the options that differ from the defaults, as words for ``-o``."""
    words, defaults = [], MountOptions()
    for name, option in _OPTIONS.items():
        value = getattr(options, option.field)
        if option.format is not None and value != getattr(defaults, option.field):
            words.append(name if option.is_flag else f"{name}={option.format(value)}")
    return words + [f"{key}={value}" for key, value in options.store.overrides().items()]
