"""The place of an object store, if neither the environment nor the directory is to say it."""

from typing import NamedTuple


class StorePlace(NamedTuple):
    """Where a store is; None: as the environment says.

    Attributes:
        endpoint: The address of its server, ``http://`` or ``https://``.
        region: The region of the bucket.
        url: The store of a data directory; None: as its ``logfs.remote`` says.
    """

    endpoint: str | None = None
    region: str | None = None
    url: str | None = None
