"""Texts that people and programs write: files of mounts, options, settings, lines of JSON."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from logfs.cli.mount_file import read_mount_file
from logfs.config import StoreConfig, TopicConfig
from logfs.config.properties import format_properties, parse_properties
from logfs.errors import LogfsError
from logfs.fs.options import parse_options
from logfs.records.jsonl import parse_line
from tests.fuzz.mutation import change_bytes

_SEEDS = (
    b'data = "/d"\nmountpoint = "/m"\noptions = ["ro", "create"]\n[kafka]\nnum.partitions = 3\n',
    b"ro,uid=0,gid=root,umask=022,log.retention.ms=5,metrics=9090,create,max_read=131072",
    b"retention.ms=86400000\ncleanup.policy=compact,delete\n# comment\nsegment.bytes = 1048576\n",
    b'{"offset":7,"timestamp":1700000000000,"key":null,"value":"v","headers":[["h",{"base64":"eA=="}]]}',
)


def make(chance: Random, corpus: list[bytes]) -> bytes:
    """Return a text that one of the readers almost takes."""
    text = chance.choice((*_SEEDS, *corpus))
    for _ in range(chance.choice((1, 1, 2, 5))):
        text = change_bytes(chance, text)
    return text


def check(case: bytes) -> None:
    """Give a text to every reader: each takes it or says in its own error what is wrong."""
    text = case.decode(errors="surrogateescape")
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(case)
        _refuse(lambda: read_mount_file(file.name))
    _refuse(lambda: parse_options([text]))
    _refuse(lambda: parse_options([text], is_sloppy=True))
    _refuse(lambda: parse_line(case))
    properties = _refuse(lambda: parse_properties(text))
    if isinstance(properties, dict):
        _refuse(lambda: TopicConfig.from_properties(properties))
        _refuse(lambda: StoreConfig.from_properties(properties))
        printed = _refuse(lambda: format_properties(properties))
        if isinstance(printed, str):
            assert parse_properties(printed) == properties, json.dumps(properties)


def _refuse(read: Callable[[], object]) -> object:
    """Return what was read; None if it was refused."""
    try:
        return read()
    except LogfsError:
        return None
