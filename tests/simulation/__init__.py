"""The log layer, simulated: every short sequence of operations, stopped everywhere.

It owns a store of one topic on a disk in memory, without mount, thread and clock, so that a run
is the same each time. A reader finds here::

    machine     one start of the store, every kind of reader, and what outlasts a stop
    operations  what programs and the store do, each a letter: W, H, S ...
    stops       at which moments an operation can stop, and how
    judging     what readers find after a stop, compared with what programs were told
    sequences   all sequences up to a length, and what they find
    support     the fixed part that ``make test`` runs
    planted     defects that are put into a copy of the tree, and which sequence finds each
    brokers     a broker in memory, for a forward and a mirror that are stopped everywhere

The package ``daemon`` simulates a whole daemon, with its mount.

The promises themselves are in ``tests.model``: one oracle, for random schedules and for these.
``docs/internals/simulation.md`` says how to add an operation, a fault, a promise or a defect.

    python -m tests.simulation sequences --depth 3 --kind plain
    python -m tests.simulation sequences --sequence W,F,W --stop 12/kill --second 3/power
    python -m tests.simulation defects
"""
