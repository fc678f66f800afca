from logfs.records.record import Record


def test_a_tombstone_is_a_key_without_a_value() -> None:
    assert Record(0, key=b"").is_tombstone
    assert not Record(0, key=b"k", value=b"").is_tombstone
    assert not Record(0).is_tombstone
