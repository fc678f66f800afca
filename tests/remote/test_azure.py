"""What Azure answers in its own way, from a server with answers that were recorded of Azurite."""

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.s3 import StoreSettings, open_store
from tests.remote.httpserver import LoopbackServer

ETAG = "0x23D8121083E2F40"
KEYS = [f"p/{number:02}" for number in range(12)]
MODIFIED = "Tue, 24 Nov 2026 14:22:56 GMT"


MESSAGE = "Server failed to authenticate the request.\nRequestId:1\nTime:2026-11-24"


class Answers(BaseHTTPRequestHandler):
    """Lists have ETags without quotation marks, other answers with them.

    A list that begins after the last object has all objects, as Azurite lists them.
    """

    def do_GET(self) -> None:
        rows = "".join(
            f"<Blob><Name>{key}</Name><Properties><Last-Modified>{MODIFIED}</Last-Modified>"
            f"<Etag>{ETAG}</Etag><Content-Length>1</Content-Length>"
            "<Content-Type>text/plain</Content-Type></Properties></Blob>"
            for key in KEYS
        )
        start = '<EnumerationResults ContainerName="logs"><Prefix>p/</Prefix><Blobs>'
        self._answer(f"{start}{rows}</Blobs><NextMarker/></EnumerationResults>".encode())

    def do_HEAD(self) -> None:
        self._answer(b"1")

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{ETAG}"')
        self.send_header("Last-Modified", MODIFIED)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


class Refusals(BaseHTTPRequestHandler):
    """Requests for one object are refused; those for others are sent nowhere."""

    def do_GET(self) -> None:
        body = b""
        if "refused" in self.path:
            self.send_response(403)
            code = "<Code>AuthenticationFailed</Code>"
            body = f"<Error>{code}<Message>{MESSAGE}</Message></Error>".encode()
        else:
            self.send_response(302)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2021-10-04&sig=hiddensignature")
    with LoopbackServer(Refusals) as server:
        endpoint = f"{server.endpoint}/account"
        yield open_store("az://logs/p", StoreSettings({}, time.monotonic, endpoint, timeout_s=0))


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    with LoopbackServer(Answers) as server:
        endpoint = f"{server.endpoint}/account"
        yield open_store("az://logs/p", StoreSettings({}, time.monotonic, endpoint))


def test_an_object_has_the_same_version_in_lists_and_alone(azure: ObjectStore) -> None:
    assert azure.stat("00") == azure.list_level("").objects[0]


def test_a_list_has_each_object_once(azure: ObjectStore) -> None:
    assert [f"p/{stat.key}" for stat in azure.list_all("")] == KEYS


def test_an_error_is_one_line_without_the_signature(refusing: ObjectStore) -> None:
    for name in ("moved", "refused"):
        with pytest.raises(OSError, match="az://logs/p/") as caught:
            refusing.get(name, 10)
        assert "hiddensignature" not in str(caught.value)
        assert "\n" not in str(caught.value)
