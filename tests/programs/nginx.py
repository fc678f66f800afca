"""nginx on a Unix socket, and what its access log holds."""

import http.client
import socket
from pathlib import Path

from tests.programs.running import Child, printed


class Nginx:
    """A web server on a Unix socket that writes what the table of programs says.

    Attributes:
        child: Its master process.
    """

    def __init__(self, log: str, directory: Path) -> None:
        self._directory = directory
        self._conf = directory / "nginx.conf"
        paths = "".join(
            f"{kind}_temp_path {directory}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        self._conf.write_text(f"""\
daemon off; pid {directory}/pid; error_log stderr; events {{ }}
http {{ {log} {paths}
  server {{ listen unix:{directory}/socket; location / {{ return 200; }} }} }}
""")
        self.child = Child(["nginx", "-c", str(self._conf)], directory)
        self.child.wait_until((directory / "socket").exists, "nginx listens")

    def get(self, path: str) -> None:
        """Make a request, which is answered."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self._directory / "socket"))
        connection.request("GET", path)
        assert connection.getresponse().status == 200
        connection.close()

    def reopen(self) -> None:
        """Do what ``nginx -s reopen`` does, and wait until it is done."""
        printed(f"nginx -c {self._conf} -s reopen", self._directory)


def requests_in(log: Path) -> list[str]:
    """Return the paths of the requests in an access log that the server wrote."""
    lines = log.read_text().splitlines()
    return [line.split()[6] for line in lines if line.startswith("unix:")]
