"""Settings of a client, under the names of librdkafka and of Kafka's own tools."""

from pathlib import Path

import pytest

from logfs.errors import InvalidConfigError
from logfs.kafka.settings import (
    Address,
    ClientSettings,
    parse_bootstrap,
    parse_options,
    read_client_file,
)

LOGIN = {"security.protocol": "sasl_ssl", "sasl.username": "me", "sasl.password": "secret"}


def test_names_of_librdkafka_and_their_other_spellings() -> None:
    settings = ClientSettings.from_properties(
        LOGIN | {"sasl.mechanisms": "scram-sha-512", "max.partition.fetch.bytes": "5000"}
    )
    assert settings.sasl_mechanism == "SCRAM-SHA-512"
    assert settings.fetch_message_max_bytes == 5000
    assert settings.uses_tls
    assert settings.uses_sasl


@pytest.mark.parametrize("kind", ["plain.Plain", "scram.Scram"])
def test_the_login_of_a_file_of_kafkas_own_tools(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "# of the console consumer\n"
        "security.protocol=SASL_SSL\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{kind}LoginModule required "
        'username="me" password="a\\"b=c;";\n'
        "ssl.truststore.type=PEM\n"
        "ssl.truststore.location=/etc/ca.pem\n"
    )
    path.chmod(0o600)
    settings = ClientSettings.from_properties(read_client_file(path))
    assert (settings.sasl_username, settings.sasl_password) == ("me", 'a"b=c;')
    assert settings.ssl_ca_location == "/etc/ca.pem"


def test_a_password_of_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("se cret\n")
    path.chmod(0o600)
    properties = {**LOGIN, "sasl.password.file": str(path)}
    del properties["sasl.password"]
    assert ClientSettings.from_properties(properties).sasl_password == "se cret"


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_password_that_others_may_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("sasl.password=x\n")
    path.chmod(mode)
    with pytest.raises(InvalidConfigError, match="chmod 600"):
        read_client_file(path)
    with pytest.raises(InvalidConfigError, match="chmod 600"):
        ClientSettings.from_properties({"sasl.password.file": str(path)})


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(ClientSettings.from_properties(LOGIN))
    with pytest.raises(InvalidConfigError, match="every user of the machine") as caught:
        parse_options(["sasl.password=secret"])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"sasl.user": "x"}, "did you mean sasl.username"),
        ({"group.id": "x"}, "no consumer group"),
        ({"security.protocol": "TLS"}, "expected one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "expected sasl.username"),
        ({"sasl.username": "x"}, "has no login"),
        ({"sasl.jaas.config": "x"}, "PlainLoginModule"),
        ({"ssl.truststore.location": "/x.jks"}, "ssl.truststore.type=PEM, or ssl.ca.location"),
        ({"fetch.max.bytes": "0"}, "a whole number"),
        ({"sasl.password.file": "/nowhere/at/all"}, "/nowhere/at/all"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_right(
    properties: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        ClientSettings.from_properties(properties)


def test_addresses_of_brokers() -> None:
    found, name = parse_bootstrap("kafka://b1:9093,b2,[::1]:9094/web")
    assert found == [Address("b1", 9093), Address("b2", 9092), Address("::1", 9094)]
    assert name == "web"
    assert str(found[2]) == "[::1]:9094"


@pytest.mark.parametrize(
    "text", ["b1:9092", "kafka://", "kafka://b1:0", "kafka://b1:x", "kafka://b1,"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="expected"):
        parse_bootstrap(text)
