import pytest

from logfs.errors import InvalidConfigError
from logfs.fs.options import MountOptions, parse_options
from logfs.fs.session.mount import kernel_options
from logfs.types import IsolationLevel


def test_no_options() -> None:
    assert parse_options([]) == MountOptions()
    assert parse_options(["", "rw,defaults"]) == MountOptions()


def test_every_option() -> None:
    options = parse_options(
        [
            "allow_other,create,keep_awake,ro",
            "sync,uid=33,gid=44,umask=077,fsname=logs,nosuid,noatime",
            "isolation.level=read_committed",
        ]
    )
    assert options == MountOptions(
        allow_other=True,
        create=True,
        keep_awake=True,
        read_only=True,
        sync=True,
        isolation_level=IsolationLevel.READ_COMMITTED,
        uid=33,
        gid=44,
        umask=0o77,
        fsname="logs",
        kernel=("nosuid", "noatime"),
    )


def test_the_last_of_two_equal_options_applies() -> None:
    options = parse_options(["ro,uid=1", "rw,uid=2"])
    assert (options.read_only, options.uid) == (False, 2)


def test_owners_by_name() -> None:
    root = parse_options(["uid=root,gid=root"])
    assert (root.uid, root.gid) == (0, 0)


def test_options_for_the_command_line() -> None:
    options = parse_options(["config=/etc/logfs/web.toml,setuid=www-data"])
    assert (options.config_file, options.run_as) == ("/etc/logfs/web.toml", "www-data")


def test_a_sloppy_mount_ignores_unknown_options() -> None:
    options = parse_options(["ro,xyzzy,a=b"], is_sloppy=True)
    assert (options.read_only, options.unknown) == (True, ("xyzzy", "a=b"))
    with pytest.raises(InvalidConfigError, match="expected a path"):
        parse_options(["cache_dir=x"], is_sloppy=True)


def test_settings_of_a_broker_go_to_the_store() -> None:
    store = parse_options(["num.partitions=3,log.retention.hours=24"]).store
    assert store.num_partitions == 3
    assert store.topic_defaults() == {"retention.ms": "86400000"}


def test_a_comma_in_a_value() -> None:
    store = parse_options([r"log.cleanup.policy=compact\,delete,ro"]).store
    assert store.topic_defaults() == {"cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    "text",
    [
        *(
            "noauto",
            "native",
            "nofail",
            "_netdev",
            "x-systemd.automount",
            "x-systemd.idle-timeout=60",
        ),
        *("user", "user=fred", "users", "nouser", "group", "defaults", "default_permissions"),
        *("comment=x", "X-mount.mkdir", "uhelper=udisks2"),
    ],
)
def test_options_of_mount_alone_are_ignored(text: str) -> None:
    assert parse_options([text]) == MountOptions()


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("alow_other", "did you mean allow_other?"),
        ("uid", "it needs a value"),
        ("create=yes", "it takes no value"),
        ("user_max_partitions=many", "expected a number, as 1000"),
        ("user_max_message_bytes=-1", "expected a number, as 1000"),
        ("user_max_byte_rate=0", "expected at least 1"),
        ("uid=nobody-of-this-name", "expected the name of a user, or a number"),
        ("gid=nobody-of-this-name", "expected the name of a group, or a number"),
        ("uid=4294967295", "expected the name of a user, or a number"),
        ("config=logfs.toml", "expected a path from the root"),
        ("remount", "unmount it, then mount it with other options"),
        ("auto_unmount", "to prevent writes below it"),
        ("umask=9", "octal"),
        ("umask=77777", "octal"),
        ("fsname=", "printable"),
        ("isolation.level=committed", "expected one of read_uncommitted, read_committed"),
        ("isolation.level", "it needs a value"),
        ("xyzzy", "has a dot in its name"),
        ("num.partitionz=3", "num.partitions"),
        ("num.partitions=0", "num.partitions"),
    ],
)
def test_anything_else_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(InvalidConfigError, match=hint.replace("?", r"\?")):
        parse_options([text])


def test_options_for_the_kernel() -> None:
    assert kernel_options("/data,1", parse_options(["ro,allow_other,nosuid"])) == {
        "fsname=/data\\,1",
        "subtype=logfs",
        "default_permissions",
        "ro",
        "allow_other",
        "nosuid",
    }
    assert "fsname=logfs" in kernel_options("/dätä", MountOptions())
    assert "fsname=mine" in kernel_options("/data", parse_options(["fsname=mine"]))
