"""Accounts of an S3 server, and where a program finds the key of one: as AWS's tools find it.

    def test_…(accounts: Accounts) -> None:
        first = accounts.add()                     # a key that the server knows
        source = SOURCES["process"](tmp_path, platform)
        source.give(first)
        environment = source.variables             # for the program; without any secret
        source.give(accounts.add())                # the key is renewed
        accounts.remove(first)                     # ... and the old one is refused

A ``Platform`` answers as the metadata service of a machine, that of a container, and AWS's service
for web identities do.
"""

import itertools
import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.remote import programs
from tests.remote.httpserver import LoopbackServer
from tests.remote.servers import ACCESS_KEY, SECRET_KEY, Bucket, ObjectServer

PROFILE = "archive"
_NUMBERS = itertools.count(1)


class Key(NamedTuple):
    """A key of an account."""

    access: str
    secret: str


class Accounts:
    """The accounts of a server that may do everything.

    Args:
        server: It has accounts.

    Attributes:
        server: See above.
    """

    def __init__(self, server: ObjectServer) -> None:
        self.server = server
        self._program = programs.found(programs.VERSITYGW)  # it is looked for below HOME

    def add(self) -> Key:
        """Make an account; returns its key."""
        key = Key(f"AKIA{secrets.token_hex(6)}", secrets.token_hex(16))
        self._admin("create-user", "-a", key.access, "-s", key.secret, "-r", "admin")
        return key

    def remove(self, key: Key) -> None:
        """Remove an account: its key is refused from now on."""
        self._admin("delete-user", "-a", key.access)

    def bucket(self) -> Bucket:
        """Make an empty bucket."""
        return self.server.bucket(f"renewed-{next(_NUMBERS)}")

    def _admin(self, *words: str) -> None:
        command = [str(self._program), "admin", "-a", ACCESS_KEY, "-s", SECRET_KEY]
        command += ["--endpoint-url", self.server.endpoint, *words]
        subprocess.run(command, check=True, capture_output=True)


class Platform(LoopbackServer):
    """Services of AWS on loopback that give out one key.

    Attributes:
        key: It; None: every request is answered with 503.
        endpoint: Their address.
    """

    def __init__(self) -> None:
        self.key: Key | None = None
        super().__init__(self._handler())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        platform = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                text = platform._answer(self.path)
                self.send_response_only(503 if text is None else 200)
                body = (text or "").encode()
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_POST = answer  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        return Handler

    def _answer(self, path: str) -> str | None:
        if self.key is None:
            return None
        expiry = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        if path.startswith("/latest/api/token"):
            return "token"
        if path.endswith("/security-credentials/"):
            return "role"
        if path.startswith(("/latest/", "/container")):
            names = {"AccessKeyId": self.key.access, "SecretAccessKey": self.key.secret}
            return json.dumps({"Code": "Success", "Token": "", "Expiration": expiry, **names})
        return (
            '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            "<AssumeRoleWithWebIdentityResult><Credentials>"
            f"<AccessKeyId>{self.key.access}</AccessKeyId>"
            f"<SecretAccessKey>{self.key.secret}</SecretAccessKey><SessionToken></SessionToken>"
            f"<Expiration>{expiry}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
            "</AssumeRoleWithWebIdentityResponse>"
        )


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    """A server with accounts."""
    if programs.server() is not programs.VERSITYGW:
        pytest.skip("this server has no accounts that can be removed")
    with ObjectServer(tmp_path_factory.mktemp("server"), has_accounts=True) as server:
        yield Accounts(server)


@pytest.fixture
def platform() -> Iterator[Platform]:
    """Services that give out keys."""
    with Platform() as platform:
        yield platform


class Source(NamedTuple):
    """Where a program finds a key.

    Attributes:
        variables: Its environment.
        give: Puts another key there; None: it has none for a while.
        words: What an error says of it.
    """

    variables: Mapping[str, str]
    give: Callable[[Key | None], object]
    words: str


def _home(directory: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with a home directory, and nothing else that has a key."""
    (directory / ".aws").mkdir(exist_ok=True)
    missing = {"AWS_EC2_METADATA_DISABLED": "true"}
    return {"HOME": str(directory), **missing, **variables}


def _rows(section: str, key: Key | None) -> str:
    if key is None:
        return f"[{section}]\n"
    return f"[{section}]\naws_access_key_id = {key.access}\naws_secret_access_key = {key.secret}\n"


def _credentials_file(directory: Path, _: Platform) -> Source:
    path = directory / ".aws" / "credentials"
    variables = _home(directory, {})
    words = f"the profile default in {path}"
    return Source(variables, lambda key: _replace(path, _rows("default", key)), words)


def _named_file(directory: Path, _: Platform) -> Source:
    path = directory / "keys"
    variables = {"AWS_SHARED_CREDENTIALS_FILE": str(path), "AWS_PROFILE": PROFILE}
    words = f"the profile {PROFILE} in {path}"
    return Source(
        _home(directory, variables), lambda key: _replace(path, _rows(PROFILE, key)), words
    )


def _config_file(directory: Path, _: Platform) -> Source:
    path = directory / ".aws" / "config"
    variables = _home(directory, {"AWS_PROFILE": PROFILE})
    words = f"the profile {PROFILE} in {path}"
    return Source(variables, lambda key: _replace(path, _rows(f"profile {PROFILE}", key)), words)


def _process(directory: Path, _: Platform) -> Source:
    variables, output = _home(directory, {}), directory / "output"
    command = f"{sys.executable} -c 'print(open(\"{output}\").read())'"
    (directory / ".aws" / "config").write_text(f"[default]\ncredential_process = {command}\n")

    def give(key: Key | None) -> None:
        names = {} if key is None else {"AccessKeyId": key.access, "SecretAccessKey": key.secret}
        _replace(output, json.dumps({"Version": 1, **names}))

    return Source(variables, give, "the credential_process of the profile default")


def _replace(path: Path, text: str) -> None:
    """Write a file that other processes read at any moment: they find all of it, old or new."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def _container(directory: Path, platform: Platform) -> Source:
    address = f"{platform.endpoint}/container"
    variables = _home(directory, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": address})
    return Source(variables, lambda key: setattr(platform, "key", key), "the role of the container")


def _machine(directory: Path, platform: Platform) -> Source:
    variables = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": platform.endpoint}
    variables = _home(directory, {**variables, "AWS_EC2_METADATA_DISABLED": "false"})
    return Source(variables, lambda key: setattr(platform, "key", key), "the role of this machine")


def _web_identity(directory: Path, platform: Platform) -> Source:
    token = directory / "token"
    token.write_text("a token")
    variables = {
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
        "AWS_ENDPOINT_URL_STS": platform.endpoint,
    }
    variables = _home(directory, {**variables, "AWS_ROLE_ARN": "arn:aws:iam::1:role/logfs"})
    words = f"the web identity token {token}"
    return Source(variables, lambda key: setattr(platform, "key", key), words)


SOURCES: Mapping[str, Callable[[Path, Platform], Source]] = {
    "credentials": _credentials_file,
    "named": _named_file,
    "config": _config_file,
    "process": _process,
    "container": _container,
    "machine": _machine,
    "web identity": _web_identity,
}
"""Name -> what makes it, in its own directory."""
