"""What logfs needs of an object store: one protocol, and what it promises.

Objects are whole: a reader sees all of one ``put`` or nothing of it. An object is durable when
``put``, ``create`` or ``swap`` returns. A read that begins after that sees it (strong consistency,
as S3, GCS and Azure promise it).

Conditions. If several processes ``create`` one key, exactly one succeeds. If several
``swap`` the same ETag, exactly one succeeds. An ETag may be a hash of the contents: objects with
the same bytes have the same ETag. Contents that are swapped must therefore never repeat, and each
has a nonce.

Lost replies. When ``create``, ``swap``, ``put`` or ``delete`` raises another error than those named
for it, it may have taken effect, now or later. For an object whose key is used only once that makes
no difference. After a ``swap`` the caller reads the object again, and looks for its nonce.

Errors. Everything raises ``OSError``, with the address of the object in ``filename``:

    FileNotFoundError   there is no such object
    NoBucketError       there is no such bucket: it says nothing of an object
    FileExistsError     ``create``: there is one already
    ChangedError        ``swap``: the object is another by now, or gone
    PermissionError     the store refused the credentials; it is not tried again
    TimeoutError        the store did not answer within ``timeout_s``, or it made no progress
    OSError (EIO)       anything else; what can pass has been tried again until ``timeout_s``

Nothing here is async; every call may block, for ``timeout_s`` at most (``put``: without progress).
Any number of threads may use a store. After a fork only the parent may.
"""

import errno
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from logfs.disk.vfs import ReadableBuffer


class ChangedError(OSError):
    """The object is not the one that the caller has read: another process has changed it."""

    def __init__(self, url: str) -> None:
        super().__init__(errno.ESTALE, "another process has changed the object", url)


class NoBucketError(OSError):
    """There is no such bucket; it is no ``FileNotFoundError``, which is about an object."""

    def __init__(self, url: str) -> None:
        super().__init__(errno.ENOENT, "there is no such bucket", url)


class ObjectStat(NamedTuple):
    """What a store knows about an object.

    Attributes:
        key: Its name, relative to the prefix of the store.
        size: In bytes.
        etag: Differs when the contents differ.
        modified_ms: Epoch milliseconds, by the clock of the store.
    """

    key: str
    size: int
    etag: str
    modified_ms: int


class KeyListing(NamedTuple):
    """One level of the keys: what lies directly below a prefix.

    Attributes:
        directories: Next parts of longer keys, without "/", sorted.
        objects: Objects without another "/" after the prefix, sorted by key.
    """

    directories: list[str]
    objects: list[ObjectStat]


class ObjectStore(Protocol):
    """The objects below one prefix of one bucket. Keys are relative to the prefix."""

    @property
    def url(self) -> str:
        """The address, such as ``s3://bucket/prefix``; errors add "/" and the key."""
        ...

    def get(self, key: str, most: int) -> tuple[bytes, ObjectStat]:
        """Return a whole object.

        Args:
            key: The object.
            most: Its largest size in bytes.

        Raises:
            FileNotFoundError: There is none.
            OSError: EFBIG: it is larger. See above for the rest.
        """
        ...

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        """Return the bytes [start, start + length) of an object.

        Args:
            key: The object.
            start: First byte, >= 0.
            length: Bytes, > 0; the range ends within the object.

        Raises:
            FileNotFoundError: There is no such object.
            OSError: EIO: the store returned fewer bytes. See above for the rest.
        """
        ...

    def stat(self, key: str) -> ObjectStat:
        """Describe an object; FileNotFoundError if there is none."""
        ...

    def put(self, key: str, parts: Iterable[ReadableBuffer]) -> None:
        """Store an object under a key that was never used before.

        Args:
            key: The object; its contents are unspecified if two callers put it.
            parts: The contents, each part up to 16 MiB. They are taken one by one: an object of any
                size needs little memory. What ``parts`` raises ends the upload and reaches the
                caller; no object is visible then.
        """
        ...

    def create(self, key: str, data: ReadableBuffer) -> str:
        """Store a new object; return its ETag.

        Raises:
            FileExistsError: There is an object with this key; after a lost reply, perhaps this one.
        """
        ...

    def swap(self, key: str, data: ReadableBuffer, etag: str) -> str:
        """Replace an object that still has this ETag; return the new one.

        Raises:
            ChangedError: It has another one, or there is no such object.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object; nothing happens if there is none."""
        ...

    def list_level(self, prefix: str) -> KeyListing:
        """List one level of keys, with as many requests as there are thousands of names.

        Args:
            prefix: "" or a text that ends with "/".
        """
        ...

    def list_all(self, prefix: str) -> Iterator[ObjectStat]:
        """List all objects whose keys begin with a prefix, in no order."""
        ...
