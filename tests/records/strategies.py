"""Records, batches and logs for Hypothesis."""

from hypothesis import strategies as st

from logfs.records.batch import BatchFields, encode_batch
from logfs.records.checksum import crc32c
from logfs.records.compression import Compression
from logfs.records.record import Header, Record
from logfs.types import View
from tests.records.messages import message, wrapper
from tests.records.oracle import Batch

NOW_MS = 1_700_000_000_000

# Pieces on which encoders have failed: escapes at every place of a 16-byte vector,
# UTF-8 that is cut, overlong, a surrogate or beyond U+10FFFF, and what lies on either side of it.
PIECES = [
    b"",
    b"a",
    b"plain words and more of them",
    b"\\",
    b'"',
    b"\t",
    b"\r\n",
    b"\r",
    b"\n",
    b"\\N",
    b"\\t",
    b"\x00",
    b"\x08\x0b\x0c\x1f",
    b"\x1b[1m",
    b"\x7f",
    "ä".encode(),
    "€".encode(),
    "🎉".encode(),
    "\u2028\ufeff".encode(),
    b"\xc2",
    b"\x80",
    b"\xc0\xaf",
    b"\xe0\x9f\xbf",
    b"\xe0\xa0\x80",
    b"\xed\x9f\xbf",
    b"\xed\xa0\x80",
    b"\xf0\x8f\xbf\xbf",
    b"\xf0\x90\x80\x80",
    b"\xf4\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80",
    b"\xf5\x80\x80\x80",
    b"x" * 2050,
]

views = st.sampled_from(list(View))
codecs = st.sampled_from(list(Compression))
values = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join),
    st.text(max_size=40).map(str.encode),
    st.binary(max_size=40),
)
nullable = st.none() | values
headers = st.lists(st.tuples(values, nullable), max_size=3).map(tuple)
timestamps = st.one_of(
    st.just(-1),
    st.integers(NOW_MS - 10, NOW_MS + 10),
    st.integers(0, 9999),
    st.integers(-(2**63), 2**63 - 1),
)


@st.composite
def record_lists(
    draw: st.DrawFn, first_offset: int = 0, min_size: int = 0, max_size: int = 6
) -> list[Record]:
    """Records with increasing offsets; now and then one is missing."""
    offset = first_offset
    found = []
    for _ in range(draw(st.integers(min_size, max_size))):
        offset += draw(st.sampled_from([0, 0, 0, 1, 5]))
        found.append(
            Record(offset, draw(timestamps), draw(nullable), draw(nullable), draw(headers))
        )
        offset += 1
    return found


# A log is drawn as a few numbers, whose bits say what each record and batch is: drawing every field
# by itself takes ten times as long. Smaller numbers make plainer records.
GAPS = [0, 0, 0, 0, 0, 0, 1, 5]
TIMES = [NOW_MS, NOW_MS + 1, NOW_MS - 5, NOW_MS + 9, -1, 0, NOW_MS + 2, 2**62]
FIELDS = [b"v", None, *PIECES, b"two words\n" * 3, b"\xff" * 20, "ß".encode() * 12]
KEYS = [None, b"k", *FIELDS[1:]]
HEADERS: list[tuple[Header, ...]] = [(), (), ((b"h", b"x"), (b"", None)), ((b"\xff", b"\x01"),)]

record_numbers = st.integers(0, len(FIELDS) * len(KEYS) * len(TIMES) * len(HEADERS) * len(GAPS) - 1)
recipes = st.lists(
    st.tuples(st.integers(0, 2**18 - 1), st.lists(record_numbers, max_size=6)), max_size=6
)


def make_record(offset: int, number: int) -> Record:
    """The record that a number means."""
    number, value = divmod(number, len(FIELDS))
    number, key = divmod(number, len(KEYS))
    number, time = divmod(number, len(TIMES))
    number, headers = divmod(number, len(HEADERS))
    return Record(offset + GAPS[number], TIMES[time], KEYS[key], FIELDS[value], HEADERS[headers])


def make_batch(base_offset: int, number: int, numbers: list[int]) -> Batch:
    """The batch that some numbers mean, of any kind that a log may hold."""
    if numbers and number >> 17:
        return make_message_set(base_offset, number, numbers)
    records = []
    offset = base_offset
    for one in numbers:
        records.append(make_record(offset, one))
        offset = records[-1].offset + 1
    last_offset = max(offset - 1, base_offset) + (number & 1)
    is_control = number >> 4 & 7 == 7
    fixed = TIMES[number >> 10 & 7] if number >> 7 & 7 == 7 else None
    fields = BatchFields(
        compression=Compression((number >> 1 & 7) % 5),
        leader_epoch=(number >> 13) - 1,
        is_control=is_control,
        is_transactional=is_control,
        is_log_append_time=fixed is not None,
        base_offset=base_offset,
        last_offset=last_offset,
        max_timestamp=fixed,
    )
    max_timestamp = max((record.timestamp for record in records), default=-1)
    visible = [] if is_control else records
    if fixed is not None:
        max_timestamp = fixed
        visible = [record._replace(timestamp=fixed) for record in visible]
    return Batch(
        encode_batch(records, fields),
        base_offset,
        last_offset,
        max_timestamp,
        fields.leader_epoch,
        visible,
    )


def make_message_set(base_offset: int, number: int, numbers: list[int]) -> Batch:
    """The message of format v0 or v1 that some numbers mean; several records if compressed."""
    magic, codec = number >> 16 & 1, Compression((number >> 1 & 7) % 4)
    fixed = TIMES[number >> 10 & 7] if magic and number >> 7 & 7 == 7 else None
    records: list[Record] = []
    for one in numbers if codec else numbers[:1]:
        record = make_record(records[-1].offset + 1 if records else base_offset, one)
        timestamp = record.timestamp if magic else -1
        records.append(record._replace(headers=(), timestamp=timestamp))
    visible = records
    if fixed is not None:
        visible = [record._replace(timestamp=fixed) for record in records]
    if codec:
        data = wrapper(magic, codec, records, fixed)
    else:
        data = message(magic, visible[0], 8 if fixed is not None else 0)
    max_timestamp = max(record.timestamp for record in visible)
    return Batch(data, records[0].offset, records[-1].offset, max_timestamp, -1, visible)


def make_log(recipe: list[tuple[int, list[int]]]) -> list[Batch]:
    """Batches one after the other, with gaps between some."""
    offset = 0
    found: list[Batch] = []
    for number, numbers in recipe:
        batch = make_batch(offset + GAPS[number >> 8 & 7], number, numbers)
        found.append(batch)
        offset = batch.last_offset + 1
    return found


logs = recipes.map(make_log)


def joined(log: list[Batch]) -> bytes:
    """The bytes of a log."""
    return b"".join(batch.data for batch in log)


def visible(log: list[Batch]) -> list[Record]:
    """The records a reader sees of a log."""
    return [record for batch in log for record in batch.visible]


def sealed(batch: bytes) -> bytes:
    """The batch with a batch length and a checksum that fit."""
    batch = batch[:8] + (len(batch) - 12).to_bytes(4, "big") + batch[12:]
    return batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:]
