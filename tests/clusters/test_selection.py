"""Which topics are mirrored, and the settings that they get."""

import pytest

from logfs.errors import InvalidConfigError
from logfs.kafka.selection import FOREVER, TopicSelection, local_config

PRESENT = ["orders", "web-a", "web-b", "xweb-c", "__consumer_offsets"]


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (["orders", "nowhere"], ["orders"]),
        (["/web-.*/"], ["web-a", "web-b"]),
        (["/.*/"], ["orders", "web-a", "web-b", "xweb-c"]),
        (["/__.*/", "orders"], ["__consumer_offsets", "orders"]),
        (["__consumer_offsets"], ["__consumer_offsets"]),
        (["/web-a|orders/"], ["orders", "web-a"]),
    ],
)
def test_names_and_expressions(wanted: list[str], chosen: list[str]) -> None:
    selection = TopicSelection(wanted, "copy-")
    assert selection.chosen(PRESENT) == chosen
    assert selection.has_expressions == any(name.startswith("/") for name in wanted)
    assert selection.local("orders") == "copy-orders"


@pytest.mark.parametrize("text", ["/", "//", "/web", "/(/"])
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError):
        TopicSelection([text])


def test_settings_of_how_a_log_is_stored_stay_local() -> None:
    source = {
        "retention.ms": "5",
        "retention.bytes": "7",
        "cleanup.policy": "compact",
        "max.message.bytes": "9",
        "segment.bytes": "11",
        "flush.ms": "12",
        "not.known.here": "x",
    }
    kept = {"retention.ms": "5", "retention.bytes": "7", "cleanup.policy": "compact"}
    assert local_config(source, None) == kept | {"max.message.bytes": "9"}
    assert local_config(source, FOREVER) == {
        "max.message.bytes": "9",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "cleanup.policy": "delete",
    }
