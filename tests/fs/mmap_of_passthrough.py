"""A FUSE file that is opened with FOPEN_DIRECT_IO | FOPEN_PASSTHROUGH: read(2) and mmap(2) differ.

Run as root on Linux 6.9 or later: python3 mmap_of_passthrough.py
"""

import ctypes
import mmap
import os
import stat
import struct
import tempfile
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
LOOKUP, GETATTR, OPEN, READ, RELEASE, INIT, FORGET = 1, 3, 14, 15, 18, 26, 2
DIRECT_IO, PASSTHROUGH = 1 << 0, 1 << 7  # FOPEN_*
FLAGS2_PASSTHROUGH, INIT_EXT = 1 << 5, 1 << 30
BACKING_OPEN = 0x4010E501  # _IOW(229, 1, struct fuse_backing_map)
SHOWN, BACKING = b"what the daemon answers\n", b"what is in the backing file\n"


def attributes(node: int) -> bytes:
    kind = stat.S_IFDIR | 0o755 if node == 1 else stat.S_IFREG | 0o644
    return struct.pack("<6Q10I", node, len(SHOWN), 1, 0, 0, 0, 0, 0, 0, kind, 1, 0, 0, 0, 4096, 0)


def serve(device: int, backing: list[int]) -> None:
    while True:
        try:
            request = os.read(device, 1 << 17)
        except OSError:
            return  # unmounted
        _, code, unique, node = struct.unpack_from("<IIQQ", request)
        error, body = 0, b""
        if code == INIT:
            version = 7, 40, 1 << 17, INIT_EXT, 0, 0, 4096, 1, 32, 0, FLAGS2_PASSTHROUGH, 1
            body = struct.pack("<IIIIHHIIHHII", *version) + bytes(24)
        elif code == LOOKUP:
            body = struct.pack("<4Q2I", 2, 0, 0, 0, 0, 0) + attributes(2)
        elif code == GETATTR:
            body = struct.pack("<Q2I", 0, 0, 0) + attributes(node)
        elif code == OPEN:
            body = struct.pack("<QIi", 1, DIRECT_IO | PASSTHROUGH, backing[0])
        elif code == FORGET:
            continue
        elif code == READ:
            offset, size = struct.unpack_from("<8xQI", request, 40)
            body = SHOWN[offset : offset + size]
        elif code != RELEASE:
            error = 38  # ENOSYS
        os.write(device, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)


def main() -> None:
    directory = tempfile.mkdtemp()
    with tempfile.NamedTemporaryFile() as backing:
        backing.write(BACKING)
        backing.flush()
        device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
        if LIBC.mount(b"test", directory.encode(), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), "mount")
        number = [0]
        threading.Thread(target=serve, args=(device, number), daemon=True).start()
        try:
            os.stat(directory)  # after INIT
            backed = struct.pack("<iIQ", backing.fileno(), 0, 0)
            number[0] = LIBC.ioctl(device, ctypes.c_ulong(BACKING_OPEN), backed)
            assert number[0] > 0, os.strerror(ctypes.get_errno())
            file = os.open(f"{directory}/file", os.O_RDONLY)
            print("read:", os.pread(file, 100, 0))
            try:
                with mmap.mmap(file, len(SHOWN), mmap.MAP_PRIVATE, mmap.PROT_READ) as mapped:
                    print("mmap:", mapped[:])
            except OSError as error:
                print("mmap:", error.strerror)
            os.close(file)
        finally:
            LIBC.umount2(directory.encode(), 2)
            os.rmdir(directory)


if __name__ == "__main__":
    main()
