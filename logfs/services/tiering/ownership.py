"""``logfs.owned``: the versions of a partition's head that this data directory wrote.

That in the data directory itself is of the root of its journal.

    two slots of 512 bytes; of the valid ones that with the larger sequence is used
    bytes   field        type
    0-3     magic        "LFTO"
    4-7     version      int32     1; an older logfs refuses a newer file
    8-15    sequence     int64     one more in each write
    16-23   counter      int64     of the version of the head that is known to be in the store
    24-27   state        int32     0; 1: another data directory owns the partition
    28-31   count        int32     of the nonces
    32-     nonces       16 bytes each: of that version, then of the changes that were tried since
    508-511 CRC          uint32    CRC-32C of bytes 0-507

The rule: a head that is not noted here belongs to another directory. It may be a clone of this
machine with the same id, a copy that has taken over, or a daemon that continues after its machine
was taken for dead. Then nothing is changed in the store until ``logfs remote take-over``, whichever
daemon is restarted how often. A nonce is noted before the head with it is sent: after a lost reply
and a kill, the next start knows the head all the same.

The slots are written in their place by turns. So it needs no room on a full disk.
"""

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from logfs.disk.vfs import Disk, is_full
from logfs.errors import UnsupportedFormatError
from logfs.log.names import OWNED
from logfs.records.checksum import crc32c

VERSION = 1
_MAGIC = b"LFTO"
_SLOT = struct.Struct(">4siqqii")
_CRC = struct.Struct(">I")
_SLOT_BYTES = 512
_NONCE_BYTES = 16
_MOST_NONCES = (_SLOT_BYTES - _SLOT.size - _CRC.size) // _NONCE_BYTES


class SwappedVersion(Protocol):
    """A version of an object that is swapped: a head, or the root of a journal."""

    @property
    def nonce(self) -> bytes:
        """16 random bytes."""
        ...

    @property
    def counter(self) -> int:
        """Larger than that of the version before."""
        ...

    @property
    def is_noted(self) -> bool:
        """Whether its writer has noted it before it was sent."""
        ...


class OwnedVersions:
    """The versions of one head that this directory wrote. One thread at a time.

    Args:
        disk: The local disk.
        directory: The partition directory; "": the data directory, for the root of its journal.
        writing: Entered around each change of the file; it raises if there must be none.

    Attributes:
        is_lost: Another data directory owns the partition.
        counter: The counter of the newest version that is known to be in the store; 0: none is
            known.

    Raises:
        UnsupportedFormatError: A newer logfs wrote the file.
        OSError: The disk failed.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        writing: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._disk = disk
        self._name = f"{directory}/{OWNED}" if directory else OWNED
        self._writing = writing
        self._nonces: list[bytes] = []
        self._sequence = 0
        self._is_there = False
        self.is_lost = False
        self.counter = 0
        self._load()

    @property
    def is_new(self) -> bool:
        """Whether this directory has never tried to write a version."""
        return not self._nonces and not self.counter

    def has_written(self, head: SwappedVersion) -> bool:
        """Whether this directory wrote a head, or the head is older than one that it wrote.

        It is taken to have written what an earlier version of logfs wrote: that noted nothing.
        """
        return head.nonce in self._nonces or head.counter < self.counter or not head.is_noted

    def note_stored(self, head: SwappedVersion) -> None:
        """Note, in memory, that a head which this directory wrote is in the store."""
        if head.counter > self.counter:
            self.confirm(head)

    def confirm(self, head: SwappedVersion) -> None:
        """Note, in memory, that a head was written.

        Changes that were tried before it come to nothing: they were for a version that is gone.
        """
        self._nonces, self.counter = [head.nonce], head.counter

    def begin_change(self, nonce: bytes) -> bool:
        """Note durably that a head is going to be sent; returns whether that was possible.

        It is not if the disk is full and there is no file yet. Then the head must not say that it
        was noted: copying may be what makes room.

        Raises:
            OSError: The disk failed; the head must not be sent.
        """
        if len(self._nonces) == _MOST_NONCES:
            del self._nonces[1]
        self._nonces.append(nonce)
        self.is_lost = False
        self._write()
        return self._is_there

    def lose(self) -> None:
        """Note durably that another data directory owns the partition; OSError: the disk failed."""
        if self.is_lost:
            return
        self.is_lost = True
        try:
            self._write()
        except BaseException:
            self.is_lost = False
            raise

    def _load(self) -> None:
        try:
            data = self._disk.read(self._name)
        except FileNotFoundError:
            return
        self._is_there = len(data) == 2 * _SLOT_BYTES
        for start in range(0, len(data) - _SLOT_BYTES + 1, _SLOT_BYTES):
            self._read_slot(data[start : start + _SLOT_BYTES])

    def _read_slot(self, slot: bytes) -> None:
        magic, version, sequence, counter, state, count = _SLOT.unpack_from(slot)
        (crc,) = _CRC.unpack_from(slot, _SLOT_BYTES - _CRC.size)
        if magic != _MAGIC or crc != crc32c(slot[: -_CRC.size]):
            return  # torn by a crash, or not written yet
        if version != VERSION:
            raise UnsupportedFormatError(
                f"{self._name}: version {version}, this logfs reads version {VERSION}: use a newer "
                "logfs"
            )
        if sequence > self._sequence:
            self._sequence, self.counter, self.is_lost = sequence, counter, state != 0
            ends = range(_SLOT.size, _SLOT.size + count * _NONCE_BYTES, _NONCE_BYTES)
            self._nonces = [slot[at : at + _NONCE_BYTES] for at in ends]

    def _write(self) -> None:
        with self._writing():
            slot = self._slot(self._sequence + 1)
            if self._is_there:
                self._write_in_place(slot, (self._sequence + 1) % 2 * _SLOT_BYTES)
            else:
                try:
                    self._disk.replace(self._name, bytes(_SLOT_BYTES) + slot)
                except OSError as error:
                    if is_full(error):
                        return
                    raise
                self._is_there = True
            self._sequence += 1

    def _write_in_place(self, slot: bytes, position: int) -> None:
        file = self._disk.open(self._name, write=True)
        try:
            file.pwrite(slot, position)
            file.sync()
        finally:
            file.close()

    def _slot(self, sequence: int) -> bytes:
        nonces = b"".join(self._nonces)
        state, count = int(self.is_lost), len(self._nonces)
        body = _SLOT.pack(_MAGIC, VERSION, sequence, self.counter, state, count) + nonces
        body = body.ljust(_SLOT_BYTES - _CRC.size, b"\0")
        return body + _CRC.pack(crc32c(body))
