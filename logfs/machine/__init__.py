"""The machine that logfs runs on: what is mounted where, the clock, chance, the time zone.

    host         clocks, random identifiers, the boot, the time zone, how many files may be open
    mountpoints  mounts of logfs, dead ones too, and taking them away
    holders      which processes keep a mount from being taken away

Whatever needs these takes them as arguments; this is where a program gets them.
"""
