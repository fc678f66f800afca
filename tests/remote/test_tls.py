"""A store whose server has a certificate of a private authority."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.s3 import StoreSettings, open_store
from logfs.errors import InvalidConfigError
from tests.cli.conftest import Call
from tests.cli.conftest import logfs as logfs
from tests.remote.servers import CREDENTIALS, Bucket, ObjectServer

pytestmark = pytest.mark.programs


class Authority:
    """A private certificate authority.

    Attributes:
        certificate: File of its own certificate.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self.certificate = directory / "authority.pem"
        self._key = directory / "authority.key"
        new: list[str | Path] = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        new += ["-subj", "/CN=A private authority", "-keyout", self._key]
        self._run(*new, "-out", self.certificate)

    def certify(self, name: str) -> tuple[Path, Path]:
        """Make a certificate for a name of a server; returns its file and that of its key."""
        certificate, key = self._directory / "server.pem", self._directory / "server.key"
        request, names = self._directory / "request", self._directory / "names"
        names.write_text(f"subjectAltName={name}\nbasicConstraints=CA:FALSE\n")
        new = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=server"]
        self._run(*new, "-keyout", key, "-out", request)
        signed: list[str | Path] = ["x509", "-req", "-CAcreateserial", "-days", "2"]
        signed += ["-CA", self.certificate, "-CAkey", self._key]
        signed += ["-in", request, "-extfile", names]
        self._run(*signed, "-out", certificate)
        return certificate, key

    def own(self) -> tuple[Path, Path]:
        """Return its own certificate and key, for a server that uses them as its own."""
        return self.certificate, self._key

    def _run(self, *arguments: str | Path) -> None:
        openssl = shutil.which("openssl")
        assert openssl is not None
        subprocess.run([openssl, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "authority")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Bucket]:
    directory = tmp_path_factory.mktemp("tls") / "server"
    with ObjectServer(directory, authority.certify("IP:127.0.0.1")) as server:
        if not server.has_files:
            pytest.skip("needs versitygw")
        yield server.bucket("secure")


def store_of(bucket: Bucket, authority: Authority | None) -> ObjectStore:
    environment = {**CREDENTIALS}
    if authority is not None:
        environment["AWS_CA_BUNDLE"] = str(authority.certificate)
    return open_store(bucket.url, StoreSettings(environment, time.monotonic, bucket.endpoint))


def test_a_store_of_a_private_authority_is_used(secure: Bucket, authority: Authority) -> None:
    store = store_of(secure, authority)
    store.put("a", [b"1"])
    etag = store.create("head", b"one")
    assert store.swap("head", b"two", etag) != etag
    assert store.get("a", 10)[0] == b"1"
    assert {stat.key for stat in store.list_all("")} == {"a", "head"}


def test_a_certificate_of_an_authority_is_none_of_a_server(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    with ObjectServer(tmp_path / "server", authority.own()) as server:
        if not server.has_files:
            pytest.skip("needs versitygw")
        with pytest.raises(OSError, match=r"is that of an authority .*CA:FALSE"):
            store_of(server.bucket("secure"), authority).get("a", 10)


def test_a_bundle_without_certificates_is_told_by_its_variable(
    secure: Bucket, tmp_path: Path
) -> None:
    empty = tmp_path / "bundle"
    empty.write_text("none\n")
    environment = {**CREDENTIALS, "AWS_CA_BUNDLE": str(empty)}
    with pytest.raises(InvalidConfigError, match=f"AWS_CA_BUNDLE={empty}: it has no certificate"):
        open_store(secure.url, StoreSettings(environment, time.monotonic, secure.endpoint))


def test_a_certificate_that_does_not_fit_is_told(
    secure: Bucket, authority: Authority, tmp_path: Path
) -> None:
    for trusted in (None, Authority(tmp_path / "other")):
        with pytest.raises(OSError, match=r"is not trusted .*AWS_CA_BUNDLE") as caught:
            store_of(secure, trusted).get("a", 10)
        assert secure.endpoint in str(caught.value)
    certificate = authority.certify("DNS:other.example")
    with ObjectServer(tmp_path / "misnamed", certificate) as server:
        bucket = server.bucket("b")
        with pytest.raises(OSError, match="is for another host name"):
            store_of(bucket, authority).get("a", 10)


def test_init_tells_at_once_that_a_certificate_is_not_trusted(
    logfs: Call, secure: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    data = tmp_path / "data"
    data.mkdir()
    outcome = logfs("remote", "init", str(data), secure.url, "--endpoint", secure.endpoint)
    assert (outcome.status, outcome.out) == (1, b"")
    assert "AWS_CA_BUNDLE" in outcome.errors[0]
    assert not (data / "logfs.remote").exists()


def test_without_certificates_of_authorities_the_package_is_named(
    logfs: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    outcome = logfs("cat", "s3://logs/web/0")
    assert outcome.status == 1
    assert "ca-certificates" in outcome.errors[0]
