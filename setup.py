"""The native module; everything else about the build stands in pyproject.toml."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        Extension(
            "logfs.records._native",
            ["logfs/records/_native.pyx"],
            depends=["logfs/records/_bytes.h", *map(str, Path("logfs/records").glob("*.pxi"))],
            extra_compile_args=["-O3"],
        ),
    ),
)
