"""The errors of the library obstore as those of the protocol: by its types and its texts.

Only some errors of obstore have their own type. Its texts have the HTTP status, the code and
the message of the store, and what happened to the connection.
"""

import errno
import html
import re
from typing import NamedTuple

from logfs.disk.remote.credentials import NO_CREDENTIALS, CredentialsError
from logfs.disk.remote.objects import ChangedError, NoBucketError

_NO_OBJECT = "there is no such object"
FOREIGN = "the answer is not that of an object store: a proxy or another server gave it"
_REFUSED = "the store refused the credentials"
_SKEWED = "RequestTimeTooSkewed"
_WRONG_CLOCK = "the clocks of this machine and of the store differ by too much; set the wrong one"
_MISSING_STATUS = 404
_MISSING_OBJECTS = frozenset({"NoSuchKey", "NotFound", "BlobNotFound", "ResourceNotFound"})
_MISSING_BUCKETS = frozenset({"NoSuchBucket", "ContainerNotFound"})
_REFUSED_STATUSES = frozenset({401, 403})
_BAD_REQUEST = 400
_KEY_CODES = frozenset({
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken",
    "TokenRefreshRequired", "ExpiredTokenException", "InvalidClientTokenId",
})  # fmt: skip
"""They blame the keys themselves, not what the keys permit. Some come with the status 400."""
_PASSING_STATUSES = frozenset({408, 409, 429})
_SERVER_ERROR = 500

_STATUS = re.compile(r"status code: (\d{3})([^:\n]*)")
_CODE = re.compile(r"<Code>([^<]*)</Code>(?:.*?<Message>([^<]*)</Message>)?", re.DOTALL)
_PAGE = re.compile(r"<(!DOCTYPE|html)\b", re.IGNORECASE)
"""A store answers in XML or JSON."""
_FOREIGN = re.compile(
    r"(ETag|Last-Modified|Content-Length) Header missing|non-partial response when range requested|"
    r"Got invalid \w+ response"
)
_KIND = re.compile(r"\bkind: (\w+)")
_SERVER = re.compile(r"(https?://[^/\s]+)")
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")
_AUTHORITY_ITSELF = "CaUsedAsEndEntity"
_REGION = "; set AWS_REGION to the region of the bucket, or region= where the store is named"
_REGION_CODES = frozenset({"AuthorizationHeaderMalformed", "PermanentRedirect"})
_NO_AUTHORITIES = "No CA certificates were loaded"
"""The library needs some also for servers without TLS."""
_METADATA = re.compile(r"169\.254\.169\.254|fd00:ec2::254|metadata\.google\.internal")
"""The addresses at which machines of the clouds get their credentials."""


class Failure(NamedTuple):
    """Why a request failed.

    Attributes:
        error: The error of the protocol.
        passes: Whether the same request may succeed later.
        refuses: Whether the request may succeed with other credentials.
        blames_keys: Whether the keys in use cannot succeed: they are unknown, or have expired.
    """

    error: OSError
    passes: bool
    refuses: bool = False
    blames_keys: bool = False


def failure_of(error: Exception, address: str) -> Failure:
    """Return the error of the protocol for one that a request has raised.

    Args:
        error: The error of obstore; or of the protocol already, which is returned as it is.
        address: The object, for the error.
    """
    if isinstance(error, CredentialsError):
        return Failure(PermissionError(error.errno, error.strerror, address), passes=False)
    if isinstance(error, OSError) and error.filename == address:
        return Failure(error, passes=False)
    text = str(error)
    found = _STATUS.search(text)
    status = 0 if found is None else int(found[1])
    final = _final(error, text, status, address)
    if final is not None:
        passes = _METADATA.search(text) is not None and _may_pass(status)
        refuses = isinstance(final, PermissionError)
        return Failure(final, passes, refuses, refuses and _blames_keys(text))
    if "kind: Timeout" in text and not status:
        return Failure(TimeoutError(errno.ETIMEDOUT, reason_of(text), address), passes=True)
    passes = _may_pass(status) or (not status and "HTTP error" in text)
    # The answer to a HEAD has no code.
    refuses = status == _BAD_REQUEST and _code_of(text) is None
    return Failure(OSError(errno.EIO, reason_of(text), address), passes, refuses)


def _blames_keys(text: str) -> bool:
    return _code_of(text) in _KEY_CODES


def _code_of(text: str) -> str | None:
    """Return the code of the answer of a store; None if there is none."""
    code = _CODE.search(text)
    return None if code is None else code[1]


def _may_pass(status: int) -> bool:
    return status >= _SERVER_ERROR or status in _PASSING_STATUSES


def _final(error: Exception, text: str, status: int, address: str) -> OSError | None:
    """Return the error that says what is the case; None if the request has simply failed."""
    kind = type(error).__name__
    if kind == "AlreadyExistsError":
        return FileExistsError(errno.EEXIST, "there is such an object already", address)
    if kind == "PreconditionError":
        return ChangedError(address)
    if _METADATA.search(text):
        return PermissionError(errno.EACCES, NO_CREDENTIALS, address)
    if certificate := _CERTIFICATE.search(text):
        why = _AUTHORITY_ITSELF if _AUTHORITY_ITSELF in text else certificate[1]
        return OSError(errno.EIO, _distrust(why, _SERVER.search(text)), address)
    return _refused_or_missing(error, text, status, address)


def _refused_or_missing(error: Exception, text: str, status: int, address: str) -> OSError | None:
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError) or status == _MISSING_STATUS:
        return _missing(text, address)
    if _code_of(text) == _SKEWED:
        return OSError(errno.EIO, f"{_WRONG_CLOCK}: {reason_of(text)}", address)
    is_refused = status in _REFUSED_STATUSES or _blames_keys(text)
    if is_refused or kind in {"PermissionDeniedError", "UnauthenticatedError"}:
        return PermissionError(errno.EACCES, f"{_REFUSED}: {reason_of(text)}", address)
    return None


def _distrust(why: str, server: re.Match[str] | None) -> str:
    """Return why the certificate of a server is refused, by the library's word for it."""
    what = f"the certificate of {server[1] if server else 'the store'} "
    if why.startswith("NotValidForName"):
        return f"{what}is for another host name. Use the name that it is for"
    if why.startswith("Expired"):
        return f"{what}has expired"
    if why == _AUTHORITY_ITSELF:
        return (
            f"{what}is that of an authority ({why}). Give the server one that the authority has "
            "signed (CA:FALSE), and name that of the authority in AWS_CA_BUNDLE"
        )
    return (
        f"{what}is not trusted ({why}). If its authority is a private one, set AWS_CA_BUNDLE to a "
        "file with the certificate of that authority"
    )


def _missing(text: str, address: str) -> OSError:
    """Return what the status 404 means."""
    code = _code_of(text)
    if code is None and _PAGE.search(text):
        return OSError(errno.EIO, f"{FOREIGN} (status 404 with a page)", address)
    if code is None or code in _MISSING_OBJECTS:
        return FileNotFoundError(errno.ENOENT, _NO_OBJECT, address)
    if code in _MISSING_BUCKETS:
        return NoBucketError(address)
    # Some servers answer so if they do not know the user.
    return PermissionError(errno.EACCES, f"{_REFUSED}: {reason_of(text)}", address)


def reason_of(text: str) -> str:
    """Return what a text of the library says, on one line."""
    status = _STATUS.search(text)
    if status is not None:
        words = f"{status[1]}{status[2]}".strip()
        code = _CODE.search(text)
        if code is not None:
            message = " ".join(html.unescape(code[2] or "").split()).rstrip(".")
            words += f" ({code[1]}: {message})" if message else f" ({code[1]})"
            words += _REGION if code[1] in _REGION_CODES else ""
        return words
    line = text.partition("\n")[0]
    if _NO_AUTHORITIES in text:
        return (
            "this machine has no certificates of authorities: install the package ca-certificates, "
            "or set SSL_CERT_FILE to a file with some"
        )
    kind = _KIND.search(text)
    if kind is None:
        foreign = _FOREIGN.search(text)
        return f"{FOREIGN} ({foreign[0]})" if foreign is not None else line
    server = _SERVER.search(line)
    where = f" {server[1]}" if server is not None else ""
    match kind[1]:
        case "Connect":
            return f"no connection to the store{where}"
        case "Timeout":
            return f"no answer from the store{where}"
        case _:
            return f"the connection to the store{where} was lost ({kind[1]})"
