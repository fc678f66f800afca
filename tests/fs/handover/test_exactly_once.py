"""Every line once and in order, wherever the daemon is killed."""

from collections import Counter
from random import Random

import pytest

from logfs.log.writing import reservation
from logfs.types import View
from tests.fakestate import Stopped
from tests.fs.handover.killed import Mount
from tests.long import Limits

SCHEDULES = 100
"""``make test-long`` has thousands."""
LOGS = pytest.mark.allow_log("is offline", "are no whole batch", "could not be loaded")
VIEWS = (View.TEXT, View.TEXT, View.TSV, View.JSONL)


def _step(mount: Mount) -> None:
    random = mount.random
    busy = {p.view for p in mount.programs if p.request is not None}
    program = random.choice(mount.programs)
    if program.is_closing:
        mount.release(program)
    elif program.request is None:
        if random.random() < 0.15 and not (
            program.view is View.JSONL and not program.accepted.endswith(b"\n")
        ):
            program.is_closing = True
        elif program.view not in busy:  # the kernel lets one write of an inode run
            mount.send(program)
    elif program.answer is None:
        mount.handle(program)
    else:
        mount.reply(program)
    if random.random() < 0.1:
        mount.append_others()


def try_schedule(seed: int, counts: Counter[str]) -> None:
    random = Random(seed)
    mount = Mount(random, counts)
    for _ in range(random.randint(2, 5)):
        mount.life.end_after(random.randint(0, 150), random.random())
        _live(mount)
        mount.come_back()
    for program in list(mount.programs):
        if program.view is View.JSONL:  # a part of an object is no line
            mount.finish(program)
        mount.release(program)
    mount.check()


def _live(mount: Mount) -> None:
    """Do something until the daemon is killed, or the disk fails."""
    random = mount.random
    try:
        for _ in range(40):
            while len(mount.programs) < 4:
                mount.open(random.choice(VIEWS))
            _step(mount)
    except Stopped:
        mount.counts["kills in a step"] += 1
        return
    waiting = [p for p in mount.programs if p.request and p.answer is None]
    if waiting and random.random() < 0.5:
        mount.life.begin_again()
        mount.fail(random.choice(waiting))


def _try_schedules(first: int, count: int, counts: Counter[str]) -> None:
    usual, reservation.RESERVED_BYTES = reservation.RESERVED_BYTES, 4096
    try:
        for seed in range(first, first + count):
            try:
                try_schedule(seed, counts)
            except BaseException as error:
                error.add_note(f"schedule {seed}")
                raise
    finally:
        reservation.RESERVED_BYTES = usual


@LOGS
def test_every_line_is_there_once_and_in_order_wherever_the_daemon_is_killed() -> None:
    counts: Counter[str] = Counter()
    _try_schedules(1, SCHEDULES, counts)
    assert counts["kills"] > 2 * SCHEDULES
    assert counts["kills in a step"] > SCHEDULES
    assert counts["lines"] > 20 * SCHEDULES
    assert counts["refused lines"] > SCHEDULES // 10
    assert counts["failed writes"] > SCHEDULES // 20


@pytest.mark.long
@LOGS
def test_every_line_is_there_once_in_very_many_schedules(
    counts: Counter[str], limits: Limits
) -> None:
    seed = limits.seed
    while counts["kills"] < limits.stops and not limits.is_over:
        _try_schedules(seed, 10, counts)
        seed += 10
