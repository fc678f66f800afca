"""A daemon of one file, which takes over the mount of another: the hooks without the rest of logfs.

    python -m tests.fs.handover.plain_daemon POINT OUTPUT STATE CONNECTION [stuck] [without-resend]

STATE and CONNECTION are descriptors; a CONNECTION of -1 mounts. The connection is sent through the
socket that is standard input. Written bytes are appended to OUTPUT, and a line is printed for each
request to write or read. A daemon that is stuck answers neither.
"""

import os
import socket
import sys

from logfs.fs.kernel import hooks
from tests.fs.onefile import OneFile, pyfuse3, trio

RESENT = 1 << 63


class Plain(OneFile):
    def __init__(self, library: hooks.Hooks, output: int, *, is_stuck: bool) -> None:
        super().__init__()
        self._hooks = library
        self._output = output
        self._is_stuck = is_stuck

    async def _begin(self, what: str) -> None:
        print(what, self._hooks.request() & ~RESENT, flush=True)
        if self._is_stuck:
            await trio.sleep_forever()

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        await self._begin("write")
        return os.write(self._output, buf)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        await self._begin("read")
        return b"answer"

    async def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        return pyfuse3.StatvfsData()


def main() -> None:
    point, output, state, connection, *words = sys.argv[1:]
    library = hooks.loaded()
    assert library is not None
    library.connection.keep(int(state))
    if "without-resend" in words:
        library.connection.without_resend()
    if int(connection) >= 0:
        library.connection.adopt(int(connection))
    file = os.open(output, os.O_WRONLY | os.O_APPEND)
    pyfuse3.init(Plain(library, file, is_stuck="stuck" in words), point, {"fsname=plain"})
    how = b"adopted" if library.connection.is_adopted else b"mounted"
    with socket.socket(fileno=os.dup(0)) as parent:
        socket.send_fds(parent, [how], [library.connection.descriptor])
    trio.run(pyfuse3.main, 4, 10_000)


if __name__ == "__main__":
    main()
