"""The addresses of object stores: s3://BUCKET/PREFIX, gs://... and az://..."""

import contextlib
import ipaddress
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from logfs.errors import InvalidConfigError

_URL = r"(s3|gs|az)://([^/?#]+)(?:/([^?#]*))?"
_MEANT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_RIGHT = re.compile(r"(s3|gs|az)://[^/]|file:///")


class StoreUrl(NamedTuple):
    """The parts of an address of a store.

    Attributes:
        scheme: "s3", "gs" or "az".
        bucket: Bucket, or container.
        prefix: Without "/" at either end; "" for the whole bucket.
    """

    scheme: str
    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


def parse_store_url(url: str) -> StoreUrl:
    """Return the parts of an address such as ``s3://bucket/prefix``.

    Raises:
        InvalidConfigError: It is no address of a store.
    """
    found = re.fullmatch(_URL, url)
    if found is None:
        raise _no_address(url)
    if "@" in found[2]:
        raise InvalidConfigError(
            f"{url}: the name of a bucket has no @; keys are taken from the "
            "environment, or from the files of the store's own tools"
        )
    prefix = (found[3] or "").strip("/")
    if "//" in prefix or {".", ".."} & set(prefix.split("/")):
        raise InvalidConfigError(f"{url}: a prefix has no empty parts, and none named . or ..")
    return StoreUrl(found[1], found[2], prefix)


def refuse_wrong_url(text: str) -> None:
    """Refuse what is meant as an address and is none, such as ``s4://bucket`` and ``s3:/bucket``.

    As a path it would be a directory that the user did not mean.

    Raises:
        InvalidConfigError: It is one. ``./s3:/bucket`` is a path.
    """
    if _MEANT.match(text) and not _RIGHT.match(text):
        raise _no_address(text)


def _no_address(url: str) -> InvalidConfigError:
    return InvalidConfigError(
        f"{url}: it is no address of an object store (s3://BUCKET/PREFIX, gs://…, "
        "az://… or file:///DIRECTORY). The path of a directory with such a name begins with ./"
    )


def is_store_url(text: str) -> bool:
    """Return whether a text is meant as the address of a store, not as a path."""
    return text.startswith(("s3://", "gs://", "az://"))


def refuse_plain_token(endpoint: str | None) -> None:
    """Refuse an endpoint to which a token would go that any machine on the way can read and use.

    Raises:
        InvalidConfigError: It is reached over plain HTTP, and is not this machine.
    """
    if endpoint is None or not endpoint.startswith("http://"):
        return
    host = urlsplit(endpoint).hostname or ""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return
    if host != "localhost":
        raise InvalidConfigError(
            f"endpoint={endpoint}: the credentials have a token, which is not sent over plain HTTP "
            "except to this machine. Use https://, or keys without a token"
        )
