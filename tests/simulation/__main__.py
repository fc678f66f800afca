"""See ``tests.simulation``."""

import argparse
import itertools
import sys
import time

from tests.simulation.machine import KINDS
from tests.simulation.operations import sequences_of
from tests.simulation.planted import hunt, plant_all
from tests.simulation.sequences import Search, kinds_named


def main() -> int:
    """Run sequences, or planted defects, and print what they find."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    commands = parser.add_subparsers(required=True)
    sequences = commands.add_parser("sequences", help="run all short sequences")
    sequences.add_argument("--depth", type=int, default=2, help="so many operations; 2")
    sequences.add_argument("--kind", choices=KINDS, help="of this kind of topic; all")
    sequences.add_argument("--seconds", type=float, default=1e9, help="of processor time; no limit")
    sequences.add_argument("--sequence", help="only this one: W,F,W")
    sequences.add_argument("--stop", default="", help="only this stop: 12/kill")
    sequences.add_argument("--second", default="", help="only this second stop: 3/power")
    sequences.add_argument(
        "--second-depth", type=int, default=1, help="with second stops up to this depth; 1"
    )
    sequences.add_argument("--failures", type=int, default=10, help="end after so many; 10")
    sequences.add_argument("--share", default="1/1", help="only each n-th sequence: 1/4")
    sequences.set_defaults(run=run_sequences)
    planted = commands.add_parser("defects", help="plant defects in a copy, and look for them")
    planted.add_argument(
        "--seconds", type=float, default=120, help="of the processor for each; 120"
    )
    planted.add_argument("names", nargs="*", help="only these; all")
    planted.set_defaults(run=lambda options: plant_all(options.names, options.seconds))
    hunting = commands.add_parser("hunt", help="run sequences of all kinds until one fails")
    hunting.add_argument("--seconds", type=float, default=120, help="of the processor; 120")
    hunting.add_argument("--known", default="", help="the sequence that runs first: 'plain W,F,W'")
    hunting.set_defaults(run=lambda options: hunt(options.seconds, options.known))
    options = parser.parse_args()
    return int(options.run(options))


def run_sequences(options: argparse.Namespace) -> int:
    """Run sequences; return the exit status."""
    is_whole = True
    for kind in kinds_named(options.kind):
        search = Search(
            kind,
            second=options.second_depth,
            only_stop=options.stop,
            only_second=options.second,
        )
        search.report = lambda failure: print(failure, flush=True)
        number, of = map(int, options.share.split("/"))
        sequences = itertools.islice(sequences_of(kind, options.depth), number - 1, None, of)
        begun_s = time.process_time()
        search.run_all(
            [tuple(options.sequence.split(","))] if options.sequence else sequences,
            options.seconds,
            options.failures,
        )
        took_s = time.process_time() - begun_s
        counts = ", ".join(f"{count:,} {name}" for name, count in sorted(search.counts.items()))
        print(f"{kind.name}: {counts}; {took_s:.1f} s of the processor", flush=True)
        is_whole = is_whole and not search.failures
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
