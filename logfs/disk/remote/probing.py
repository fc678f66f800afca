"""Refuses a store that cannot tell writers apart, before anything is stored there.

Some servers accept conditional requests and ignore the condition. With such a store two data
directories could write one partition, and each would delete what the other needs.
"""

import contextlib
import threading

from logfs.disk.remote.objects import ChangedError, ObjectStore
from logfs.errors import InvalidConfigError

PROBE = "logfs-probe-"
"""The beginning of the key of the object that is stored and removed."""
_RACERS = 6
_ADVICE = (
    "Two writers could not be told apart there. Use a store that honors If-Match and "
    "If-None-Match of a PUT: S3, GCS, Azure, versitygw, MinIO, Ceph, SeaweedFS 4.17 or newer"
)


def probe(store: ObjectStore, nonce: bytes) -> None:
    """Store, change, read and remove an object, and check what the store makes of conditions.

    Args:
        store: The store.
        nonce: 16 random bytes.

    Raises:
        InvalidConfigError: The store does not do what ``ObjectStore`` promises.
        OSError: A request failed; see ``ObjectStore``.
    """
    key = PROBE + nonce.hex()
    try:
        _probe(store, key, nonce)
    except Exception:  # not after Ctrl-C: that must not wait again
        with contextlib.suppress(OSError):  # what was found first says more
            store.delete(key)
        raise
    store.delete(key)


def _probe(store: ObjectStore, key: str, nonce: bytes) -> None:
    first = store.create(key, nonce + b" 1")
    try:
        store.create(key, nonce + b" 2")
    except FileExistsError:
        pass
    else:
        raise _refusal(store, "it stored a new object in the place of another (If-None-Match)")
    second = store.swap(key, nonce + b" 3", first)
    try:
        store.swap(key, nonce + b" 4", first)
    except ChangedError:
        pass
    else:
        raise _refusal(store, "it replaced an object that had been changed (If-Match)")
    won = _race(store, key, nonce, second)
    if won > 1:
        raise _refusal(store, f"{won} of {_RACERS} writers replaced the same version (If-Match)")
    data, stat = store.get(key, 1 << 20)
    if not data.startswith(nonce) or bytes(store.get_range(key, 4, 8)) != data[4:12]:
        raise _refusal(store, "it returned other bytes than were stored")
    listed = {(found.key, found.size) for found in store.list_level("").objects}
    if (stat.key, stat.size) not in listed:
        raise _refusal(store, "it did not list an object that had just been stored")


def _race(store: ObjectStore, key: str, nonce: bytes, etag: str) -> int:
    """Return how many of several threads replace the same version."""
    together = threading.Barrier(_RACERS)
    won: list[str] = []
    failed: list[OSError] = []

    def swap(number: int) -> None:
        together.wait()
        try:
            won.append(store.swap(key, nonce + f" race {number}".encode(), etag))
        except ChangedError:
            pass
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=swap, args=(number,)) for number in range(_RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return len(won)


def _refusal(store: ObjectStore, what: str) -> InvalidConfigError:
    return InvalidConfigError(f"{store.url}: {what}. {_ADVICE}")
