"""See ``tests.model.schedule``."""

import argparse
from collections import Counter

from tests.model.schedule import shrink, try_seed


def main() -> None:
    """Run seeds and print what they find."""
    parser = argparse.ArgumentParser(prog="python -m tests.model")
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--shrink", action="store_true", help="leave out steps that are not needed")
    parser.add_argument("--without", default="", help="steps and stops to leave out: fill,cache")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.count):
        failure = try_seed(seed, counts, options.without.split(","))
        if failure is not None:
            print(shrink(failure) if options.shrink else failure.summary, flush=True)
    for name, count in sorted(counts.items()):
        print(f"{count:9,} {name}")


if __name__ == "__main__":
    main()
