"""A data directory that another user may have written sends no credentials anywhere."""

import os
from pathlib import Path

import pytest

from logfs.disk.posix import PosixDisk
from logfs.disk.remote.s3 import StoreSettings, open_store
from logfs.errors import InvalidConfigError
from logfs.library.remote import store_at
from logfs.log.names import REMOTE
from logfs.log.remote.directory import read_remote_config
from logfs.machine.disks import disk_of
from logfs.machine.storeplace import StorePlace
from logfs.machine.stores import open_directory_store

OTHER = 65534
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize(
    ("owner", "mode", "is_foreign"),
    [
        (0, 0o600, False),
        (0, 0o644, False),
        (0, 0o664, True),
        (0, 0o646, True),
        (OTHER, 0o400, True),
        (OTHER, 0o644, True),
    ],
)
def test_a_store_is_used_if_only_root_and_this_user_may_have_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, *, is_foreign: bool
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / REMOTE
    file.write_text("url=s3://bucket/prefix\nendpoint=http://127.0.0.1:1\n")
    (tmp_path / "meta.properties").write_text("version=1\n")
    os.chown(file, owner, owner)
    file.chmod(mode)
    config = read_remote_config(PosixDisk(str(tmp_path)))
    assert config is not None
    assert config.is_foreign == is_foreign
    for use in (lambda: open_directory_store(config), lambda: store_at(str(tmp_path))):
        if is_foreign:
            with pytest.raises(InvalidConfigError, match=r"another user may have.*chown"):
                use()
        else:
            use()


@pytest.mark.parametrize(
    ("url", "endpoint", "keys", "is_refused"),
    [
        ("s3://b/p", "http://10.1.2.3:9000", KEYS, False),
        ("s3://b/p", "http://10.1.2.3:9000", {**KEYS, "AWS_SESSION_TOKEN": "t"}, True),
        ("s3://b/p", "http://example.org", {**KEYS, "AWS_SESSION_TOKEN": "t"}, True),
        ("s3://b/p", "https://10.1.2.3:9000", {**KEYS, "AWS_SESSION_TOKEN": "t"}, False),
        ("s3://b/p", "http://127.8.8.8:9000", {**KEYS, "AWS_SESSION_TOKEN": "t"}, False),
        ("s3://b/p", "http://[::1]:9000", {**KEYS, "AWS_SESSION_TOKEN": "t"}, False),
        ("s3://b/p", "http://localhost:9000", {**KEYS, "AWS_SESSION_TOKEN": "t"}, False),
        ("s3://b/p", "http://localhost.example.org", {**KEYS, "AWS_SESSION_TOKEN": "t"}, True),
        ("gs://b/p", "http://10.1.2.3", {}, True),
        ("az://b/p", "http://10.1.2.3", {"AZURE_STORAGE_SAS_TOKEN": "sig=x"}, True),
        ("az://b/p", "http://10.1.2.3", {"AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}, False),
    ],
)
def test_tokens_are_not_sent_in_plain_text_to_other_machines(
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    endpoint: str,
    keys: dict[str, str],
    *,
    is_refused: bool,
) -> None:
    environment = {"AZURE_STORAGE_ACCOUNT_NAME": "account", **keys}
    for name, value in environment.items():  # the library reads that of the process
        monkeypatch.setenv(name, value)
    settings = StoreSettings(environment, lambda: 0.0, endpoint)
    if is_refused:
        with pytest.raises(InvalidConfigError, match="not sent over plain HTTP"):
            open_store(url, settings)
    else:
        assert open_store(url, settings).url == url


def test_the_store_that_a_mount_names_is_used(
    tmp_path: Path,
) -> None:
    (tmp_path / REMOTE).write_text("url=s3://bucket/prefix\n")
    (tmp_path / REMOTE).chmod(0o666)
    place = StorePlace("http://127.0.0.1:1", None, "s3://mine/prefix")
    disk = disk_of(str(tmp_path), place)
    assert disk.contents("").files == [REMOTE]
