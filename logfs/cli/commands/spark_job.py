"""``logfs spark-job``: where the file for spark-submit is."""

from pathlib import Path

import click


@click.command("spark-job")
def spark_job() -> None:
    """Print the path of the file for spark-submit; a job's command line follows it.

    verify, reindex, compact and export can be Spark jobs. 'logfs COMMAND --spark' starts one
    directly. spark-submit starts one with its own options, such as the size of executors. Every
    machine needs logfs and, at the same path, the data directory.

    \b
    Examples:
        spark-submit --master yarn --num-executors 20 $(logfs spark-job) verify /shared/logs
        spark-submit $(logfs spark-job) export /var/lib/logfs/orders /srv/lake
    """  # noqa: D301 - click's mark for text it does not fill
    click.echo(Path(__file__).parents[1] / "submit.py")
