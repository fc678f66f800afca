"""Why a read ends early: it would have to wait, or the disk has failed for now."""

import errno


def comes_again(error: OSError) -> bool:
    """Whether a read returns what it has, and leaves an error to the next read.

    The disk or the store has failed, or the wait was interrupted: read(2) returns what it has, too.
    A read that must not wait is made again in a thread.
    """
    return error.errno != errno.EAGAIN


class WouldBlockError(Exception):
    """Where aborted records lie is not known yet, and finding out may wait for the disk."""
