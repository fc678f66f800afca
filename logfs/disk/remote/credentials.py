"""Credentials: from where the tools of a store take them, and renewed while a process runs.

    credentials = find_credentials(os.environ, time.monotonic)
    keys = credentials.current()                  # before each request
    if credentials.renew(keys): ...               # the store refused them: there are others by now

Where they come from, first match: ``AWS_ACCESS_KEY_ID`` of the environment; else the chain of the
library botocore, which is that of AWS's own tools: roles and web identity, single sign-on,
``~/.aws/credentials``, ``credential_process``, ``~/.aws/config``, the container, the machine. It
reads the environment of the process itself. It is imported when it is needed: that takes 0.1 s and
23 MiB. Without it, obstore finds web identity, the container and the machine by itself.

When keys are renewed:

* the files of AWS's tools are read again before the next request once they have changed;
* keys with an expiry are renewed by botocore, 15 minutes before it. If that fails, they are used
  as long as the store takes them;
* if the store refuses keys, their source is asked again at once, long before their expiry too: a
  ``credential_process`` runs again. If it has other keys, the request is sent again with them;
* the environment of a process does not change: those keys need a restart.

Those of ``gs://`` and ``az://`` are found and renewed by obstore. It reads the file of a key of
Google once, so its clients are made again when that file changes: see ``google_files``.

A source that gives nothing, or fails, does not replace the previous keys. No text has a secret or
the command of a process. A key is named by its last four characters, as AWS's tools do it.
"""

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from logfs.errors import InvalidConfigError

logger = logging.getLogger(__name__)

ACCESS_KEY = "AWS_ACCESS_KEY_ID"
NO_CREDENTIALS = (
    "no credentials were found. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE "
    "(for gs:// GOOGLE_APPLICATION_CREDENTIALS), or run on a machine that has a role"
)
_BY_OBSTORE = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_PAUSE_S = 1.0
"""How soon a source is asked again that had no other keys."""
_FAILED_PAUSE_S = 10.0
"""How soon keys are renewed again that expire soon and could not be renewed."""
_SHOWN = 4


class SigningKeys(NamedTuple):
    """The credentials that sign a request; their text has no secret."""

    access_key_id: str
    secret_access_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return f"****{self.access_key_id[-_SHOWN:]}"

    def __str__(self) -> str:
        return repr(self)


class CredentialsError(PermissionError):
    """A source has no credentials, or cannot be asked, and it had none before."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EACCES, text)


class Credentials(Protocol):
    """A source of keys. Any thread; a call may block.

    Attributes:
        region: The region of the profile; None if it has none.
    """

    @property
    def region(self) -> str | None:
        """See above."""
        ...

    @property
    def source(self) -> str:
        """The source of the keys in use, in words, and what renews them."""
        ...

    @property
    def may_change(self) -> bool:
        """Whether the source may have other keys later, in this process."""
        ...

    def current(self) -> SigningKeys | None:
        """Return the keys for the next request; None: obstore finds them by itself.

        Raises:
            CredentialsError: There are none.
        """
        ...

    def renew(self, refused: SigningKeys | None) -> bool:
        """Ask the source again; return whether it has other keys than those that were refused."""
        ...


def find_credentials(environment: Mapping[str, str], clock: Callable[[], float]) -> Credentials:
    """Return the source of the keys of a process. Sends no request.

    Raises:
        InvalidConfigError: A profile is asked for that does not exist; or botocore is needed for it
            and not installed.
    """
    if environment.get(ACCESS_KEY):
        return _OfEnvironment(environment)
    if "AWS_SKIP_SIGNATURE" in environment:
        return _OfObstore()
    try:
        import botocore.session
    except ImportError:
        _check_no_profile(environment)
        return _OfObstore()
    return _OfChain(botocore.session.Session, environment, clock)


def _aws_files(environment: Mapping[str, str]) -> list[str]:
    """Return the paths of the files of AWS's tools, whether they exist or not."""
    files = {"AWS_SHARED_CREDENTIALS_FILE": "credentials", "AWS_CONFIG_FILE": "config"}
    return [
        os.path.expanduser(environment.get(variable) or f"~/.aws/{name}")
        for variable, name in files.items()
    ]


def google_files(environment: Mapping[str, str]) -> list[str]:
    """Return the paths of the files that may have the credentials for ``gs://``."""
    names = (
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_APPLICATION_CREDENTIALS",
    )
    found = [environment[name] for name in names if environment.get(name)]
    return found or [os.path.expanduser("~/.config/gcloud/application_default_credentials.json")]


def stamp_of(files: Iterable[str]) -> object:
    """Return what differs when a file has changed."""
    found: list[tuple[int, int, int] | None] = []
    for path in files:
        try:
            status = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return found


def _check_no_profile(environment: Mapping[str, str]) -> None:
    """Raise InvalidConfigError if the user has a profile."""
    profile = environment.get("AWS_PROFILE")
    files = [path for path in _aws_files(environment) if os.path.exists(path)]
    if profile is None and (not files or any(name in environment for name in _BY_OBSTORE)):
        return
    what = f"the profile {profile}" if profile else files[0]
    raise InvalidConfigError(
        f"{what}: only the library botocore can read the profiles of AWS, and it is not "
        "installed. Run pip install botocore, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )


class _OfEnvironment:
    """The keys of the environment, which stay as they are."""

    may_change = False
    region: str | None = None
    source = f"{ACCESS_KEY} of the environment. A restart of the process takes new ones"

    def __init__(self, environment: Mapping[str, str]) -> None:
        secret = environment.get("AWS_SECRET_ACCESS_KEY", "")
        token = environment.get("AWS_SESSION_TOKEN") or None
        self._keys = SigningKeys(environment[ACCESS_KEY], secret, token)

    def current(self) -> SigningKeys | None:
        """See ``Credentials``."""
        return self._keys

    def renew(self, refused: SigningKeys | None) -> bool:
        """See ``Credentials``."""
        return refused != self._keys


class _OfObstore:
    """The credentials that obstore finds by itself, or none at all."""

    may_change = False
    region: str | None = None
    source = "what the platform gives"

    def current(self) -> SigningKeys | None:
        """See ``Credentials``."""
        return None

    def renew(self, refused: SigningKeys | None) -> bool:
        """See ``Credentials``."""
        return refused is not None


class _OfChain:
    """The chain of botocore."""

    may_change = True

    def __init__(
        self,
        make_session: Callable[[], Any],
        environment: Mapping[str, str],
        clock: Callable[[], float],
    ) -> None:
        self._make_session = make_session
        self._clock = clock
        self._files = _aws_files(environment)
        self._profile = environment.get("AWS_PROFILE") or "default"
        self._web_identity = environment.get("AWS_WEB_IDENTITY_TOKEN_FILE")
        self._lock = threading.Lock()
        self._found: Any = None
        self._keys: SigningKeys | None = None
        self._seen: object = None
        self._in_vain_s: float | None = None
        self._failed_s: float | None = None
        self.region = self._read_region(environment.get("AWS_PROFILE"))

    @property
    def source(self) -> str:
        """See ``Credentials``."""
        profile, files = f"the profile {self._profile}", " or ".join(self._files)
        if self._found is None:
            return f"{profile} in {files}"
        method = str(self._found.method)
        words = {
            "shared-credentials-file": f"{profile} in {self._files[0]}",
            "config-file": f"{profile} in {self._files[1]}",
            "custom-process": f"the credential_process of {profile} in {files}",
            "sso": f"single sign-on of {profile}, which 'aws sso login' renews",
            "login": f"the login of {profile}, which 'aws login' renews",
            "assume-role": f"the role of {profile} in {self._files[1]}",
            "assume-role-with-web-identity": (
                f"the web identity token {self._web_identity or f'of {profile}'}"
            ),
            "container-role": "the role of the container",
            "iam-role": "the role of this machine",
        }
        return words.get(method, method)

    def current(self) -> SigningKeys | None:
        """See ``Credentials``."""
        seen = stamp_of(self._files)
        if self._keys is None or seen != self._seen:
            with self._lock:
                if self._keys is None or seen != self._seen:
                    self._load()
                    self._seen = seen
        return self._freeze()

    def renew(self, refused: SigningKeys | None) -> bool:
        """See ``Credentials``."""
        with self._lock:
            now_s = self._clock()
            is_soon = self._in_vain_s is not None and now_s - self._in_vain_s < _PAUSE_S
            if self._keys == refused and not is_soon:
                with contextlib.suppress(CredentialsError):  # the request has its own error
                    self._load()
                if self._keys == refused:
                    self._in_vain_s = now_s
            return self._keys is not None and self._keys != refused

    def _read_region(self, profile: str | None) -> str | None:
        """Return the region of the profile.

        Raises:
            InvalidConfigError: There is no such profile, or a file does not parse.
        """
        try:
            session = self._make_session()
            profiles = session.available_profiles
        except Exception as error:  # noqa: BLE001  of the library: it has many
            raise InvalidConfigError(f"the files of AWS's tools: {_line(error)}") from None
        if profile is not None and profile not in profiles:
            files = " nor in ".join(self._files)
            raise InvalidConfigError(f"the profile {profile} is neither in {files}")
        region = session.get_config_variable("region")
        return None if region is None else str(region)

    def _load(self) -> None:
        """Ask the source; keep the keys of before if it has none.

        Raises:
            CredentialsError: It has none, and there are none of before.
        """
        try:
            # What a session has read it never reads again.
            found = self._make_session().get_credentials()
            keys = None if found is None else _frozen(found)
        except Exception as error:  # noqa: BLE001  of the library: it has many
            self._fail(error)
            return
        if keys is not None:
            if self._keys is not None and keys != self._keys:
                logger.info("the credentials of the store were renewed: %s is in use now", keys)
            self._found, self._keys = found, keys
        elif self._keys is None:
            raise CredentialsError(NO_CREDENTIALS)

    def _freeze(self) -> SigningKeys | None:
        """Return the keys; botocore renews those that expire soon."""
        if self._failed_s is not None and self._clock() - self._failed_s < _FAILED_PAUSE_S:
            return self._keys
        try:
            keys = _frozen(self._found)
        except Exception as error:  # noqa: BLE001  see above
            self._fail(error)
        else:
            self._failed_s = None
            if keys is not None:
                self._keys = keys
        return self._keys

    def _fail(self, error: Exception) -> None:
        """Note that the source cannot be asked.

        Raises:
            CredentialsError: There are no keys of before.
        """
        text = f"no credentials from {self.source}: {_line(error)}"
        if self._keys is None:
            raise CredentialsError(text) from None
        self._failed_s = self._clock()
        logger.warning("%s. The previous key (%s) stays in use", text, self._keys)


def _frozen(found: Any) -> SigningKeys | None:  # noqa: ANN401
    keys = found.get_frozen_credentials()
    if not keys.access_key or not keys.secret_key:
        return None
    return SigningKeys(keys.access_key, keys.secret_key, keys.token or None)


def _line(error: Exception) -> str:
    """Return what an error says, on one line."""
    return " ".join(str(error).split()) or type(error).__name__
