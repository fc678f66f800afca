"""Changes of a daemon: it kills itself at each step of a write or of mkdir, with and without notes.

The daemons of a mount take turns: each dies at another step, after some requests more than the one
before. Their deaths are counted in a file. The control daemon notes nothing about requests, and so
it does again what a killed daemon had done.
"""

from pathlib import Path
from typing import Final

STEPS: Final = 4

_DYING = """\
import os, signal
from logfs.fs import hooks
hooks.load()
from logfs.fs.handover import notes, slots
deaths = os.path.getsize({deaths!r})
left = 3 + deaths

def step(number):
    global left
    if number != deaths % {steps} or deaths >= {most}:
        return
    left -= 1
    if left == 0:
        with open({deaths!r}, "ab") as file:
            file.write(b".")
        os.kill(os.getpid(), signal.SIGKILL)

"""
_WRITES = """\
begin, done = slots.FileNotes.begin, slots.FileNotes.done

def dying_begin(self, *args):
    step(0)
    applied = {begin}(self, *args)
    step(1)
    return applied

def dying_done(self, *args):
    step(2)
    {done}(self, *args)
    step(3)

slots.FileNotes.begin, slots.FileNotes.done = dying_begin, dying_done
"""
_CHANGES = """\
apply = notes.Note.apply

def dying_apply(self, call, *args, **named):
    def calling(*args):
        step(1)
        call(*args)
        step(2)
    step(0)
    {apply}
    step(3)

notes.Note.apply = dying_apply
"""


def dies_in_writes(deaths: Path, most: int, *, notes: bool) -> str:
    """Return the change: it dies in writes, until ``most`` daemons have died."""
    deaths.touch()
    begin, done = ("begin", "done") if notes else ("(lambda *_: 0)", "(lambda *_: None)")
    text = _DYING.format(deaths=str(deaths), steps=STEPS, most=most)
    return text + _WRITES.format(begin=begin, done=done)


def dies_in_changes(deaths: Path, most: int, *, notes: bool) -> str:
    """Return the change: it dies in mkdir and in other changes of the store."""
    deaths.touch()
    apply = "apply(self, calling, *args, **named)" if notes else "calling(*args)"
    text = _DYING.format(deaths=str(deaths), steps=STEPS, most=most)
    return text + _CHANGES.format(apply=apply)
