"""What may be after ``-o metrics=``."""

import socket
from pathlib import Path

import pytest

from logfs.errors import InvalidConfigError
from logfs.fs.metrics.listener import bound_to, forget, listen_at
from logfs.fs.options import MetricsAddress, parse_options


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("9464", MetricsAddress("127.0.0.1", 9464), "127.0.0.1:9464"),
        ("0", MetricsAddress("127.0.0.1", 0), "127.0.0.1:0"),
        ("0.0.0.0:9464", MetricsAddress("0.0.0.0", 9464), "0.0.0.0:9464"),
        ("[::1]:9464", MetricsAddress("::1", 9464), "[::1]:9464"),
        ("localhost:1", MetricsAddress("localhost", 1), "localhost:1"),
        ("/run/logfs.socket", MetricsAddress("", path="/run/logfs.socket"), "/run/logfs.socket"),
    ],
)
def test_an_address(text: str, address: MetricsAddress, shown: str) -> None:
    assert parse_options([f"metrics={text}"]).metrics == address
    assert str(address) == shown


@pytest.mark.parametrize("text", ["", "x", "65536", ":9464", "::1:9464", "1.2.3.4", "run/x", "-1"])
def test_no_address(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"expected a port, as 9464") as caught:
        parse_options([f"metrics={text}"])
    assert str(caught.value).startswith(f"mount option metrics={text}: ")


def test_off_by_default() -> None:
    assert parse_options([]).metrics is None


def test_port_0_is_reported_as_the_port_it_became() -> None:
    address = MetricsAddress("127.0.0.1", 0)
    with listen_at(address) as listener:
        found = bound_to(address, listener)
        assert found.port == listener.getsockname()[1]
        with socket.create_connection((found.host, found.port)):
            pass


def test_a_file_that_is_no_dead_socket_stays(tmp_path: Path) -> None:
    address = MetricsAddress("", path=str(tmp_path / "file"))
    (tmp_path / "file").write_text("precious")
    with pytest.raises(OSError, match="Address already in use"):
        listen_at(address)
    assert (tmp_path / "file").read_text() == "precious"


def test_a_socket_that_is_listened_at_stays(tmp_path: Path) -> None:
    address = MetricsAddress("", path=str(tmp_path / "socket"))
    with listen_at(address), pytest.raises(OSError, match="Address already in use"):
        listen_at(address)
    listen_at(address).close()  # no listener is left there
    forget(address)
    assert not (tmp_path / "socket").exists()
