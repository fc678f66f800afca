"""Partition directories with batches of the old formats."""

from tests.log.support import (
    DIRECTORY,
    Bench,
    log_name,
)


def foreign(*segments: tuple[int, bytes]) -> Bench:
    """Return a partition whose files another program wrote; none of it is loaded yet."""
    bench = Bench({"index.interval.bytes": "50"})
    bench.store.close(bench.now_ms)
    bench.disk.remove(".kafka_cleanshutdown")
    bench.disk.remove("recovery-point-offset-checkpoint")
    for name in bench.names():
        if not name.startswith(("logfs.config", "partition.")):
            bench.disk.remove(f"{DIRECTORY}/{name}")
    for base_offset, data in segments:
        bench.put(log_name(base_offset), data)
    bench.disk.sync_directory(DIRECTORY)
    bench.disk.sync_directory("")
    return bench
