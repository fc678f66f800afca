"""A mount that outlives its daemon: restart, reload, upgrade and crash are a pause for programs.

Two descriptors outlive the daemon, because a holder keeps them as well: ``/dev/fuse``, and a memory
file with the *state*. The holder is systemd, or ``logfs.machine.holder``. A successor adopts the
connection: it gives libfuse the saved INIT request, and asks the kernel to send the requests again
that the predecessor had read and not answered.

The modules, lowest first:

    state, descriptors    the memory file: header, slots, journal; the two descriptors in and out
    journal               nodes, open files, requests that must not be repeated; before the reply
    slots, notes          where the log ends before a write; that a request has begun
    control               the answers to requests of the control socket
    settling              at load: how much of each noted write is in the log
    describing            from nodes to texts, and back
    segments              deleted segments that open fixed names read
    restoring, pruning    nodes and open files at their next use; inodes that the kernel forgot
    successor             a reload: the next daemon starts before this one stops reading

Nothing is kept without a holder, and without the hooks (``native/hooks.h``).

Source: Linux fs/fuse/dev.c, for the order of requests that are sent again.
"""
