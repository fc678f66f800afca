"""Keys of a store are found where AWS's tools find them, and are renewed while a program runs."""

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.s3 import StoreSettings, open_store
from logfs.errors import InvalidConfigError
from tests.processes import wait_until
from tests.remote.accounts import PROFILE, SOURCES, Accounts, Platform, Source
from tests.remote.accounts import accounts as accounts
from tests.remote.accounts import platform as platform
from tests.remote.servers import Bucket

pytestmark = pytest.mark.programs


@pytest.fixture(params=SOURCES)
def source(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
) -> Source:
    """Each source in turn, in the environment of this process."""
    source = SOURCES[request.param](tmp_path, platform)
    use(source, monkeypatch)
    return source


def use(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the environment of this process, which the libraries read."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in source.variables.items():
        monkeypatch.setenv(name, value)


def opened(bucket: Bucket, timeout_s: float = 60) -> ObjectStore:
    """Open a bucket with the keys of this process."""
    settings = StoreSettings(os.environ, time.monotonic, bucket.endpoint, timeout_s=timeout_s)
    return open_store(bucket.url, settings)


def retries_of(store: ObjectStore) -> int:
    """Return how many requests were sent again."""
    return int(getattr(store, "retries"))  # noqa: B009  not part of the protocol


def test_a_key_that_was_renewed_is_used(accounts: Accounts, source: Source) -> None:
    first, second, third = accounts.add(), accounts.add(), accounts.add()
    source.give(first)
    store = opened(accounts.bucket())
    store.put("a", [b"1" * 100])
    source.give(second)
    accounts.remove(first)
    assert bytes(store.get_range("a", 5, 10)) == b"1" * 10
    source.give(third)
    accounts.remove(second)
    store.put("b", [b"2"])
    assert store.create("c", b"3")
    assert [stat.key for stat in store.list_level("").objects] == ["a", "b", "c"]


def test_a_refusal_says_where_the_key_is_from(accounts: Accounts, source: Source) -> None:
    key = accounts.add()
    source.give(key)
    store = opened(accounts.bucket(), timeout_s=0.3)
    accounts.remove(key)
    with pytest.raises(PermissionError, match="InvalidAccessKeyId") as caught:
        store.get("a", 10)
    text = str(caught.value)
    assert source.words in text
    assert f"****{key.access[-4:]}" in text
    assert key.access not in text
    assert key.secret not in text


@pytest.mark.expect_log("Requests wait for a renewed key")
def test_a_request_waits_for_a_renewed_key(
    accounts: Accounts, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    key = accounts.add()
    source.give(key)
    store = opened(accounts.bucket())
    store.put("a", [b"1"])
    accounts.remove(key)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(store.get("a", 10)[0]))
    with caplog.at_level(logging.WARNING):
        reader.start()
        wait_until(lambda: "Requests wait for a renewed key" in caplog.text, "the log says so")
    assert source.words in caplog.text
    assert not found
    source.give(accounts.add())
    reader.join()
    assert found == [b"1"]
    assert key.secret not in caplog.text


def test_a_source_that_has_nothing_for_a_while_keeps_the_key_in_use(
    accounts: Accounts, source: Source
) -> None:
    key = accounts.add()
    source.give(key)
    store = opened(accounts.bucket())
    store.put("a", [b"1"])
    source.give(None)
    assert store.get("a", 10)[0] == b"1"


@pytest.mark.parametrize("source", ["credentials"], indirect=True)
def test_a_renewed_key_in_a_file_costs_no_refusal(accounts: Accounts, source: Source) -> None:
    first = accounts.add()
    source.give(first)
    store = opened(accounts.bucket())
    store.put("a", [b"1"])
    source.give(accounts.add())
    accounts.remove(first)
    assert store.get("a", 10)[0] == b"1"
    assert retries_of(store) == 0


@pytest.mark.parametrize("source", ["credentials"], indirect=True)
def test_a_large_upload_continues_with_a_renewed_key(accounts: Accounts, source: Source) -> None:
    first = accounts.add()
    source.give(first)
    store = opened(accounts.bucket())
    piece = bytes(8 << 20)

    def pieces() -> Iterator[bytes]:
        for number in range(24):
            if number == 16:
                source.give(accounts.add())
                accounts.remove(first)
            yield piece

    store.put("large", pieces())
    assert store.stat("large").size == 24 * len(piece)


def test_a_key_of_the_environment_is_refused_at_once(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = accounts.add()
    variables = {"AWS_ACCESS_KEY_ID": key.access, "AWS_SECRET_ACCESS_KEY": key.secret}
    use(Source(variables, print, ""), monkeypatch)
    store = opened(accounts.bucket(), timeout_s=600)
    store.put("a", [b"1"])
    accounts.remove(key)
    with pytest.raises(PermissionError, match=r"AWS_ACCESS_KEY_ID of the environment. A restart"):
        store.get("a", 10)


def test_the_region_is_that_of_the_profile(
    accounts: Accounts, tmp_path: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SOURCES["config"](tmp_path, platform)
    use(source, monkeypatch)
    source.give(accounts.add())
    with (tmp_path / ".aws" / "config").open("a") as file:
        file.write("region = mars-north-1\n")
    with pytest.raises(OSError, match="mars-north-1"):
        opened(accounts.bucket(), timeout_s=0).get("a", 10)


def test_what_fails_is_said_without_the_output(
    accounts: Accounts, tmp_path: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(SOURCES["process"](tmp_path, platform), monkeypatch)
    (tmp_path / "output").write_text('{"Version": 1, "SecretAccessKey": "abc", oops')
    store = opened(accounts.bucket(), timeout_s=0)
    with pytest.raises(PermissionError, match="no credentials from the profile default") as caught:
        store.get("a", 10)
    assert "abc" not in str(caught.value)
    assert caught.value.filename.endswith("/a")


@pytest.mark.expect_log("Unable to parse config file")
def test_a_file_that_is_half_written_keeps_the_key_in_use(
    accounts: Accounts,
    tmp_path: Path,
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = SOURCES["named"](tmp_path, platform)
    use(source, monkeypatch)
    key = accounts.add()
    source.give(key)
    store = opened(accounts.bucket())
    store.put("a", [b"1"])
    (tmp_path / "keys").write_text(f"aws_secret_access_key = {key.secret}\n[{PROFILE}\n")
    assert store.get("a", 10)[0] == b"1"
    source.give(accounts.add())
    accounts.remove(key)
    assert store.get("a", 10)[0] == b"1"
    assert retries_of(store) == 0
    assert key.secret not in caplog.text


def test_without_botocore_the_platform_gives_keys_and_a_profile_is_refused(
    accounts: Accounts, tmp_path: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    source = SOURCES["container"](tmp_path, platform)
    use(source, monkeypatch)
    (tmp_path / "token").write_text("a token")  # obstore needs one, which containers of EKS have
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    source.give(accounts.add())
    bucket = accounts.bucket()
    opened(bucket).put("a", [b"1"])
    use(SOURCES["named"](tmp_path, platform), monkeypatch)
    with pytest.raises(InvalidConfigError, match="the profile archive: only the library botocore"):
        opened(bucket)


def test_a_key_of_the_environment_needs_no_library(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "botocore"]:
        monkeypatch.delitem(sys.modules, name)
    key = accounts.add()
    variables = {"AWS_ACCESS_KEY_ID": key.access, "AWS_SECRET_ACCESS_KEY": key.secret}
    use(Source(variables, print, ""), monkeypatch)
    opened(accounts.bucket()).put("a", [b"1"])
    assert "botocore" not in sys.modules
