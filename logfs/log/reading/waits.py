"""Why a read ends early: it would have to wait, or the disk has failed for now."""

import errno

_ENDS_THE_READ = frozenset({errno.EAGAIN, errno.EINTR})


def comes_again(error: OSError) -> bool:
    """Whether a read can leave an error to the next read: the disk or the store has failed.

    An interrupted wait, or one that is not allowed, ends the read at once.
    """
    return error.errno not in _ENDS_THE_READ


class WouldBlockError(Exception):
    """Where aborted records lie is not known yet, and finding out may wait for the disk."""
