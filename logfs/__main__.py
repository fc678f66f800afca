"""``python -m logfs`` is the command ``logfs``."""

import sys

from logfs.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
