"""What a seed makes likely: how many programs there are, and how often what goes wrong."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """What a seed makes likely.

    Attributes:
        kills: The share of steps after which the daemon is to die at a coming change.
        restarts: The share of steps with a planned restart.
        reloads: The share of steps with a reload: a successor takes the mount over.
        cuts: How many power cuts there are.
        full: The share of steps in which the disk gets little room, or room again.
        fails: The share of steps after which the disk is to fail at a coming change.
        store_faults: The share of faults among the requests to the object store, in 256ths; None:
            there is no store.
    """

    writers: int
    controls: int
    followers: int
    topic_clients: int
    kills: float
    restarts: float
    slow: float
    cuts: int
    full: float
    fails: float
    store_faults: int | None
    retains: bool
    resends: bool
    options: tuple[str, ...]
    reloads: float = 0.0

    @property
    def has_store(self) -> bool:
        """Whether segments go to an object store."""
        return self.store_faults is not None

    @classmethod
    def of(cls, choice: random.Random) -> "Plan":
        """Return the plan of a seed."""
        retains, full = choice.random() < 0.25, choice.choice([0.0, 0.0, 0.0, 0.02])
        cuts, fails = choice.choice([0, 0, 1, 2]), choice.choice([0.0, 0.0, 0.0, 0.01])
        if fails:  # then programs know less: no others than those that write and follow
            return cls(
                writers=choice.choice([1, 2, 3]),
                controls=0,
                followers=choice.choice([0, 1]),
                topic_clients=0,
                kills=choice.choice([0.0, 0.01]),
                restarts=choice.choice([0.0, 0.005]),
                slow=choice.choice([0.0, 0.05]),
                cuts=0,
                full=0.0,
                fails=fails,
                store_faults=None,
                retains=False,
                resends=choice.random() < 0.8,
                options=("no_native",) if choice.random() < 0.25 else (),
            )
        return cls(
            writers=choice.choice([1, 2, 3, 3, 4, 6]),
            controls=0 if full else choice.choice([0, 0, 1, 2]),
            followers=choice.choice([0, 1, 1, 2]),
            topic_clients=choice.choice([0, 0, 1, 2, 3]),
            kills=choice.choice([0.0, 0.01, 0.04, 0.08]),
            restarts=choice.choice([0.0, 0.0, 0.005, 0.02]),
            slow=choice.choice([0.0, 0.05, 0.2]),
            cuts=0 if retains else cuts,
            full=full,
            fails=0.0,
            store_faults=choice.choice([None, None, None, 0, 10, 40]),
            retains=retains,
            resends=choice.random() < 0.8,
            options=("no_native",) if choice.random() < 0.25 else (),
        )
