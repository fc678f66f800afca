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
from logfs.fs.kernel import hooks
hooks.load()
from logfs.fs.handover import control, notes, slots
deaths = os.path.getsize({deaths!r})
left = {first} + deaths // {steps}

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


_REQUESTS = """\
from logfs.fs.service import append_commands
begin, end = control.ControlNote.begin_append, control.ControlNote.end_append
publish = append_commands.AppendCommands.publish

def dying_begin(self, *args):
    step(0)
    begin(self, *args)
    step(1)

def dying_end(self, *args):
    step(2)
    end(self, *args)
    step(3)

async def dying_publish(self, request):
    step(0)
    step(1)
    result = await publish(self, request)
    step(2)
    step(3)
    return result

control.ControlNote.begin_append, control.ControlNote.end_append = dying_begin, dying_end
append_commands.AppendCommands.publish = dying_publish
"""


def dies_in_requests(deaths: Path, most: int) -> str:
    """Return the change: it dies in appends that requests of the control socket make."""
    deaths.touch()
    return _DYING.format(deaths=str(deaths), steps=STEPS, most=most, first=1) + _REQUESTS


def dies_in_writes(deaths: Path, most: int, *, notes: bool) -> str:
    """Return the change: it dies in writes, until ``most`` daemons have died."""
    deaths.touch()
    begin, done = ("begin", "done") if notes else ("(lambda *_: 0)", "(lambda *_: None)")
    text = _DYING.format(deaths=str(deaths), steps=STEPS, most=most, first=3)
    return text + _WRITES.format(begin=begin, done=done)


def dies_in_changes(deaths: Path, most: int, *, notes: bool) -> str:
    """Return the change: it dies in mkdir and in other changes of the store."""
    deaths.touch()
    apply = "apply(self, calling, *args, **named)" if notes else "calling(*args)"
    text = _DYING.format(deaths=str(deaths), steps=STEPS, most=most, first=3)
    return text + _CHANGES.format(apply=apply)
