# cython: language_level=3
"""What all modules of native code know: constants, a batch and a record."""

from libc.stdint cimport int64_t, uint8_t

from logfs.records._headers cimport lf_lens

ctypedef const uint8_t *bytes_t
ctypedef lf_lens Lens

cdef enum:
    LOG_OVERHEAD = 12       # base offset and batch length
    HEADER = 61
    SHORTEST = 14           # smallest batch length of any magic. Source: Kafka RECORD_OVERHEAD_V0
    UP_TO_MAGIC = 17
    TEXT = 0
    TSV = 1
    JSONL = 2
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40
    KNOWN_ATTRIBUTES = 0x7f
    DATA_BATCH = -1         # as in logfs.records.produced
    NO_MARKER = -2
    RELEASE_GIL_BYTES = 65536   # below, giving up the GIL and taking it back costs more than it frees

cdef enum:                  # why a run over records has ended
    FULL = 0                # the room is used up
    AT_STOP = 1
    BATCH_END = 2
    DAMAGED = 3
    NO_MEMORY = 4

cdef enum:                  # why encoding stops
    AREA_END = 0            # every line is in the batch
    BATCH_FULL = 1          # the next line needs a new batch
    TOO_LARGE = 2
    BAD_ESCAPE = 3
    SECOND_TAB = 4
    NO_KEY = 5
    UNPARSABLE = 6          # the refusal is set already
    NO_ROOM = 7             # the buffer has to grow
    NO_DELIMITER = 8

cdef enum:                  # what the first bytes of a batch are
    WHOLE = 0
    INCOMPLETE = 1
    BAD_SIZE = 2
    BAD_MAGIC = 3
    BAD_FIELDS = 4

cdef struct Span:
    bytes_t p
    int64_t n               # -1 is null

cdef struct Rec:
    int64_t offset
    int64_t timestamp
    bytes_t fields          # key, value and headers
    Span key
    Span value
    bytes_t headers         # after their count, already checked
    bytes_t end
    int64_t header_count
    int64_t size            # of the record, its length field aside

cdef struct Batch:
    int magic
    int64_t base_offset     # 0 as long as is_unopened
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t epoch
    int64_t count
    int attributes
    bytes_t p               # next record; records are left while left > 0
    bytes_t end
    int64_t left
    int64_t shift           # magic < 2: to be added to the offsets of the messages
