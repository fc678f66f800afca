"""The native module; everything else about the build stands in pyproject.toml."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        Extension(
            "logfs.records._native",
            ["logfs/records/_native.pyx"],
            depends=[str(p) for s in ("h", "pxi") for p in Path("logfs/records").glob(f"*.{s}")],
            extra_compile_args=["-O3"],
        ),
    ),
)
