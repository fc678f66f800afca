"""One connection to one broker: TCP, TLS, the login, the versions of both sides, frames.

A ``Connection`` is a blocking socket; one thread uses it at a time, but any may call ``close``.
Requests and answers are those of ``kafka.protocol``. A version is the newest that both sides
know, unless the caller wants an older one.

Several requests may be under way: answers come in the order of the requests.

A login that the broker limits in time (KIP-368) is not repeated on the connection: when that time
is nearly over, ``is_expired`` says so, and the owner makes a new connection.
"""

import contextlib
import errno
import socket
import ssl
import struct
import time
from collections import deque
from typing import Any, TypeAlias

import kafka.errors
from kafka.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from logfs import __version__
from logfs.errors import BrokerError, ClusterRefusedError, ClusterUnreachableError
from logfs.kafka.answers import undecodable
from logfs.kafka.settings import Address, ClientSettings, Identification

UNSUPPORTED_VERSION = 35
Message: TypeAlias = Any
"""A class of ``kafka.protocol``, which are made at run time, or an object of one."""
_MOST_DECODED_BYTES = 16 << 20
"""The largest answer of which objects are made: they take ten times as much memory."""
_LENGTH = struct.Struct(">i")
_FIRST_BUFFER_BYTES = 1 << 20
_NOT_AN_ANSWER = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError,
    TypeError, ValueError, struct.error,
)  # fmt: skip
"""The errors of kafka-python for bytes that are not of the protocol."""
_EXPIRES_EARLY = 0.85
"""Part of the time of a login after which a new connection is made."""


class Connection:
    """A connection that is logged in and knows the broker's versions.

    Raises:
        ClusterUnreachableError: The broker does not answer; waiting may help.
        ClusterRefusedError: It refuses the login, or its certificate is not accepted.

    Attributes:
        address: The address of the connection.
        versions: Oldest and newest version of each kind of request that the broker knows.
    """

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}
        self._settings = settings
        self._number = 0
        self._under_way: deque[int] = deque()
        self._buffer = bytearray(_FIRST_BUFFER_BYTES)
        self._head = bytearray(4)
        self._expires_s: float | None = None
        self._socket = _connect(address, settings)
        try:
            self._learn_versions()
            if settings.uses_sasl:
                self._log_in()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise _unreachable(address, settings, error) from None
            raise

    @property
    def is_expired(self) -> bool:
        """Whether the login is nearly over and a new connection should be made."""
        return self._expires_s is not None and time.monotonic() >= self._expires_s

    def version(self, request: Message, newest: int | None = None, oldest: int = 0) -> int:
        """Return the version of a kind of request to use: the newest that both sides know.

        Args:
            request: A class of ``kafka.protocol``.
            newest: The newest that the caller knows; None: that kafka-python knows.
            oldest: The oldest that the caller knows.

        Raises:
            ClusterRefusedError: There is none.
        """
        known = self.versions.get(request.API_KEY)
        ours = request.max_version if newest is None else min(newest, request.max_version)
        if known is None or min(ours, known[1]) < max(known[0], oldest):
            theirs = "none" if known is None else f"{known[0]} to {known[1]}"
            raise ClusterRefusedError(
                f"{self.address}: {request.__name__}: the broker knows versions {theirs}, logfs "
                f"knows {oldest} to {ours}: update the older of both"
            )
        return int(min(ours, known[1]))

    def send(self, request: Message, version: int) -> None:
        """Send a request whose answer ``receive`` will return.

        Raises:
            OSError: The connection is lost.
        """
        self._number = (self._number + 1) & 0x7FFFFFFF
        request.API_VERSION = version
        request.with_header(correlation_id=self._number, client_id=self._settings.client_id)
        self._socket.sendall(request.encode(framed=True, header=True))
        self._under_way.append(self._number)

    def receive(self, most: int | None = None) -> memoryview:
        """Return the next answer with its header, valid until the next call.

        Args:
            most: The most bytes that are believed; None: ``receive.message.max.bytes``.

        Raises:
            OSError: The connection is lost, or what comes is no answer.
        """
        head = memoryview(self._head)
        self._fill(head)
        (size,) = _LENGTH.unpack(self._head)
        limit = self._settings.receive_message_max_bytes
        limit = limit if most is None else min(limit, most)
        if not 4 <= size <= limit:
            raise OSError(
                errno.EPROTO,
                f"an answer of {size} bytes, expected 4 to {limit}: no Kafka broker, one that "
                "expects TLS, or receive.message.max.bytes is too small",
            )
        if size > len(self._buffer):
            self._buffer = bytearray(size + _FIRST_BUFFER_BYTES)
        view = memoryview(self._buffer)[:size]
        self._fill(view)
        expected = self._under_way.popleft() if self._under_way else None
        (number,) = _LENGTH.unpack_from(view)
        if number != expected:
            raise OSError(errno.EPROTO, f"an answer to request {number}, not {expected}")
        return view

    def call(self, request: Message, response: Message, newest: int | None = None) -> Message:
        """Send a request and return the answer, both of ``kafka.protocol``.

        Raises:
            ClusterRefusedError: The versions do not fit.
            OSError: The connection is lost.
        """
        version = self.version(type(request), newest)
        self.send(request, version)
        return decode(self.receive(_MOST_DECODED_BYTES), response, version)

    def close(self) -> None:
        """Close it; a thread that waits in ``receive`` gets an OSError."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._socket.close()

    # Inside

    def _fill(self, view: memoryview) -> None:
        done, size = 0, len(view)
        while done < size:
            got = self._socket.recv_into(view[done:], size - done)
            if not got:
                raise ConnectionResetError(errno.ECONNRESET, "closed by the broker")
            done += got

    def _learn_versions(self) -> None:
        version = min(3, ApiVersionsRequest.max_version)
        while True:
            request = ApiVersionsRequest(
                client_software_name="logfs", client_software_version=__version__
            )
            self.send(request, version)
            # Its header has no tags in any version, so that old clients can read the error.
            answer = decode(self.receive(), ApiVersionsResponse, version, has_tags=False)
            if answer.error_code == UNSUPPORTED_VERSION and version:
                version = 0
                continue
            check(answer.error_code, f"{self.address}: ApiVersions")
            self.versions = {
                row.api_key: (row.min_version, row.max_version) for row in answer.api_keys
            }
            return

    def _log_in(self) -> None:
        from kafka.net.sasl import get_sasl_mechanism  # it takes long to load

        settings = self._settings
        name = str(settings.sasl_mechanism)
        answer = self.call(SaslHandshakeRequest(mechanism=name), SaslHandshakeResponse, 1)
        if answer.error_code:
            raise ClusterRefusedError(
                f"{self.address}: no login with sasl.mechanism={name}; the broker knows "
                f"{', '.join(answer.mechanisms) or 'none'}"
            )
        login = get_sasl_mechanism(name)(
            host=self.address.host,
            sasl_mechanism=name,
            sasl_plain_username=settings.sasl_username,
            sasl_plain_password=settings.sasl_password,
        )
        lifetime_ms = 0
        while not login.is_done():
            step = SaslAuthenticateRequest(login.auth_bytes())
            answer = self.call(step, SaslAuthenticateResponse, 2)
            if answer.error_code:
                raise ClusterRefusedError(
                    f"{self.address}: the login of {settings.sasl_username} is refused: "
                    f"{answer.error_message or 'no reason given'}"
                )
            try:
                login.receive(answer.auth_bytes)
            except (ValueError, KeyError) as error:
                raise ClusterRefusedError(
                    f"{self.address}: the login of {settings.sasl_username} fails: {error}"
                ) from None
            lifetime_ms = getattr(answer, "session_lifetime_ms", None) or 0
        if lifetime_ms > 0:
            self._expires_s = time.monotonic() + lifetime_ms / 1000 * _EXPIRES_EARLY


def decode(frame: memoryview, response: Message, version: int, *, has_tags: bool = True) -> Message:
    """Decode an answer with its header to a class of ``kafka.protocol``.

    Args:
        frame: The answer.
        response: The class.
        version: The version of the answer.
        has_tags: Its header has tags, if the version is one with tags.

    Raises:
        OSError: It does not decode.
    """
    try:
        head = 4
        if has_tags and response.flexible_version_q(version):
            head += 1  # no tags
        return response.decode(bytes(frame[head:]), version=version)
    except _NOT_AN_ANSWER as error:
        raise undecodable(response.__name__, error) from None


def error_name(code: int) -> str:
    """Return Kafka's name of an error code."""
    if not code:
        return "NONE"
    found = kafka.errors.for_code(code)
    return str(getattr(found, "message", found.__name__))


def error_of(code: int, what: str) -> BrokerError:
    """Return the error for a code; ``what`` begins its message."""
    found = kafka.errors.for_code(code)
    text = str(getattr(found, "description", ""))
    message = f"{what}: {error_name(code)} ({code}){': ' if text else ''}{text}"
    return BrokerError(message, code, is_retriable=bool(found.retriable))


def check(code: int, what: str) -> None:
    """Raise BrokerError unless a code is 0."""
    if code:
        raise error_of(code, what)


def _connect(address: Address, settings: ClientSettings) -> socket.socket:
    timeout_s = settings.socket_connection_setup_timeout_ms / 1000
    try:
        plain = socket.create_connection(address, timeout=timeout_s)
    except OSError as error:
        raise ClusterUnreachableError(f"{address}: {error.strerror or error}") from None
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        found = plain if not settings.uses_tls else _with_tls(plain, address, settings)
        found.settimeout(settings.socket_timeout_ms / 1000)
    except BaseException as error:
        plain.close()
        if isinstance(error, ssl.SSLCertVerificationError):
            raise ClusterRefusedError(
                f"{address}: its certificate is not accepted: {error.verify_message}; see "
                "ssl.ca.location"
            ) from None
        if isinstance(error, OSError):
            raise _unreachable(address, settings, error) from None
        raise
    return found


def _with_tls(plain: socket.socket, address: Address, settings: ClientSettings) -> socket.socket:
    try:
        context = ssl.create_default_context(cafile=settings.ssl_ca_location or None)
        if settings.ssl_certificate_location:
            context.load_cert_chain(
                settings.ssl_certificate_location,
                settings.ssl_key_location or None,
                settings.ssl_key_password or None,
            )
    except OSError as error:
        raise ClusterRefusedError(f"the certificates or the key cannot be used: {error}") from None
    if settings.ssl_endpoint_identification_algorithm is Identification.NONE:
        context.check_hostname = False
    if not settings.enable_ssl_certificate_verification:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain, server_hostname=address.host)


def _unreachable(
    address: Address, settings: ClientSettings, error: OSError
) -> ClusterUnreachableError:
    hint = ""
    if isinstance(error, ssl.SSLError):
        hint = "; does it speak TLS?"
    elif isinstance(error, ConnectionError):
        hint = f"; does it listen for security.protocol={settings.security_protocol}?"
    return ClusterUnreachableError(f"{address}: {error.strerror or error}{hint}")
