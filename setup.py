"""The native modules; everything else about the build is in pyproject.toml."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup


def fuse_flags() -> list[str] | None:
    """Return what the compiler needs to find the headers of libfuse; None if they are not there."""
    command = ["pkg-config", "--cflags", "fuse3"]
    try:
        found = subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return shlex.split(found.stdout)


def extensions() -> list[Extension]:
    """Return what is to be built here."""
    parts = [str(p) for s in ("h", "pxd", "pxi") for p in Path("logfs/records").glob(f"*.{s}")]
    records = [
        Extension(
            f"logfs.records.{path.stem}",
            [str(path)],
            depends=parts,
            extra_compile_args=["-O3", "-Wno-unused-function"],
        )
        for path in sorted(Path("logfs/records").glob("_*.pyx"))
    ]
    syncs = Extension(
        "logfs.disk._syncs",
        ["logfs/disk/_syncs.pyx"],
        depends=["logfs/disk/_syncs.h"],
        extra_compile_args=["-O2", "-pthread"],
        extra_link_args=["-pthread"],
    )
    log_end = Extension(
        "logfs.log.writing._end",
        ["logfs/log/writing/_end.pyx"],
        depends=[
            str(p)
            for directory in ("records", "log/writing")
            for s in ("h", "pxd", "pxi")
            for p in Path("logfs", directory).glob(f"*.{s}")
        ],
        include_dirs=["logfs/records"],
        extra_compile_args=["-O3"],
    )
    modules = [*records, syncs, log_end]
    flags = fuse_flags()
    if flags is None:
        sys.stderr.write(
            "logfs: no headers of libfuse (pkg-config fuse3; Debian: libfuse3-dev): built without "
            "FUSE passthrough\n"
        )
        return cythonize(modules)
    # No Python module, but a library that is loaded into the process before pyfuse3.
    hooks = Extension(
        "logfs.fs.kernel._hooks",
        [str(path) for path in sorted(Path("logfs/fs/kernel/native").glob("*.c"))],
        depends=[
            *(str(path) for path in Path("logfs/fs/kernel/native").glob("*.h")),
            *(str(path) for path in Path("logfs/records").glob("*.h")),
            *("logfs/log/reading/_cursor.h", "logfs/log/writing/_served.h"),
            "logfs/log/writing/_clock.h",
        ],
        extra_compile_args=["-O3", *flags],
        libraries=["dl"],
        optional=True,
    )
    return [*cythonize(modules), hooks]


setup(ext_modules=extensions(), options={"build_ext": {"parallel": os.cpu_count()}})
