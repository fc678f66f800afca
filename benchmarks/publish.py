"""``python -m benchmarks.publish``, or ``make plot``: show the last runs that are kept."""

import click

from benchmarks import drawing, published
from benchmarks.runner import say
from benchmarks.runs import last_runs


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Write the plots, RESULTS.md and the part of the README that shows them."""
    publish()


def publish() -> None:
    """Write everything that shows the last runs."""
    runs = last_runs()
    if not runs:
        raise click.ClickException("no run is kept: make one with 'make bench ARGS=--record'")
    for path in drawing.draw(runs):
        say(f"plot: {path}")
    published.RESULTS.write_text(published.results_page(runs))
    text = published.README.read_text()
    published.README.write_text(published.with_block(text, runs))


if __name__ == "__main__":
    main()
