"""Mounting: from a data directory and a mount point to a served file system, and back.

The order at the start: check the paths, clear a dead mount, take the data directory, mount, serve,
and only when a look at the mount from another thread has been answered say READY. At the stop:
no more requests, open files ended (unfinished lines become records), unmount, close the store.

The loop never touches its own mount: it would wait for itself. After an error that ends the loop
the mount is left as it is, dead: an empty directory in its place would look like deleted data.
"""

import ctypes
import json
import logging
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyfuse3
import trio

from logfs.disk.posix import PosixDisk
from logfs.errors import LogfsError
from logfs.fs.errnos import MountError
from logfs.fs.host import LOCAL_ZONE, Clock, current_host, system_clock
from logfs.fs.nodes import Ownership
from logfs.fs.operations import Operations
from logfs.fs.options import MountOptions
from logfs.fs.topics import DEFAULT_UMASK
from logfs.fs.tree import Tree
from logfs.log import names
from logfs.log.store import LogStore

logger = logging.getLogger(__name__)
