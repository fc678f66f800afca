"""A mounted data directory, as the tests of the command line have it."""

from tests.cli.conftest import mounted as mounted
