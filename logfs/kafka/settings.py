"""How a cluster is reached: settings under the names of librdkafka, as kcat takes them.

They come from ``-X key=value``, from a file of such lines, or from the table of a ``.toml`` file.
Some keys of Kafka's own tools are translated: ``sasl.jaas.config`` of the Plain and the Scram login
module, and trust and key stores in the format PEM.

A password is never taken from the command line, where every user of the machine sees it, nor from a
file that others may read.
"""

import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Self

from logfs.config.kinds import Boolean, Choice, int_kind
from logfs.config.settings import ConfigKey, Settings, config_keys, setting
from logfs.errors import InvalidConfigError

SCHEME = "kafka://"
DEFAULT_PORT = 9092
_SECRET = ("sasl.password", "ssl.key.password")
_ALIASES = {
    "sasl.mechanisms": "sasl.mechanism",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
_JAAS = re.compile(r"[\w.]*\.(Plain|Scram)LoginModule\s+required\s+(.*?);?\s*$", re.DOTALL)
_JAAS_OPTION = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


class SecurityProtocol(StrEnum):
    """The settings with which a connection begins."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class Mechanism(StrEnum):
    """How a login is done."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class Identification(StrEnum):
    """Whether a certificate must name its host."""

    HTTPS = "https"
    NONE = "none"


class Address(NamedTuple):
    """The address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class _Text:
    """Any text."""

    type_name = "string"
    expected = "text"

    def parse(self, text: str) -> str:
        return text

    def format(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(Settings):
    """The settings of a client; ``from_properties`` makes them of text."""

    noun = "client"

    security_protocol: SecurityProtocol = setting(  # noqa: RUF009 - makes a field
        Choice(SecurityProtocol), SecurityProtocol.PLAINTEXT, "TLS, a login, both or neither"
    )
    sasl_mechanism: Mechanism = setting(  # noqa: RUF009 - makes a field
        Choice(Mechanism), Mechanism.PLAIN, "how the login is done"
    )
    sasl_username: str = setting(_Text(), "", "the user that logs in")
    sasl_password: str = setting(_Text(), "", "the password; in a file only its owner may read")
    sasl_password_file: str = setting(_Text(), "", "a file that holds only the password")
    ssl_ca_location: str = setting(_Text(), "", "certificates that are trusted, a PEM file")
    ssl_certificate_location: str = setting(_Text(), "", "the client's certificate, a PEM file")
    ssl_key_location: str = setting(_Text(), "", "the key of that certificate, a PEM file")
    ssl_key_password: str = setting(_Text(), "", "the password of that key")
    enable_ssl_certificate_verification: bool = setting(
        Boolean(), True, "whether the broker's certificate is checked at all"
    )
    ssl_endpoint_identification_algorithm: Identification = setting(  # noqa: RUF009 - makes a field
        Choice(Identification), Identification.HTTPS, "whether it must name the host"
    )
    client_id: str = setting(_Text(), "logfs", "what brokers call the client in logs and quotas")
    client_rack: str = setting(_Text(), "", "where the client is, for fetching from near replicas")
    fetch_message_max_bytes: int = setting(
        int_kind(1), 1_048_576, "most bytes of one partition in an answer, but for one large batch"
    )
    fetch_max_bytes: int = setting(int_kind(1), 16_777_216, "most bytes in an answer")
    fetch_wait_max_ms: int = setting(int_kind(0), 500, "how long a broker waits for records")
    socket_timeout_ms: int = setting(int_kind(10), 60_000, "how long an answer is waited for")
    socket_connection_setup_timeout_ms: int = setting(
        int_kind(10), 30_000, "how long a connection may take"
    )
    receive_message_max_bytes: int = setting(
        int_kind(1000), 100_000_000, "most bytes of an answer that are believed"
    )
    reconnect_backoff_ms: int = setting(int_kind(1), 100, "first wait after a failure")
    reconnect_backoff_max_ms: int = setting(int_kind(1), 30_000, "longest wait after failures")
    metadata_max_age_ms: int = setting(
        int_kind(1), 300_000, "time from one look for new topics and leaders to the next"
    )
    linger_ms: int = setting(int_kind(0), 5, "how long a small batch waits for more records")

    explicit: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Make the settings of text; reads the password file that they may name.

        Raises:
            InvalidConfigError: A key is unknown, a value not valid, or a file cannot be used.
        """
        own = _translated(properties)
        name = own.get("sasl.password.file")
        if name:
            own["sasl.password"] = read_password(Path(name))
        return cls(**cls._parse(own), explicit=frozenset(own))

    def _check_together(self) -> None:
        if self.uses_sasl and not self.sasl_username:
            raise InvalidConfigError(
                f"security.protocol={self.security_protocol}: expected sasl.username, too"
            )
        if self.sasl_username and not self.uses_sasl:
            raise InvalidConfigError(
                f"sasl.username is given, and security.protocol={self.security_protocol} has no "
                "login: expected SASL_SSL, or SASL_PLAINTEXT on a network that is trusted"
            )

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def uses_sasl(self) -> bool:
        """Whether the client logs in."""
        return self.security_protocol in {
            SecurityProtocol.SASL_PLAINTEXT,
            SecurityProtocol.SASL_SSL,
        }

    @classmethod
    def _rows(cls) -> Mapping[str, ConfigKey]:
        return CLIENT_KEYS

    @classmethod
    def _hints(cls) -> Mapping[str, str]:
        return {
            "ssl.truststore.password": "a PEM trust store has none: ssl.truststore.type=PEM",
            "bootstrap.servers": "the brokers are in --from kafka://HOST:PORT,...",
            "group.id": "logfs needs no consumer group: the end of the local log is its position",
        }

    def __repr__(self) -> str:
        shown = {key: value for key, value in self.overrides().items() if key not in _SECRET}
        return f"ClientSettings({shown})"


CLIENT_KEYS: Mapping[str, ConfigKey] = config_keys(ClientSettings)
"""Every key of a client's settings."""


def parse_bootstrap(text: str) -> tuple[list[Address], str]:
    """Return the brokers of ``kafka://HOST[:PORT],...[/NAME]``, and the name after them.

    Raises:
        InvalidConfigError: It is no such address.
    """
    if not text.startswith(SCHEME):
        raise InvalidConfigError(f"{text!r}: expected kafka://HOST[:PORT],...")
    hosts, _, name = text.removeprefix(SCHEME).partition("/")
    return [_parse_address(part) for part in hosts.split(",")], name


def _parse_address(text: str) -> Address:
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:\s@]+)(?::(\d{1,5}))?", text.strip())
    if found is None or not 0 < int(found[2] or DEFAULT_PORT) < 1 << 16:
        login = ". A login is given with -X or in a file" if "@" in text else ""
        raise InvalidConfigError(f"{text!r}: expected a broker as HOST:PORT{login}")
    return Address(found[1].strip("[]"), int(found[2] or DEFAULT_PORT))


def read_client_file(path: Path) -> dict[str, str]:
    """Return the settings in a file of ``key=value`` lines, as of kcat -F or of Kafka's tools.

    Raises:
        InvalidConfigError: A line is no setting, or others may read a password in it.
        OSError: It cannot be read.
    """
    properties = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        content = line.strip()
        if not content or content[0] in "#!":
            continue
        key, equals, value = content.partition("=")
        if not equals:
            raise InvalidConfigError(f"{path}, line {number}: expected key=value: {key!r}")
        properties[key.strip()] = value.strip()
    if properties.keys() & {*_SECRET, "sasl.jaas.config"}:
        _check_private(path)
    return properties


def parse_options(options: Sequence[str]) -> dict[str, str]:
    """Return the settings of ``-X key=value`` options; a password is refused.

    Raises:
        InvalidConfigError: One is no setting, or holds a password.
    """
    properties = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise InvalidConfigError(f"-X {option}: expected key=value")
        if key in {*_SECRET, "sasl.jaas.config"}:
            raise InvalidConfigError(
                f"-X {key}: every user of the machine can see it there: put it into a file, for "
                "--command-config, or use sasl.password.file"
            )
        properties[key] = value
    return properties


def read_password(path: Path) -> str:
    """Return the password in a file, without a newline at its end.

    Raises:
        InvalidConfigError: The file cannot be read, or others may read it.
    """
    _check_private(path)
    try:
        return path.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfigError(f"{path}: the password cannot be read: {error}") from None


def _check_private(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InvalidConfigError(f"{path}: {error.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidConfigError(
            f"{path} holds a password and has mode {stat.S_IMODE(mode):04o}: expected 0600, "
            "chmod 600 it"
        )


def _translated(properties: Mapping[str, str]) -> dict[str, str]:
    """Return settings under the names of librdkafka."""
    own = {_ALIASES.get(key, key): value for key, value in properties.items()}
    for key in ("security.protocol", "sasl.mechanism"):
        if key in own:
            own[key] = own[key].upper()
    jaas = own.pop("sasl.jaas.config", None)
    if jaas is not None:
        own |= _of_jaas(jaas)
    for kind, keys in _STORES.items():
        place = own.pop(f"ssl.{kind}.location", None)
        form = own.pop(f"ssl.{kind}.type", "JKS")
        if place is not None and form.upper() != "PEM":
            raise InvalidConfigError(
                f"ssl.{kind}.location: a store of type {form} is Java's: expected "
                f"ssl.{kind}.type=PEM, or {keys[0]}"
            )
        if place is not None:
            own |= dict.fromkeys(keys, place)
    if "ssl.endpoint.identification.algorithm" in own:
        own["ssl.endpoint.identification.algorithm"] = (
            own["ssl.endpoint.identification.algorithm"] or "none"
        )
    return own


_STORES = {
    "truststore": ("ssl.ca.location",),
    "keystore": ("ssl.certificate.location", "ssl.key.location"),
}


def _of_jaas(text: str) -> dict[str, str]:
    found = _JAAS.match(text)
    options = dict(_JAAS_OPTION.findall(found[2])) if found else {}
    if not {"username", "password"} <= options.keys():
        raise InvalidConfigError(
            "sasl.jaas.config: expected PlainLoginModule or ScramLoginModule with a username and a "
            "password in double quotes"
        )
    unescaped = {key: re.sub(r"\\(.)", r"\1", value) for key, value in options.items()}
    return {"sasl.username": unescaped["username"], "sasl.password": unescaped["password"]}
