"""The questions: one module each, with a function that yields rows."""

from collections.abc import Callable, Iterator

from benchmarks.questions import (
    appending,
    arrow,
    cold,
    commands,
    compaction,
    durability,
    fixed,
    following,
    forwarding,
    growing,
    lines,
    looking,
    mirroring,
    mounting,
    opening,
    packing,
    peers,
    querying,
    recovery,
    restarting,
    spark,
    sparkpeers,
    tiered,
    tiering,
    verifying,
    watching,
)
from benchmarks.results import Row
from benchmarks.runner import Bench

Question = Callable[[Bench], Iterator[Row]]

QUESTIONS: dict[str, Question] = {
    "append": appending.by_cat,
    "line": appending.line_by_line,
    "lines": lines.capacity,
    "echo": lines.opened,
    "durable": durability.rows,
    "beside": durability.beside,
    "cat": growing.rows,
    "fixed": fixed.rows,
    "cold": cold.rows,
    "tiered": tiered.rows,
    "tier-mount": tiering.mounts,
    "tier-append": tiering.appends,
    "tier-journal": tiering.journal,
    "tier-spark": tiering.spark,
    "open": opening.rows,
    "look": looking.rows,
    "recovery": recovery.after_a_crash,
    "rebuild": recovery.of_indexes,
    "verify": verifying.rows,
    "compaction": compaction.rows,
    "packing": packing.rows,
    "mount": mounting.rows,
    "restart": restarting.rows,
    "help": commands.helping,
    "start": commands.starting,
    "print": commands.printing,
    "feed": commands.feeding,
    "query": querying.rows,
    "watch": watching.rows,
    "seen": watching.seen,
    "follow": following.rows,
    "tails": following.topics,
    "arrow": arrow.rows,
    "spark": spark.rows,
    "jobs": spark.jobs,
}
"""Name on the command line -> what answers it, in the order of the table."""

PEER_QUESTIONS: dict[str, Question] = {
    "append": peers.append,
    "cat": peers.cat,
    "recovery": peers.recovery,
    "rebuild": peers.rebuild,
    "compaction": peers.compaction,
    "dump": peers.dump,
    "mirror": mirroring.mirror,
    "forward": forwarding.forward,
    "spark": sparkpeers.rows,
}
"""The same for ``--peers``: what is measured beside a Kafka broker, its tools and kcat."""
