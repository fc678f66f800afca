"""Mounting: from a data directory and a mount point to a served file system, and back.

The start: check the paths, clear a dead mount, lock the data directory, mount, serve. READY is sent
when the kernel has the reply to its first request. The stop: read no more requests, close the open
files (unfinished lines become records), unmount, close the store. A daemon that is restarted leaves
files and mount as they are, for its successor; see ``session``.

The loop never uses its own mount: it would wait for itself. After an error that ends the loop the
mount stays, dead: an empty directory in its place would look like deleted data.
"""

import contextlib
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from datetime import tzinfo
from functools import partial
from logging.handlers import WatchedFileHandler
from pathlib import Path

import pyfuse3
import trio

from logfs import __version__
from logfs.disk.posix import PosixDisk
from logfs.disk.vfs import Disk
from logfs.disk.waiting import forbid_waiting
from logfs.errors import LockedError, LogfsError, MountError
from logfs.fs.files.fsyncs import Fsyncs
from logfs.fs.files.nativewrites import use_native_clock, wake_readers, want_native_thread
from logfs.fs.kernel import hooks
from logfs.fs.kernel.cache import KernelCache
from logfs.fs.kernel.hooks import Hooks
from logfs.fs.kernel.passthrough import Passthrough
from logfs.fs.kernel.permissions import MountOwnership
from logfs.fs.metrics.listener import listening, shown
from logfs.fs.operations.served import Operations
from logfs.fs.operations.topics import DEFAULT_UMASK
from logfs.fs.options import MountOptions, option_words
from logfs.fs.service.commands import ControlCommands
from logfs.fs.service.server import ControlServer, forget_socket, listen
from logfs.fs.session.connection import HANDED_OVER, Session
from logfs.fs.session.fresh import open_fresh, open_standby
from logfs.fs.session.machine import Machine, MountPoints
from logfs.fs.session.supervision import Supervisor
from logfs.fs.session.unmounting import CLOSING_TIMEOUT_S, find_closing
from logfs.fs.threads import run_in_thread, use_threads
from logfs.fs.tree.accesslog import AccessLog, name_of_node
from logfs.fs.tree.tree import Tree
from logfs.fs.upkeep.following import Cache, open_cache
from logfs.fs.upkeep.journaling import heal_from_journal, look_for_owner
from logfs.log import names
from logfs.log.loading.preloading import Preloaded
from logfs.log.store import LogStore
from logfs.machine import mountpoints
from logfs.machine.daemonnote import DaemonNote, format_daemon_note
from logfs.machine.disks import disk_of, is_url, resolve_root
from logfs.machine.host import (
    LOCAL_ZONE,
    Clock,
    current_host,
    raise_descriptor_limit,
    system_clock,
)
from logfs.machine.storeplace import StorePlace
from logfs.machine.terminal import ControllingTerminal
from logfs.records.compression import limit_decompressed
from logfs.services.following.store import AnyStore, FollowedStore
from logfs.services.journaling.standbystore import is_standby

logger = logging.getLogger(__name__)

_DECOMPRESSED_MAX = "logfs.decompressed.max.bytes"
_MAX_REQUESTS = 1 << 20
"""Requests served at the same time, in effect all: waiting reads of ``.follow`` and requests of a
partition whose disk hangs must not use them up."""
_IDLE_WORKERS = 4
_WAIT_AGAIN_S = 0.2
_NOTE_AGAIN_S = 10.0
_GC_THRESHOLD = 10_000
_DRAIN_S = 5.0
_DRAIN_STEP_S = 0.0005


def run_mount(  # noqa: PLR0913 - four of them are rarely given
    data: str,
    mountpoint: str,
    options: MountOptions,
    *,
    ready: Callable[[], None] | None = None,
    progress: Callable[[str], None] | None = None,
    supervisor: Supervisor | None = None,
    machine: Machine | None = None,
) -> int:
    """Mount a data directory and serve it until SIGTERM, SIGINT or an unmount. Blocks.

    SIGHUP reopens log files (``logging.handlers.WatchedFileHandler``). SIGUSR1 gives the mount
    to a successor with new code, SIGUSR2 to one that the service manager starts. A daemon that has
    lost the terminal that it was started from stops like after SIGINT.

    Args:
        data: The data directory, which must exist; or the URL of an object store.
        mountpoint: An existing directory, or the dead mount of an earlier daemon.
        options: See ``options``.
        ready: Called on the loop once the mount answers.
        progress: Called with lines about the progress of a long load.
        supervisor: Reports to the service manager; None if there is none.
        machine: What the mount takes from this machine; None: the real one.

    Returns:
        The exit status: 0 after a clean stop, 1 if serving ended with an error, ``HANDED_OVER`` if
        the mount waits for another daemon.

    Raises:
        MountError: It cannot be mounted there.
        LockedError: Another process has the data directory.
        LogfsError, OSError: The data directory cannot be used.
    """
    machine = machine or Machine()
    data, point = resolve_root(data), machine.points.resolve(mountpoint)
    supervisor = supervisor or Supervisor()
    use_threads(machine.threads)
    if machine.native_clock:
        use_native_clock(hooks.loaded(), machine.native_clock)
    chosen = kernel_options(data, options)
    session = Session(data, point, chosen, supervisor, hooks.loaded(), machine)
    if not session.has_predecessor:
        _check_before(data, point, options, machine.points)
    raise_descriptor_limit()
    terminal = supervisor.terminal
    signal.signal(signal.SIGHUP, lambda *_: _stop_without(terminal))
    supervisor.when_ready = ready
    with listening(options.metrics) as metrics, _ending_on_signal(session):
        status = _open_and_mount(session, options, supervisor, progress, metrics)
    logger.info("stopped", extra={"fields": {"event": "stopped"}})
    return status


def preload(data: str, options: MountOptions) -> Preloaded | None:
    """Read the data directory of a daemon that still serves it.

    None: there is nothing to gain, or it cannot be read, which is reported when it is loaded.
    """
    root = resolve_root(data)
    if options.read_only or is_url(root):
        return None
    try:
        disk = disk_of(root)
    except (LogfsError, OSError):
        return None
    # What an object store has is read once for a disk, so that it would be out of date.
    if not isinstance(disk, PosixDisk):
        return None
    return Preloaded.read(disk, current_host(), system_clock().now_ms())


class _StoppedError(BaseException):
    """SIGTERM came while the successor of another daemon loads the store."""


@contextlib.contextmanager
def _ending_on_signal(session: Session) -> Iterator[None]:
    """Handle SIGTERM until the mount is served, which has its own handlers.

    While the store is loaded it ends this process, as by default, and the mount of a predecessor.
    Later it is kept for the handlers.
    """

    def stop(*_: object) -> None:
        if session.is_adopted or session.is_mounting:
            session.is_stop_wanted = True
        elif session.has_predecessor:
            raise _StoppedError
        else:
            logger.info("ended by SIGTERM before the mount", extra={"fields": {"event": "ended"}})
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
            os._exit(128 + signal.SIGTERM)  # the first process of a container continues by default

    before = signal.signal(signal.SIGTERM, stop)
    try:
        # A holder or a container starts it with these blocked: one before this is not lost.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
        yield
    except _StoppedError:
        session.abandon()
        raise SystemExit(0) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _open_and_mount(
    session: Session,
    options: MountOptions,
    supervisor: Supervisor,
    progress: Callable[[str], None] | None,
    metrics: socket.socket | None,
) -> int:
    data, clock = session.data, session.machine.clock
    keeps_positions = options.read_only and not options.fresh
    cache = open_cache(data, options.cache_dir) if keeps_positions else None
    with supervisor:
        report = _both(progress, supervisor.status)
        store = _open(session, options, cache, report, supervisor.preloaded)
        # Loaded objects stay: a collection that examines ten thousand segments is a long pause.
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD)
        try:
            return _mount(store, session, options, supervisor, metrics)
        finally:
            store.close(clock.now_ms())
            if not session.is_handed_over:
                _forget_daemon(store)
            if cache is not None:
                cache.lock.close()
            session.note_closed()


def _both(
    progress: Callable[[str], None] | None, status: Callable[[str], None]
) -> Callable[[str], None]:
    def report(text: str) -> None:
        status(text)
        if progress is not None:
            progress(text)

    return report


def _open(
    session: Session,
    options: MountOptions,
    cache: Cache | None,
    progress: Callable[[str], None],
    preloaded: Preloaded | None,
) -> AnyStore:
    data, resumed, clock = session.data, session.settling, session.machine.clock
    if _DECOMPRESSED_MAX in options.store.explicit:
        limit_decompressed(options.store.logfs_decompressed_max_bytes)
    host = session.machine.host()
    if options.fresh:
        return open_fresh(data, options, host, clock)
    disk = disk_of(data, StorePlace(options.endpoint, options.region, options.remote))
    if options.read_only:
        kept = None if cache is None else cache.disk
        return FollowedStore.follow(disk, options.store, host, kept, now_ms=clock.now_ms())
    follows = is_standby(disk)
    if not follows:
        look_for_owner(disk)
    if resumed is None and not follows:  # else the machine has run all the time
        heal_from_journal(disk, host)
    deadline_s = time.monotonic() + CLOSING_TIMEOUT_S
    while True:
        try:
            now_ms = clock.now_ms()
            if follows:
                return open_standby(disk, options, host, clock)
            return LogStore.open(
                disk,
                options.store,
                host,
                now_ms=now_ms,
                progress=progress,
                resumed=resumed,
                preloaded=preloaded,
            )
        except LockedError:
            # umount(8) returns when the mount is gone, before the daemon has written everything.
            # So does the kernel with the lock of a predecessor that was killed.
            closing = find_closing(data)
            if (closing is None and resumed is None) or time.monotonic() > deadline_s:
                raise
            process = "the daemon before" if closing is None else f"process {closing}"
            progress(f"{data}: waiting for {process}, which closes it")
            time.sleep(_WAIT_AGAIN_S)


def make_operations(
    store: AnyStore,
    options: MountOptions,
    clock: Clock,
    time_zone: tzinfo = LOCAL_ZONE,
    loaded_hooks: Hooks | None = None,
) -> Operations:
    """Assemble a file system over a store; dates without a zone are in ``time_zone``."""
    ownership = MountOwnership(
        store.attributes,
        os.getuid() if options.uid is None else options.uid,
        os.getgid() if options.gid is None else options.gid,
        DEFAULT_UMASK if options.umask is None else options.umask,
    )
    tree = Tree(store, ownership, time_zone, clock, options.isolation_level)
    return Operations(store, tree, options, clock, loaded_hooks)


def kernel_options(data: str, options: MountOptions) -> set[str]:
    """Return the options for libfuse and the kernel."""
    name = options.fsname or (data if data.isascii() and data.isprintable() else "logfs")
    escaped = name.replace("\\", "\\\\").replace(",", "\\,")
    chosen = {f"fsname={escaped}", f"subtype={mountpoints.SUBTYPE}", "default_permissions"}
    chosen.update(options.kernel)
    if options.allow_other:
        chosen.add("allow_other")
    if options.read_only:
        chosen.add("ro")
    return chosen


def _check_before(data: str, point: str, options: MountOptions, points: MountPoints) -> None:
    if not is_url(data):
        if not Path(data).is_dir():
            raise MountError(f"{data}: no such data directory")
        mountpoints.check_paths(data, point)
    elif not options.read_only:
        raise MountError(f"{data}: an object store can only be mounted read-only: add -o ro")
    if options.fresh and not (options.read_only and is_url(data)):
        raise MountError(f"{data}: fresh is for the URL of an object store, with -o ro")
    points.check(point)
    access_log = options.access_log
    if access_log is not None and Path(os.path.realpath(access_log)).is_relative_to(point):
        raise MountError(f"access_log={access_log}: it lies in the mount whose log it is to be")


def _take_place(data: str, point: str, points: MountPoints) -> None:
    if points.take(data, point):
        logger.info("%s: took away the mount of a daemon that died", point)


def _take_over(operations: Operations, session: Session, clock: Clock) -> None:
    """Continue with the unfinished lines of the predecessor; without its mount they are records."""
    words = None if session.state is None else session.state.words
    writers = {} if session.settling is None else session.settling.writers
    if not session.is_adopted:
        for writer in writers.values():
            writer.close(clock.now_ms())
        writers = {}
    operations.take_over(session.journal, words, writers)


def _mount(
    store: AnyStore,
    session: Session,
    options: MountOptions,
    supervisor: Supervisor,
    metrics: socket.socket | None,
) -> int:
    data, point, machine = session.data, session.point, session.machine
    clock = machine.clock
    loaded_hooks = hooks.loaded()
    if loaded_hooks is not None:
        loaded_hooks.want_passthrough(wanted=not options.no_passthrough)
        if not (options.no_native or options.read_only):
            want_native_thread(loaded_hooks, on_loop=not machine.has_helpers)
    operations = make_operations(store, options, clock, loaded_hooks=loaded_hooks)
    if machine.syncs is not None:
        operations.files.fsyncs = Fsyncs(clock, machine.syncs())
    session.open(operations, lambda: _take_place(data, point, machine.points))
    _take_over(operations, session, clock)
    is_served, owns_directory = False, not (options.read_only or is_url(data))
    try:
        operations.tree.root.facts = {
            "data": data,
            "pid": str(machine.pid),
            "isolation_level": options.isolation_level,
        }
        _note_daemon(store, DaemonNote(machine.pid, point))
        facts = {
            "version": __version__,
            "pid": machine.pid,
            "data": data,
            "mountpoint": point,
            "options": option_words(options),
            "started_ms": clock.now_ms(),
            "was_clean": store.was_clean,
        }
        operations.kept_by = lambda: session.kept_by
        if options.access_log is not None:
            name_of = partial(_name_of, operations)
            operations.access_log = AccessLog(options.access_log, clock.now_ms, name_of)
            operations.files.native.opens = False  # each is noted
        operations.kernel_cache = KernelCache(loaded_hooks if machine.has_helpers else None)
        commands = ControlCommands(store, operations, operations.kernel_cache, clock, facts)
        listener = listen(data, store.disk) if owns_directory else None
        with shown(metrics, options.metrics, commands.metrics, point):
            served = operations, store, session, commands, listener, supervisor
            trio.run(_serve, *served, clock=machine.loop_clock)
        is_served = True
    except Exception:
        logger.exception("serving %s ended; the mount stays until it is unmounted", point)
    finally:
        if operations.access_log is not None:
            operations.access_log.close()
        session.close(unmount=is_served)
        if owns_directory:  # while it is still ours
            forget_socket(store.disk)
    if session.is_handed_over:
        return HANDED_OVER
    return 0 if is_served else 1


def _name_of(operations: Operations, inode: int) -> str | None:
    try:
        return name_of_node(operations.inodes.node(inode))
    except LogfsError:
        return None


async def _serve(
    operations: Operations,
    store: AnyStore,
    session: Session,
    commands: ControlCommands,
    listener: socket.socket | None,
    supervisor: Supervisor,
) -> None:
    note = partial(_note_daemon, store, DaemonNote(session.machine.pid, session.point))
    async with trio.open_nursery() as nursery:
        scope = nursery.cancel_scope
        commands.reload = partial(_reload, operations, session, scope)
        if listener is not None:
            nursery.start_soon(ControlServer(commands.run).run, listener)
        nursery.start_soon(_handle_signals, operations, session, supervisor, nursery)
        nursery.start_soon(operations.tasks.run)
        if operations.access_log is not None:
            nursery.start_soon(operations.access_log.run)
        nursery.start_soon(operations.follow_reads.queues.run)
        nursery.start_soon(wake_readers, operations.hooks, operations.follow_reads.queues)
        nursery.start_soon(operations.cpu_latency.run)
        nursery.start_soon(operations.care_for_inherited)
        nursery.start_soon(supervisor.beat)
        nursery.start_soon(session.watch_holder)
        nursery.start_soon(_keep_daemon_noted, store, note)
        nursery.start_soon(_announce, operations, store, session, supervisor)
        session.wake_polls()
        forbid_waiting()
        await pyfuse3.main(_IDLE_WORKERS, _MAX_REQUESTS)
        forbid_waiting(is_forbidden=False)
        session.stop_serving()
        supervisor.stopping()
        nursery.cancel_scope.cancel()
    if not session.is_handed_over:
        await operations.files.close_all()
        await operations.tasks.journaling.finish()


async def _reload(operations: Operations, session: Session, scope: trio.CancelScope) -> None:
    """Give the mount to a successor with new code.

    Raises:
        MountError: It cannot start; this daemon continues.
    """
    await session.start_successor()
    logger.info("stopping for a reload", extra={"fields": {"event": "reloading"}})
    await _hand_over(operations, session, scope)


async def _try_reload(operations: Operations, session: Session, scope: trio.CancelScope) -> None:
    with contextlib.suppress(MountError):  # the session has logged it
        await _reload(operations, session, scope)


async def _hand_over(operations: Operations, session: Session, scope: trio.CancelScope) -> None:
    """Answer what has been read, except reads that wait, and stop; a successor continues."""
    session.stop_reading()
    with trio.move_on_after(_DRAIN_S) as waiting:
        while session.in_flight > len(operations.interrupts) + session.waiting:  # noqa: ASYNC110 - libfuse replies
            await trio.sleep(_DRAIN_STEP_S)
    if waiting.cancelled_caught:
        logger.warning("%d requests are not answered yet; the next daemon gets them again",
                       session.in_flight)  # fmt: skip
    session.is_handed_over = True
    scope.cancel()


async def _handle_signals(
    operations: Operations, session: Session, supervisor: Supervisor, nursery: trio.Nursery
) -> None:
    scope = nursery.cancel_scope
    stops = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    for other in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        # When they are handled no more, this daemon is ending: another one must not kill it.
        signal.signal(other, signal.SIG_IGN)
    with trio.open_signal_receiver(*stops) as signals:
        if session.is_stop_wanted:  # it came before they were handled
            signal.raise_signal(signal.SIGTERM)
        async for number in signals:
            if number == signal.SIGUSR2 and session.is_kept:
                logger.info("stopping for a restart", extra={"fields": {"event": "restarting"}})
                await _hand_over(operations, session, scope)
                return
            if number == signal.SIGUSR1:
                nursery.start_soon(_try_reload, operations, session, scope)
                continue
            if number == signal.SIGHUP and not supervisor.terminal.is_lost:
                _reopen_log_files()
                continue
            name = signal.Signals(number).name
            logger.info("stopping after %s", name, extra={"fields": {"event": "stopping"}})
            supervisor.stopping()
            operations.index_wait.end()
            operations.follow_reads.end()
            if operations.hooks is not None:
                operations.hooks.serving.end_reads()
            operations.store_waits.end()
            operations.files.throttling.end()
            pyfuse3.terminate()


def _stop_without(terminal: ControllingTerminal) -> None:
    """Handle SIGHUP while the store is loaded: nothing to reopen yet."""
    if terminal.is_lost:
        raise KeyboardInterrupt


def _reopen_log_files() -> None:
    for handler in logging.getLogger().handlers:
        if isinstance(handler, WatchedFileHandler):
            handler.reopenIfNeeded()
    logger.info("reopened the log after SIGHUP", extra={"fields": {"event": "reopened"}})


async def _announce(
    operations: Operations, store: AnyStore, session: Session, supervisor: Supervisor
) -> None:
    point, points = session.point, session.machine.points
    await operations.is_initialized.wait()
    await run_in_thread(points.raise_limits, point, abandon_on_cancel=True)
    if session.needs_a_request:
        await points.ask(point)
    _try_passthrough(operations.passthrough, store.disk)
    how = operations.passthrough.describe()
    logger.info("sealed files are read by: %s", how, extra={"fields": {"sealed_files": how}})
    logger.info("%s is mounted", point, extra={"fields": {"event": "mounted"}})
    supervisor.ready(f"serving {point}")


def _try_passthrough(passthrough: Passthrough, disk: Disk) -> None:
    """Find out with an existing file; if there is none, the first open does.

    Not with the lock file: closing any descriptor of it releases its lock.
    """
    for name in (names.DAEMON, names.META_PROPERTIES):
        try:
            file = disk.open(name)
        except OSError:
            continue
        passthrough.probe(file.fileno())
        file.close()
        return


def _note_daemon(store: AnyStore, daemon: DaemonNote) -> None:
    """Write where the store is mounted, for command-line tools.

    The mount works without this note, on a full disk for example. The note of an earlier daemon is
    removed then: it is wrong, and its space may be enough for the new one.
    """
    if store.read_only:
        return
    note = format_daemon_note(daemon)
    try:
        store.disk.replace(names.DAEMON, note)
    except OSError as error:
        _forget_daemon(store)
        try:
            store.disk.replace(names.DAEMON, note)
        except OSError:
            logger.warning("commands cannot find this mount yet: %s; it is tried again", error)


async def _keep_daemon_noted(store: AnyStore, note: Callable[[], None]) -> None:
    """Write the note again until it exists."""
    while not (store.read_only or _is_noted(store)):
        await trio.sleep(_NOTE_AGAIN_S)
        await run_in_thread(note)


def _is_noted(store: AnyStore) -> bool:
    try:
        return store.disk.exists(names.DAEMON)
    except OSError:
        return False  # the next attempt to write it says why


def _forget_daemon(store: AnyStore) -> None:
    if not store.read_only:
        with contextlib.suppress(OSError):
            store.disk.remove(names.DAEMON)
