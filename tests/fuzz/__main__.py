"""See the package."""

import sys

from tests.fuzz.runner import main

sys.exit(main(sys.argv[1:]))
