"""A file system of one file, whose reads wait until a signal interrupts them: python FILE POINT."""

import errno

from logfs.fs.kernel import hooks
from logfs.fs.kernel.interrupts import InterruptWatch
from tests.fs.onefile import FUSEError, OneFile, serve


class Waits(OneFile):
    """Reads at 0 return at once, all others wait."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupts = InterruptWatch(hooks.loaded())

    async def answer(self) -> bytes:
        with self.interrupts.watched() as interrupted:
            await interrupted.wait()
        raise FUSEError(errno.EINTR)


serve(Waits(), "waits")
