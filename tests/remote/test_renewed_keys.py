"""The key of a store is renewed while daemons, commands and Spark use it; no key is ever shown."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mounting import COMMAND, Mount, environment, run, wait_until
from tests.remote.accounts import SOURCES, Accounts, Key, Platform, Source
from tests.remote.accounts import accounts as accounts
from tests.remote.accounts import platform as platform
from tests.remote.servers import Bucket
from tests.remote.test_tiered_mount import (
    append,
    local_logs,
    make_topic,
    mount_error,
    remote_of,
    text,
)

pytestmark = [pytest.mark.fuse, pytest.mark.slow, pytest.mark.programs]
NO_KEYS = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"), "")
RENEWED = ("credentials", "process", "machine")


def usually(name: str) -> pytest.MarkDecorator:
    """Return the sources of a test: this one, and with ``make test-long`` each of them.

    That a key is found and renewed in each of them is what ``test_credentials`` tests.
    """
    sources = [pytest.param(one, marks=[pytest.mark.long] * (one != name)) for one in RENEWED]
    return pytest.mark.parametrize("source", sources, indirect=True)


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path, platform: Platform) -> Source:
    """A source of keys, by its name."""
    (tmp_path / "home").mkdir()
    return SOURCES[request.param](tmp_path / "home", platform)


def tiered(tmp_path: Path, bucket: Bucket, source: Source) -> Mount:
    """Return a mount of a data directory whose daemon finds its key in a source; not started."""
    data = tmp_path / "data"
    data.mkdir()
    settings = "remote.log.manager.task.interval.ms=100\nread.timeout.ms=60000\n"
    (data / "logfs.remote").write_text(bucket.properties + settings)
    return Mount(data, tmp_path / "mnt", variables={**NO_KEYS, **source.variables})


def mounted_bucket(tmp_path: Path, bucket: Bucket, source: Source) -> Mount:
    """Return a mount of a bucket; not started."""
    variables = {**NO_KEYS, **source.variables, "AWS_ENDPOINT_URL": bucket.endpoint}
    return Mount(tmp_path / "none", tmp_path / "b", "ro", variables=variables, url=bucket.url)


@usually("credentials")
def test_a_daemon_copies_and_reads_with_renewed_keys(
    tmp_path: Path, accounts: Accounts, source: Source
) -> None:
    keys = [accounts.add()]
    source.give(keys[0])
    with tiered(tmp_path, accounts.bucket(), source) as mount:
        file = make_topic(mount)
        for number in range(3):
            append(file, text(number * 20_000, 20_000))
            if number:
                keys.append(accounts.add())
                source.give(keys[-1])
                accounts.remove(keys[-2])
            append(file, text(number * 20_000 + 20_000, 0))
        wait_until(lambda: len(local_logs(mount)) == 1, f"the segments went\n{mount.log}")
        assert file.read_bytes() == text(0, 60_000)
        assert remote_of(file)["error"] is None
        keys.append(accounts.add())
        source.give(keys[-1])
        accounts.remove(keys[-2])
        assert Path(f"{file}@offset=100..offset=30000").read_bytes() == text(100, 29_900)
        check_no_key_is_shown(mount, keys)


@usually("machine")
def test_a_daemon_whose_key_has_expired_waits_for_another(
    tmp_path: Path, accounts: Accounts, source: Source
) -> None:
    keys = [accounts.add()]
    source.give(keys[0])
    with tiered(tmp_path, accounts.bucket(), source) as mount:
        file = make_topic(mount)
        append(file, text(0, 30_000))
        wait_until(lambda: len(local_logs(mount)) == 1, f"the segments went\n{mount.log}")
        accounts.remove(keys[0])
        append(file, text(30_000, 30_000))
        wait_until(lambda: source.words in mount_error(file), "the error names the source")
        assert len(local_logs(mount)) > 1
        assert source.words in mount.log
        check_no_key_is_shown(mount, keys)
        with subprocess.Popen(["cat", file], stdout=subprocess.PIPE) as reader:
            wait_until(lambda: "Requests wait for a renewed key" in mount.log, "the log says so")
            keys.append(accounts.add())
            source.give(keys[-1])
            assert reader.communicate()[0] == text(0, 60_000)
            assert reader.returncode == 0
        wait_until(lambda: len(local_logs(mount)) == 1, f"the segments went\n{mount.log}")
        assert file.read_bytes() == text(0, 60_000)
        assert remote_of(file)["error"] is None
        check_no_key_is_shown(mount, keys)


@usually("process")
def test_a_bucket_is_read_with_renewed_keys(
    tmp_path: Path, accounts: Accounts, source: Source
) -> None:
    keys = [accounts.add()]
    source.give(keys[0])
    bucket = accounts.bucket()
    with tiered(tmp_path, bucket, source) as mount:
        file = make_topic(mount)
        append(file, text(0, 60_000))
        wait_until(lambda: len(local_logs(mount)) == 1, f"the segments went\n{mount.log}")
    whole = replace(bucket)
    with mounted_bucket(tmp_path, whole, source) as mount:
        with (mount.point / "orders" / "0").open("rb", buffering=0) as reader:
            found = reader.read(100_000)
            keys.append(accounts.add())
            source.give(keys[-1])
            accounts.remove(keys[-2])
            while part := reader.read(1 << 20):
                found += part
        assert len(found) > 5_000_000
        assert text(0, 60_000).startswith(found)
        check_no_key_is_shown(mount, keys)
    variables = {**NO_KEYS, **source.variables, "AWS_ENDPOINT_URL": bucket.endpoint}
    command = [*COMMAND, "cat", f"{bucket.url}/orders/0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment(**variables), cwd=tmp_path
    ) as cat:
        assert cat.stdout is not None
        printed = cat.stdout.read(100_000)
        assert_not_in([key.secret for key in keys], Path(f"/proc/{cat.pid}/cmdline").read_bytes())
        keys.append(accounts.add())
        source.give(keys[-1])
        accounts.remove(keys[-2])
        printed += cat.stdout.read()
        assert cat.wait() == 0
    assert printed == found


def check_no_key_is_shown(mount: Mount, keys: list[Key]) -> None:
    """See that a secret is nowhere but in the memory of the daemon and in its source."""
    secrets = [key.secret for key in keys]
    point = str(mount.point)
    commands = (["status", point], ["status", "--json", point], ["remote", "status", point])
    for command in (*commands, ["metrics", point]):
        found = run(*COMMAND, *command)
        assert_not_in(secrets, found.stdout + found.stderr)
    assert_not_in(secrets, mount.log.encode())
    for name in ("cmdline", "mountinfo", "status"):
        assert_not_in(secrets, Path(f"/proc/{mount.pid}/{name}").read_bytes())
    for directory in (mount.data, mount.data.with_name(f"{mount.data.name}.cache")):
        for path in directory.rglob("*"):
            if path.is_file():
                assert_not_in(secrets, path.read_bytes())
    for path in mount.point.rglob("*.meta"):
        assert_not_in(secrets, path.read_bytes())
    for name in os.listxattr(point):
        assert_not_in(secrets, os.getxattr(point, name))


def assert_not_in(secrets: list[str], data: bytes) -> None:
    assert not [secret for secret in secrets if secret.encode() in data]
