"""Object stores through the library obstore: S3 and what speaks its protocol, GCS, Azure.

    store = open_store("s3://bucket/prefix", StoreSettings(os.environ, time.monotonic))

No other module imports obstore. It is part of the extra ``remote``, and it is imported only when a
store is opened.

A request that failed in a way that can pass is sent again, with a growing pause, until
``timeout_s`` is over: no connection, no progress for 10 s, a body that ends too early, the statuses
408, 409, 429 and 5xx. Uploads in several parts are repeated by obstore, part by part.

After a fork a call of obstore in the child would wait for ever: its threads are in the parent. The
process id is compared before each call.

Credentials for ``s3://``: see ``credentials``. If the store refuses them, and their source has
others, the request is sent again with those. If the store has taken them before and now says that
they are unknown or have expired, requests wait for others until ``timeout_s`` is over; an upload
fails at once, and its caller repeats it. For ``gs://`` and ``az://`` they are obstore's, whose
clients are made again when the file of a key of Google has changed.

Where AWS is meant, and wherever the connection is encrypted, bodies are not signed: TLS protects
them already, and it halves the CPU time of an upload.
"""

import contextlib
import errno
import itertools
import logging
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from logfs.disk.remote.credentials import (
    Credentials,
    SigningKeys,
    find_credentials,
    google_files,
    stamp_of,
)
from logfs.disk.remote.failures import FOREIGN, Failure, failure_of, reason_of
from logfs.disk.remote.foreground import Notice, interruptibly
from logfs.disk.remote.objects import KeyListing, ObjectStat, ObjectStore
from logfs.disk.remote.urls import StoreUrl, parse_store_url, refuse_plain_token
from logfs.disk.vfs import ReadableBuffer, check_size
from logfs.errors import InvalidConfigError

logger = logging.getLogger(__name__)

ONE_PUT_BYTES = 64 << 20
"""Objects up to this size are stored with one request; larger ones in parts."""
_PART_BYTES = 16 << 20
_PARTS_AT_ONCE = 2
_STALLED_S = 10
"""Without progress for so long, a request has failed."""
_SLOW_UPLOAD_S = 300
"""How long one request may take to upload its body: 220 KiB/s with the sizes above. The library
cannot tell whether a body makes progress."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_IDLE_CONNECTIONS = "64"
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
"""An expiry with which obstore asks for the keys of every request."""
_QUIET_S = 60
"""How often the log says that the store refuses the credentials."""
_SPARE_S = 5
"""How long the memory of an upload is kept for the next one."""

_SIGNING_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY")
"""With these requests are signed; other credentials of Azure and those of Google are tokens."""
_PAGE = 1000
_MOST_LISTED = 10_000_000
"""Objects of one answer to a list."""
_NEEDS_EXTRA = (
    "the library obstore is missing: add it with 'sudo make install EXTRAS=remote', or with "
    "'pip install obstore botocore' in an environment of your own"
)

_T = TypeVar("_T")


class StoreSettings(NamedTuple):
    """How to reach a store.

    Attributes:
        environment: That of the process: credentials, and what AWS's tools read of it.
        clock: Seconds, monotonic: ``time.monotonic``.
        endpoint: Address of the server, ``http://`` or ``https://``; None: the cloud's own.
        region: Region of the bucket; None: as in the environment, or ``us-east-1``.
        timeout_s: How long a request is repeated: ``read.timeout.ms``.
    """

    environment: Mapping[str, str]
    clock: Callable[[], float]
    endpoint: str | None = None
    region: str | None = None
    timeout_s: float = 60.0


def open_store(url: str, settings: StoreSettings) -> ObjectStore:
    """Return the store at an address. Sends no request.

    Raises:
        InvalidConfigError: The address is none, a library is missing, a setting is wrong.
    """
    place = parse_store_url(url)
    try:
        import obstore
    except ImportError as error:
        raise InvalidConfigError(f"{url}: {_NEEDS_EXTRA} ({error})") from None
    reading = {"read_timeout": timedelta(seconds=_STALLED_S), "timeout": timedelta(hours=1)}
    uploading = {"timeout": timedelta(seconds=_SLOW_UPLOAD_S)}
    repeat = {
        "max_retries": 1000,
        "retry_timeout": timedelta(seconds=settings.timeout_s),
        "backoff": {"max_backoff": timedelta(seconds=_LONGEST_PAUSE_S)},
    }
    credentials: Credentials | None = None
    if place.scheme == "s3":
        credentials = find_credentials(settings.environment, settings.clock)

    def make() -> tuple[Any, Any]:
        try:
            return (
                _make(place, settings, credentials, reading, {"max_retries": 0}),
                _make(place, settings, credentials, uploading, repeat),
            )
        except (ValueError, obstore.exceptions.BaseError) as error:
            raise InvalidConfigError(f"{url}: {reason_of(str(error))}") from None

    files = google_files(settings.environment) if place.scheme == "gs" else []
    return _Store(obstore, place, settings, credentials, _Clients(make, files))


def _make(
    place: StoreUrl,
    settings: StoreSettings,
    credentials: Credentials | None,
    timeouts: Mapping[str, object],
    repeat: Mapping[str, object],
) -> Any:  # noqa: ANN401
    """Return a store of the library."""
    from obstore import store

    environment = settings.environment
    options: dict[str, object] = {
        "connect_timeout": timedelta(seconds=5),
        "pool_max_idle_per_host": _IDLE_CONNECTIONS,
        **timeouts,
    }
    certificates = environment.get("AWS_CA_BUNDLE")
    if certificates:
        try:
            options["root_certificate"] = _certificates(certificates)
        except OSError as error:
            raise InvalidConfigError(f"AWS_CA_BUNDLE={certificates}: {error.strerror}") from None
    endpoint = settings.endpoint or (_endpoint_of(environment) if place.scheme == "s3" else None)
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise InvalidConfigError(f"endpoint={endpoint}: it has to begin with http:// or https://")
    is_plain = endpoint is not None and endpoint.startswith("http://")
    if is_plain:
        options["allow_http"] = True
    if place.scheme != "s3" and not any(environment.get(name) for name in _SIGNING_KEYS):
        refuse_plain_token(endpoint)
    keywords: dict[str, Any] = {
        "prefix": place.prefix or None,
        "client_options": options,
        "retry_config": repeat,
    }
    if place.scheme == "gs":
        if endpoint is not None:
            keywords["base_url"] = endpoint
        return store.GCSStore(place.bucket, **keywords)
    if endpoint is not None:
        keywords["endpoint"] = endpoint
    if place.scheme == "az":
        return store.AzureStore(place.bucket, **keywords)
    assert credentials is not None
    keywords |= _s3_keywords(settings, credentials, endpoint)
    return store.S3Store(place.bucket, **keywords)


def _certificates(path: str) -> bytes:
    """Return the certificates of authorities in a file."""
    text = Path(path).read_bytes()
    if b"-----BEGIN CERTIFICATE-----" not in text:
        raise InvalidConfigError(f"AWS_CA_BUNDLE={path}: it has no certificate in the format PEM")
    return text


def _endpoint_of(environment: Mapping[str, str]) -> str | None:
    return environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or None


def _s3_keywords(
    settings: StoreSettings, credentials: Credentials, endpoint: str | None
) -> dict[str, Any]:
    environment = settings.environment
    region = settings.region or environment.get("AWS_REGION")
    region = region or environment.get("AWS_DEFAULT_REGION") or credentials.region or "us-east-1"
    keywords: dict[str, Any] = {"region": region, "disable_bulk_delete": True}
    if endpoint is None or not endpoint.startswith("http://"):
        keywords["unsigned_payload"] = True
    if credentials.may_change:
        keywords["credential_provider"] = lambda: _given(credentials.current(), endpoint)
    elif (keys := credentials.current()) is not None:
        keywords["access_key_id"] = keys.access_key_id
        keywords["secret_access_key"] = keys.secret_access_key
        if keys.token is not None:
            refuse_plain_token(endpoint)
            keywords["session_token"] = keys.token
    return keywords


def _given(keys: SigningKeys | None, endpoint: str | None) -> dict[str, object]:
    """Return keys as the library takes them."""
    assert keys is not None
    if keys.token is not None:
        refuse_plain_token(endpoint)
    return {
        "access_key_id": keys.access_key_id,
        "secret_access_key": keys.secret_access_key,
        "token": keys.token,
        "expires_at": _LONG_AGO,
    }


class _Clients:
    """Stores of the library, which are made again when a file of credentials has changed.

    Args:
        make: Makes both.
        files: The files.

    Attributes:
        quick: For requests that are repeated here.
        bulk: Repeats requests by itself.
    """

    def __init__(self, make: Callable[[], tuple[Any, Any]], files: Sequence[str]) -> None:
        self._make = make
        self._files = files
        self._lock = threading.Lock()
        self._seen = stamp_of(files)
        self.quick, self.bulk = make()

    def follow(self) -> bool:
        """Make them again if a file has changed; return whether there are others now."""
        if not self._files or stamp_of(self._files) == self._seen:
            return False
        with self._lock:
            seen = stamp_of(self._files)
            if seen == self._seen:
                return True  # another thread has made them
            self._seen = seen
            try:
                self.quick, self.bulk = self._make()
            except InvalidConfigError as error:
                logger.warning("%s. The previous credentials stay in use", error)
                return False
        return True


class _Store:
    """An ``ObjectStore``; see there.

    Attributes:
        retries: Requests that were sent again.
    """

    def __init__(
        self,
        library: Any,  # noqa: ANN401
        place: StoreUrl,
        settings: StoreSettings,
        credentials: Credentials | None,
        clients: _Clients,
    ) -> None:
        self.retries = 0
        self._library = library
        self._place = place
        self._clock = settings.clock
        self._timeout_s = settings.timeout_s
        self._clients = clients
        self._credentials = credentials
        self._were_taken = False
        self._told_s: float | None = None
        self._process = os.getpid()
        self._buffers = _Buffers()
        # GCS compares generations, the others ETags.
        self._version_name = "version" if place.scheme == "gs" else "e_tag"

    def __repr__(self) -> str:
        return f"open_store({self.url!r})"

    @property
    def url(self) -> str:
        """See ``ObjectStore``."""
        return str(self._place)

    def get(self, key: str, most: int) -> tuple[bytes, ObjectStat]:
        """See ``ObjectStore``."""

        def get() -> tuple[bytes, ObjectStat]:
            found = self._library.get(self._clients.quick, key)
            stat = self._stat(found.meta)
            check_size(stat.size, most, self._address(key))
            return bytes(found.bytes()), stat

        return self._repeat(key, get)

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        """See ``ObjectStore``."""
        address = self._address(key)

        def get() -> memoryview:
            end = start + length
            data = memoryview(
                self._library.get_range(self._clients.quick, key, start=start, end=end)
            )
            if len(data) != length:
                text = f"{len(data)} bytes from byte {start} on, {length} expected"
                raise OSError(errno.EIO, text, address)
            return data

        return self._repeat(key, get)

    def stat(self, key: str) -> ObjectStat:
        """See ``ObjectStore``."""
        return self._repeat(key, lambda: self._stat(self._library.head(self._clients.quick, key)))

    def put(self, key: str, parts: Iterable[ReadableBuffer]) -> None:
        """See ``ObjectStore``. An object of up to 64 MiB is in memory as a whole."""
        source, buffer = _Source(parts), self._buffers.take()
        with memoryview(buffer) as room:
            start = room[: source.fill(room)]

            def put() -> None:
                if source.is_at_end:
                    self._library.put(self._clients.bulk, key, start, use_multipart=False)
                else:
                    self._library.put(
                        self._clients.bulk,
                        key,
                        source.continued(start),
                        chunk_size=_PART_BYTES,
                        max_concurrency=_PARTS_AT_ONCE,
                    )

            try:
                self._once(key, put, is_whole=source.is_at_end)
            except OSError:
                # A request that was given up may still send the buffer: it is not used again.
                if source.error is not None:
                    raise source.error from None
                raise
        self._buffers.give_back(buffer)

    def create(self, key: str, data: ReadableBuffer) -> str:
        """See ``ObjectStore``."""
        return self._put(key, data, "create")

    def swap(self, key: str, data: ReadableBuffer, etag: str) -> str:
        """See ``ObjectStore``."""
        return self._put(key, data, {self._version_name: etag})

    def delete(self, key: str) -> None:
        """See ``ObjectStore``."""
        with contextlib.suppress(FileNotFoundError):  # S3 does not tell, the others do
            self._repeat(key, lambda: self._library.delete(self._clients.quick, key))

    def list_level(self, prefix: str) -> KeyListing:
        """See ``ObjectStore``."""
        found = self._repeat(
            prefix, lambda: self._library.list_with_delimiter(self._clients.quick, prefix or None)
        )
        if not found["common_prefixes"] and not found["objects"]:
            self._check_empty()
        directories = [path.strip("/").rpartition("/")[2] for path in found["common_prefixes"]]
        return KeyListing(sorted(directories), sorted(map(self._stat, found["objects"])))

    def list_all(self, prefix: str) -> Iterator[ObjectStat]:
        """See ``ObjectStore``."""
        directory = prefix.rpartition("/")[0] or None
        last, fresh, repeated = "", 0, 0
        pages: Any = None
        client: Any = None

        def next_page() -> Any:  # noqa: ANN401
            nonlocal pages, client
            if pages is None or client is not self._clients.quick:
                offset, client = last or None, self._clients.quick
                pages = self._library.list(client, directory, offset=offset, chunk_size=_PAGE)
            try:
                return next(pages, None)
            except Exception:
                pages = None  # the next attempt continues after the last object
                raise

        while rows := self._repeat(prefix, next_page):
            for row in rows:
                # Azurite begins again if nothing comes after the offset.
                if row["path"] > last and row["path"].startswith(prefix):
                    yield self._stat(row)
            is_fresh = rows[-1]["path"] > last
            fresh, repeated = (fresh + 1, 0) if is_fresh else (fresh, repeated + 1)
            if repeated > fresh + 1 or fresh * _PAGE > _MOST_LISTED:
                text = f"the store lists objects without an end: {fresh} pages, and more"
                raise OSError(errno.EIO, f"{text}. Check the server", self._address(prefix))
            last = max(last, rows[-1]["path"])
        if not last:
            self._check_empty()

    def _check_empty(self) -> None:
        """See that a list with nothing in it is from a store: any page reads like one.

        Raises:
            OSError: EIO: an object that cannot be there is said to be there. See ``ObjectStore``.
        """
        name = "logfs-no-such-object"
        try:
            self.stat(name)
        except FileNotFoundError:
            return
        raise OSError(errno.EIO, FOREIGN, self._address(name))

    def _put(self, key: str, data: ReadableBuffer, mode: object) -> str:
        found = self._repeat(
            key,
            lambda: self._library.put(
                self._clients.quick, key, data, mode=mode, use_multipart=False
            ),
        )
        return str(found[self._version_name])

    def _address(self, key: str) -> str:
        return f"{self.url}/{key}"

    def _stat(self, row: Mapping[str, Any]) -> ObjectStat:
        modified_ms = int(row["last_modified"].timestamp() * 1000)
        # Lists of GCS have no generations.
        version = row[self._version_name] or row["e_tag"]
        if not version:
            raise OSError(errno.EIO, f"{FOREIGN} (no ETag)", self._address(row["path"]))
        version = str(version)
        if self._place.scheme == "az" and not version.startswith('"'):
            version = f'"{version}"'  # as it is everywhere but in lists of Azure
        return ObjectStat(row["path"], row["size"], version, modified_ms)

    def _once(self, key: str, request: Callable[[], _T], *, is_whole: bool) -> _T:
        """Return what a request returns that the library repeats by itself.

        Args:
            key: The object.
            request: The request.
            is_whole: Whether the body can be sent again from its beginning.
        """
        return self._repeat(key, request, 0, renews=is_whole)

    def _repeat(
        self,
        key: str,
        request: Callable[[], _T],
        timeout_s: float | None = None,
        *,
        renews: bool = True,
    ) -> _T:
        """Return what a request returns that may be sent again, for this time.

        Args:
            key: The object, for errors.
            request: The request.
            timeout_s: For how long; None: ``timeout_s`` of the settings.
            renews: Whether the request may be sent again with other credentials.
        """
        if os.getpid() != self._process:
            text = "a forked process cannot use the store that its parent has opened"
            raise OSError(errno.EIO, text, self._address(key))
        deadline = self._clock() + (self._timeout_s if timeout_s is None else timeout_s)
        pause_s, notice = _FIRST_PAUSE_S, Notice(self._clock, deadline)
        while True:
            keys: SigningKeys | None = None
            try:
                self._clients.follow()
                if self._credentials is not None:
                    keys = self._credentials.current()
                found = interruptibly(request)
            except Exception as error:  # noqa: BLE001  the library has no common base
                failure = failure_of(error, self._address(key))
            else:
                self._were_taken = True
                return found
            if failure.refuses:
                if self._renew(keys) and renews:
                    self.retries += 1
                    continue
                failure = self._refusal(failure, keys)
            if not failure.passes or self._clock() + pause_s >= deadline:
                raise failure.error
            self.retries += 1
            notice.tell(failure.error)
            threading.Event().wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _renew(self, refused: SigningKeys | None) -> bool:
        """Return whether there are other credentials than those that were refused."""
        if self._credentials is None:
            return self._clients.follow()
        return self._credentials.may_change and self._credentials.renew(refused)

    def _refusal(self, failure: Failure, keys: SigningKeys | None) -> Failure:
        """Return why the credentials were refused and where they are from; log it now and then."""
        found, credentials = failure.error, self._credentials
        if keys is None or credentials is None or not isinstance(found, PermissionError):
            return failure
        text = f"{found.strerror}. The key {keys} is from {credentials.source}"
        error = PermissionError(found.errno, text, found.filename)
        waits = failure.blames_keys and credentials.may_change and self._were_taken
        now_s = self._clock()
        if waits and (self._told_s is None or now_s - self._told_s >= _QUIET_S):
            self._told_s = now_s
            logger.warning("%s: %s. Requests wait for a renewed key", self.url, text)
        return Failure(error, failure.passes or waits)


class _Buffers:
    """Memory for objects that are sent with one request, used again. Any thread.

    Memory that a process uses for the first time costs as much processor time as sending it does.
    A buffer that is not used for some seconds is given up.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._spare: list[mmap.mmap] = []
        self._timer: threading.Timer | None = None

    def take(self) -> mmap.mmap:
        """Return a buffer of ``ONE_PUT_BYTES``; what is not filled takes no memory."""
        with self._guard:
            if self._spare:
                return self._spare.pop()
        return mmap.mmap(-1, ONE_PUT_BYTES)

    def give_back(self, buffer: mmap.mmap) -> None:
        """Keep a buffer for the next object."""
        with self._guard:
            self._spare.append(buffer)
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(_SPARE_S, self._give_up)
            self._timer.daemon = True
            self._timer.start()

    def _give_up(self) -> None:
        with self._guard:
            self._spare.clear()


class _Source:
    """The parts of an upload.

    Attributes:
        error: The error that the parts have raised.
        is_at_end: Whether the upload has no more parts.
    """

    def __init__(self, parts: Iterable[ReadableBuffer]) -> None:
        self.error: BaseException | None = None
        self.is_at_end = False
        self._parts = iter(parts)

    def fill(self, room: memoryview) -> int:
        """Copy the first parts, as many as there is room for; returns how many bytes."""
        filled = 0
        for part in self._parts:
            end = filled + len(part)
            if end > len(room):
                self._parts = itertools.chain((part,), self._parts)
                return filled
            room[filled:end] = part
            filled = end
        self.is_at_end = True
        return filled

    def continued(self, start: memoryview) -> Iterator[ReadableBuffer]:
        """Return what was copied and the rest; keeps what the parts raise."""
        yield start
        try:
            yield from self._parts
        except BaseException as error:
            self.error = error
            raise
