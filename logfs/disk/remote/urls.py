"""The addresses of object stores: s3://BUCKET/PREFIX, gs://... and az://..."""

import re
from typing import NamedTuple

from logfs.errors import InvalidConfigError

_URL = r"(s3|gs|az)://([^/?#]+)(?:/([^?#]*))?"


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
        raise InvalidConfigError(
            f"{url}: it is no address of an object store (s3://BUCKET/PREFIX, gs://… or az://…)"
        )
    prefix = (found[3] or "").strip("/")
    if "//" in prefix or {".", ".."} & set(prefix.split("/")):
        raise InvalidConfigError(f"{url}: a prefix has no empty parts, and none named . or ..")
    return StoreUrl(found[1], found[2], prefix)


def is_store_url(text: str) -> bool:
    """Return whether a text is meant as the address of a store, not as a path."""
    return text.startswith(("s3://", "gs://", "az://"))
