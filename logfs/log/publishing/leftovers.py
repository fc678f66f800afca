"""Leftovers of jobs: batches whose publishing was stopped, and files that no job will publish.

    complete   at every start of an owner process: carry out intents
    tidy       at every start, and every hour by a daemon: remove files that are not needed any more

A staged file is removed when the ledger of its query says that the batch is published. A file of an
unpublished batch is removed when it has not changed for ``EXPIRATION_MS``: its job has failed and
was not restarted. If the job is restarted later, it gets an error before any record of the batch is
published. The ledger of a query with one batch is normally removed by its job; otherwise it is
removed after the same time. The ledger of a stream is kept, because the stream may be restarted
from its checkpoint.

Source: Kafka ``transactional.id.expiration.ms``.
"""

import contextlib
import logging
from collections.abc import Iterable

from logfs.disk.vfs import TEMPORARY_SUFFIX, Disk
from logfs.errors import LogfsError
from logfs.log import names
from logfs.log.catalog import Catalog
from logfs.log.partition import PartitionLog
from logfs.log.publishing.ledger import Ledger, ledger_name, read_ledgers
from logfs.log.publishing.publish import PUBLISHING, carry_out, producer_id_of
from logfs.log.publishing.staging import query_key, remove_staged

logger = logging.getLogger(__name__)

EXPIRATION_MS = 7 * 24 * 60 * 60 * 1000
LOOK_INTERVAL_MS = 60 * 60 * 1000


def complete(store: Catalog[PartitionLog], now_ms: int) -> None:
    """Carry out all intents; one that fails is logged, and tried again at the next start."""
    with PUBLISHING:
        _remove_interrupted(store.disk)
        for ledger in read_ledgers(store.disk):
            if ledger.intent is None:
                continue
            batch, query = ledger.intent.batch, ledger.query
            try:
                carry_out(store, ledger, ledger.intent, now_ms)
            except (LogfsError, OSError) as error:
                logger.warning(
                    "batch %d of %s is half published and waits for the next start, or for its "
                    "job: %s", batch, query, error
                )  # fmt: skip
            else:
                logger.info("batch %d of %s was half published: completed", batch, query)


def pending_producers(disk: Disk) -> frozenset[int]:
    """Return the ids of the producers of half published batches.

    They tell how much of a batch was appended, even if retention has deleted that part.
    """
    ledgers = read_ledgers(disk)
    return frozenset(producer_id_of(ledger.query) for ledger in ledgers if ledger.intent)


def tidy(store: Catalog[PartitionLog], logs: Iterable[PartitionLog], now_ms: int) -> bool:
    """Remove files that are not needed any more; returns False if a batch is being published.

    Args:
        store: The store, for its ledgers.
        logs: The partitions in whose directories staged files may be.
        now_ms: The clock.
    """
    if not PUBLISHING.acquire(blocking=False):
        return False
    try:
        ledgers = list(read_ledgers(store.disk))
        for log in logs:
            if log.is_unreadable:
                continue
            with contextlib.suppress(FileNotFoundError):  # the topic was deleted
                _tidy_directory(store.disk, log.directory, ledgers, now_ms)
        for ledger in ledgers:
            name = ledger_name(ledger.query)
            if ledger.is_single and ledger.intent is None:
                _remove_if_old(store.disk, name, now_ms)
    except OSError as error:
        logger.warning("leftovers of jobs could not be removed: %s", error)
    finally:
        PUBLISHING.release()
    return True


def _tidy_directory(disk: Disk, directory: str, ledgers: list[Ledger], now_ms: int) -> None:
    for name in disk.inodes(directory):
        staged = names.parse_staged_file(name)
        if staged is None:
            continue
        path = f"{directory}/{name}"
        ledger = next((x for x in ledgers if query_key(x.query) == staged.query_key), None)
        if ledger is None:
            # An intent in an unreadable ledger may need the file.
            if not disk.exists(names.format_ledger_file(staged.query_key)):
                _remove_if_old(disk, path, now_ms)
        elif staged.batch <= ledger.done:
            remove_staged(disk, path)
        elif not _intends(ledger, name):
            _remove_if_old(disk, path, now_ms)


def _intends(ledger: Ledger, name: str) -> bool:
    shares = () if ledger.intent is None else ledger.intent.shares
    return any(file.name == name for share in shares for file in share.files)


def _remove_if_old(disk: Disk, path: str, now_ms: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if disk.stat(path).mtime_ms < now_ms - EXPIRATION_MS:
            disk.remove(path)
            logger.info("%s belongs to no job any more: removed", path)


def _remove_interrupted(disk: Disk) -> None:
    """Remove the temporary files of interrupted ledger writes; the ledgers are still valid."""
    for name in disk.inodes(""):
        if name.endswith(TEMPORARY_SUFFIX) and names.is_ledger_file(
            name.removesuffix(TEMPORARY_SUFFIX)
        ):
            disk.remove(name)
