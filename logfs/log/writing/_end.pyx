# cython: language_level=3
"""The end of a log as native objects: Python and a native thread append to the same ones.

``_end.h`` has the one append, ``_writeorder.h`` the one order of a write, ``_appending.h`` what the
thread may do, and when.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EIO
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free
from libc.string cimport memset

from logfs.log.writing._headers cimport *
from logfs.records._headers cimport *
from logfs.errors import LogfsError
from logfs.records._encoding import encode_function


@cython.final
cdef class NativeEnd:
    """Where the active segment ends; appends to it. One owner, which serialises the calls.

    Args:
        file: The ``.log``.
        base_offset: Base offset of the segment.
        index_interval_bytes: Kafka's ``index.interval.bytes``.

    Attributes:
        file_position: The position at which the next batch begins.
        next_offset: Last offset + 1; the base offset while the segment is empty.
        max_timestamp: Largest so far, -1 if none.
        first_timestamp: Max timestamp of the first batch, -1 if none.
        text, tsv, jsonl: Lengths of the renderings, from the segment's first byte.

    Source: Kafka LogSegment.append.
    """

    cdef log_end end
    cdef shown_end shown
    cdef object file
    cdef object error       # of the write that is under way

    def __init__(self, file, int64_t base_offset, int64_t index_interval_bytes):
        self.file = file
        lf_end_begin(&self.end.at, base_offset, index_interval_bytes)

    def restore(
        self,
        *,
        int64_t file_position,
        int64_t next_offset,
        int64_t max_timestamp,
        int64_t offset_of_max_timestamp,
        int64_t first_timestamp,
        int64_t last_time_entry,
        int64_t text,
        int64_t tsv,
        int64_t jsonl,
        int64_t bytes_since_entry=0,
    ):
        """Continue at the end of a segment that was loaded; see ``IndexBuilder``.

        The arguments are the attributes as they were there. Kafka forgets at a restart how many
        bytes there are since the last index entry.
        """
        self.end.at.file_position = file_position
        self.end.at.next_offset = next_offset
        self.end.at.max_timestamp = max_timestamp
        self.end.at.offset_of_max_timestamp = offset_of_max_timestamp
        self.end.at.first_timestamp = first_timestamp
        self.end.at.last_time_entry = last_time_entry
        self.end.at.text = text
        self.end.at.tsv = tsv
        self.end.at.jsonl = jsonl
        self.end.at.bytes_since_entry = bytes_since_entry

    def running(self):
        """Return the arguments of ``restore``, as they are now, by name."""
        cdef lf_end *at = &self.end.at
        return {
            "file_position": at.file_position,
            "next_offset": at.next_offset,
            "max_timestamp": at.max_timestamp,
            "offset_of_max_timestamp": at.offset_of_max_timestamp,
            "first_timestamp": at.first_timestamp,
            "last_time_entry": at.last_time_entry,
            "text": at.text,
            "tsv": at.tsv,
            "jsonl": at.jsonl,
            "bytes_since_entry": at.bytes_since_entry,
        }

    def append(
        self,
        bytes data,
        int64_t base_offset,
        int64_t last_offset,
        int64_t max_timestamp,
        int64_t text_bytes,
        int64_t tsv_bytes,
        int64_t jsonl_bytes,
    ):
        """Write one batch after the last one; the arguments are those of ``EncodedBatch``.

        Returns:
            Whether ``take`` has something to give.

        Raises:
            OSError: Nothing of it is in the log.
        """
        cdef lf_added batch
        cdef int error
        batch.size = PyBytes_GET_SIZE(data)
        batch.base_offset = base_offset
        batch.last_offset = last_offset
        batch.max_timestamp = max_timestamp
        batch.count = last_offset - base_offset + 1
        batch.text = text_bytes
        batch.tsv = tsv_bytes
        batch.jsonl = jsonl_bytes
        self.error = data
        error = log_end_append(
            &self.end, <log_end_write *>write_by_python, <void *>self,
            <const uint8_t *>PyBytes_AS_STRING(data), &batch, 1,
        )
        raised, self.error = self.error, None
        if error:
            raise raised
        return self.end.due > 0

    def take(self):
        """Take the index entries since the last call.

        Returns:
            ``(offset index, time index, text index)``, whole entries each.
        """
        cdef int due = self.end.due
        cdef int due_times = self.end.due_times
        self.end.due = self.end.due_times = 0
        return (
            PyBytes_FromStringAndSize(<char *>self.end.offset_entries, due * LF_OFFSET_ENTRY),
            PyBytes_FromStringAndSize(<char *>self.end.time_entries, due_times * LF_TIME_ENTRY),
            PyBytes_FromStringAndSize(<char *>self.end.text_entries, due * LF_TEXT_ENTRY),
        )

    def final_time_entry(self):
        """Return the time index entry of a roll or a close; see ``IndexBuilder``."""
        cdef uint8_t entry[LF_TIME_ENTRY]
        if not lf_final_time_entry(&self.end.at, entry):
            return b""
        return PyBytes_FromStringAndSize(<char *>entry, LF_TIME_ENTRY)

    @property
    def version(self):
        """A number that changes with each append of the thread."""
        return peek_long(<const int64_t *>&self.shown.version)

    def read(self):
        """Return what the thread has appended last, consistent in itself. Any thread.

        Returns:
            ``(version, next offset, text, tsv, jsonl, file position, max timestamp)``.
        """
        cdef shown_end shown = partition_shown(&self.shown)
        return (
            shown.version, shown.next_offset, shown.text, shown.tsv, shown.jsonl,
            shown.file_position, shown.max_timestamp,
        )

    @property
    def base_offset(self):
        return self.end.at.base_offset

    @property
    def index_interval_bytes(self):
        return self.end.at.index_interval_bytes

    @property
    def file_position(self):
        return self.end.at.file_position

    @property
    def next_offset(self):
        return self.end.at.next_offset

    @property
    def max_timestamp(self):
        return self.end.at.max_timestamp

    @property
    def first_timestamp(self):
        return self.end.at.first_timestamp

    @property
    def text(self):
        return self.end.at.text

    @property
    def tsv(self):
        return self.end.at.tsv

    @property
    def jsonl(self):
        return self.end.at.jsonl


cdef int write_by_python(void *owner, const uint8_t *data, int64_t size, int64_t position) noexcept with gil:
    """Write the data of an append, which ``error`` holds until there is one, to any file."""
    cdef NativeEnd end = <NativeEnd>owner
    try:
        end.file.pwrite(end.error, position)
    except BaseException as error:
        end.error = error
        return EIO
    return 0


include "_partition.pxi"
include "_linefile.pxi"
include "_files.pxi"
include "_writeorder.pxi"


@cython.final
cdef class NativeWriter:
    """An open file whose writes a thread may apply. Changes with the lock of the partition.

    Attributes:
        has_failed: An earlier call has failed, which close(2) has to report.
        writes: How many the thread has applied.
    """

    cdef log_writer writer
    cdef PartitionLock lock
    cdef LineFile line_file

    def __init__(self, PartitionLock lock, int view):
        self.lock = lock
        self.writer.partition = lock.partition
        self.writer.view = view

    @property
    def address(self):
        """The address, for the thread."""
        return <uintptr_t>&self.writer

    @property
    def line(self):
        """The contents of the file of the unfinished line; None: it has no file."""
        return self.line_file

    @line.setter
    def line(self, LineFile line):
        self.writer.line = NULL if line is None else &line.line
        self.line_file = line

    @property
    def has_failed(self):
        return peek(&self.writer.has_failed) != 0

    @has_failed.setter
    def has_failed(self, bint has_failed):
        put(&self.writer.has_failed, has_failed)

    @property
    def writes(self):
        return peek_long(&self.writer.writes)

    def write(self, bytes data):
        """Do what the thread does with a write, without notes.

        Returns:
            The bytes accepted; None: the write is left to Python.
        """
        cdef write_notes notes
        cdef int64_t accepted
        cdef int64_t size = PyBytes_GET_SIZE(data)
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
        notes.begin = note_nothing_before
        notes.done = note_nothing_after
        with nogil:
            accepted = appending_write(&self.writer, p, size, &notes)
        raise_of_files()
        return None if accepted == APPENDING_LEFT else accepted


    def sync(self):
        """Do what the thread does with an fsync.

        Returns:
            Whether all records are durable; if not, the fsync is left to Python.
        """
        cdef int64_t offset
        cdef int answer
        with nogil:
            answer = appending_needs_sync(&self.writer, &offset)
            if answer == SYNC_NEEDED:
                answer = SYNC_LEFT if appending_sync(self.writer.partition) < offset else 0
        raise_of_files()
        return answer != SYNC_LEFT


cdef void note_nothing_before(write_notes *notes, int64_t end, int64_t unfinished) noexcept nogil:
    pass


cdef void note_nothing_after(write_notes *notes, int64_t accepted) noexcept nogil:
    pass


LINE_KEPT_BYTES = _LINE_KEPT_BYTES
"""A longer unfinished line is only in its file, and its writes are left to Python."""

functions_address = <uintptr_t>APPENDING
"""The addresses of the functions for the thread; see ``_served.h``."""


def use_clock(uintptr_t function):
    """Read other clocks than those of the machine; see ``_clock.h``.

    Args:
        function: The address of a function in C.
    """
    clock_use(<clock_function *>function)
