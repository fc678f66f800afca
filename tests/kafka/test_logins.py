"""TLS and logins with a real broker, right and wrong."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from logfs.errors import ClusterRefusedError, ClusterUnreachableError
from logfs.kafka.cluster import Cluster
from logfs.kafka.settings import ClientSettings, parse_bootstrap
from logfs.records.record import Record
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.mirrors import RunningMirror, plan_for, stored
from tests.mounting import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecureBroker(Broker):
    """A broker that listens for logins over TLS as well, at ``secure``; for ``localhost`` only."""

    secure = ""

    def _write_properties(self) -> None:
        super()._write_properties()
        certificate = self.directory / "certificate.pem"
        if not certificate.exists():
            make_certificate(certificate)
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        self.secure = f"localhost:{port}"
        lines = self._properties.read_text().splitlines()
        of = dict(line.partition("=")[::2] for line in lines)
        name = "listener.name.sasl_ssl"
        changes = {
            "listeners": f"{of['listeners']},SASL_SSL://127.0.0.1:{port}",
            "advertised.listeners": f"{of['advertised.listeners']},SASL_SSL://{self.secure}",
            "listener.security.protocol.map": (
                f"{of['listener.security.protocol.map']},SASL_SSL:SASL_SSL"
            ),
            f"{name}.ssl.keystore.type": "PEM",
            f"{name}.ssl.keystore.location": str(certificate),
            f"{name}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            f"{name}.plain.sasl.jaas.config": f'{PLAIN} required user_me="secret";',
            f"{name}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            "connection.failed.authentication.delay.ms": "10",
        }
        text = "".join(f"{key}={value}\n" for key, value in (of | changes).items())
        self._properties.write_text(text)


def make_certificate(path: Path) -> None:
    """Make a key and a certificate for localhost, one after the other in a file."""
    openssl = shutil.which("openssl")
    assert openssl is not None
    key, certificate = path.with_name("key.pem"), path.with_name("only-certificate.pem")
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    path.write_text(key.read_text() + certificate.read_text())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("secure")) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = UserScramCredentialUpsertion("they", info, b"other")
        for future in admin.alter_user_scram_credentials([wanted]).values():
            future.result(PATIENCE_S)
        client = Client(broker.bootstrap)
        client.create_topic("private")
        client.produce(
            "private", [Record(0, 1_700_000_000_000, None, b"v%d" % n) for n in range(9)]
        )
        yield broker


def properties(broker: SecureBroker, **changes: str) -> dict[str, str]:
    usual = {
        "security.protocol": "SASL_SSL",
        "sasl.username": "me",
        "sasl.password": "secret",
        "ssl.ca.location": str(broker.directory / "only-certificate.pem"),
    }
    return usual | {key.replace("_", "."): value for key, value in changes.items()}


def a_cluster(address: str, properties: dict[str, str]) -> Cluster:
    found = parse_bootstrap(f"kafka://{address}")[0]
    return Cluster(found, ClientSettings.from_properties(properties))


@pytest.mark.parametrize(
    "login",
    [
        {},
        {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "they", "sasl_password": "other"},
    ],
)
def test_a_mirror_with_a_login_over_tls(
    login: dict[str, str], broker: SecureBroker, tmp_path: Path
) -> None:
    plan = plan_for(broker.secure, "private", until_now=True)
    with RunningMirror(tmp_path / "data", plan, **properties(broker, **login)) as running:
        running.wait_for_end()
        assert running.error is None
    assert stored(tmp_path / "data" / "private-0") == stored(broker.partition("private"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sasl_password": "wrong"}, "the login of me is refused: .*[Ii]nvalid"),
        ({"sasl_mechanism": "SCRAM-SHA-512"}, "the login of me is refused"),
        ({"sasl_mechanism": "SCRAM-SHA-256"}, "the broker knows PLAIN, SCRAM-SHA-512"),
        ({"ssl_ca_location": ""}, "certificate is not accepted: self.signed"),
        ({"ssl_ca_location": "/nowhere.pem"}, "cannot be used"),
    ],
)
def test_what_is_wrong_is_refused_with_the_reason(
    changes: dict[str, str], message: str, broker: SecureBroker
) -> None:
    with pytest.raises(ClusterRefusedError, match=message) as caught:
        a_cluster(broker.secure, properties(broker, **changes)).topics(None)
    assert "secret" not in str(caught.value)


def test_a_certificate_of_another_host_is_refused_unless_that_is_wanted(
    broker: SecureBroker,
) -> None:
    address = broker.secure.replace("localhost", "127.0.0.1")
    with pytest.raises(ClusterRefusedError, match=r"not valid for '127\.0\.0\.1'"):
        a_cluster(address, properties(broker)).topics(None)
    changed = properties(broker, ssl_endpoint_identification_algorithm="none")
    cluster = a_cluster(address, changed)
    assert "private" in cluster.topics(None)
    cluster.close()


def test_the_wrong_protocol_is_hinted_at(broker: SecureBroker) -> None:
    with pytest.raises(ClusterUnreachableError, match="expects TLS"):
        a_cluster(broker.secure, {}).topics(None)
    with pytest.raises(ClusterUnreachableError, match="speak TLS"):
        a_cluster(broker.bootstrap, properties(broker)).topics(None)
