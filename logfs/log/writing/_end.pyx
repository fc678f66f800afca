# cython: language_level=3
"""The end of a log as native objects: Python and a thread without Python append to the same ones.

``_end.h`` has the one append, ``_appending.h`` what the thread may do, and when.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EIO
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from logfs.records._native import encode_function

cdef extern from "_logend.h" nogil:
    enum:
        LF_OFFSET_ENTRY
        LF_TIME_ENTRY
        LF_TEXT_ENTRY
    ctypedef struct lf_end:
        int64_t base_offset
        int64_t index_interval_bytes
        int64_t file_position
        int64_t next_offset
        int64_t max_timestamp
        int64_t offset_of_max_timestamp
        int64_t first_timestamp
        int64_t last_time_entry
        int64_t bytes_since_entry
        int64_t text
        int64_t tsv
        int64_t jsonl
    ctypedef struct lf_added:
        int64_t size
        int64_t base_offset
        int64_t last_offset
        int64_t max_timestamp
        int64_t count
        int64_t text
        int64_t tsv
        int64_t jsonl
    ctypedef int lf_encode(
        void *, int, const uint8_t *, int64_t, const uint8_t *, int64_t, int64_t, int64_t, int64_t,
        int64_t)
    void lf_end_begin(lf_end *, int64_t, int64_t)
    bint lf_final_time_entry(lf_end *, uint8_t *)

cdef extern from "_end.h" nogil:
    ctypedef struct log_end:
        lf_end at
        int due
        int due_times
        uint8_t offset_entries[1]
        uint8_t time_entries[1]
        uint8_t text_entries[1]
    ctypedef int log_end_write(void *, const uint8_t *, int64_t, int64_t)
    int log_end_append(log_end *, log_end_write *, void *, const uint8_t *, const lf_added *, int)

cdef extern from "_appending.h" nogil:
    enum:
        FRAME_HEADER
        _LINE_KEPT_BYTES "LINE_KEPT_BYTES"
        APPEND_CLASSES
        APPENDING_LEFT
        LOG_END_ENTRIES
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_trylock(pthread_mutex_t *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)
    ctypedef struct line_file:
        int fd
        int is_durable
        int is_void
        uint8_t *kept
        int64_t kept_bytes
        int64_t line_bytes
        int64_t end
        int64_t line_begin
        int64_t before_end
        uint32_t crc
        uint32_t line_crc
        uint32_t before_crc
        int has_before
        int64_t changes
        int64_t synced_changes
        int64_t announced_change
        int64_t first_announced
    void line_begin_file(line_file *)
    uint32_t line_frame(const line_file *, uint8_t *, int, const uint8_t *, int64_t)
    void line_wrote(line_file *, int64_t, uint32_t)
    int line_kept(line_file *, const uint8_t *, int64_t, int64_t, uint32_t)
    void line_announced(line_file *, int64_t, int64_t, uint32_t)
    void line_consumed(line_file *)
    ctypedef struct append_bounds:
        int64_t file_position
        int64_t last_offset
        int64_t timestamp
        int64_t text
        int64_t tsv
        int64_t jsonl
        int64_t entries
        int64_t max_batch_bytes
        int32_t leader_epoch
        int fd
    ctypedef struct shown_end:
        uint64_t version
        int64_t next_offset
        int64_t file_position
        int64_t max_timestamp
        int64_t text
        int64_t tsv
        int64_t jsonl
    ctypedef struct log_partition:
        pthread_mutex_t mutex
        int depth
        int is_busy
        int is_armed
        int is_slow
        int has_failed
        int is_watched
        int64_t cold
        log_end *end
        shown_end *shown
        int64_t room_end
        append_bounds bounds
        int64_t clock_ms
        int64_t last_modified_ms
        int64_t unflushed_since_ms
        int64_t announcements
        int64_t appends
        int64_t records
        int64_t bytes
        int64_t nanoseconds
        int64_t classes[12]
    ctypedef struct log_writer:
        log_partition *partition
        line_file *line
        int view
        int is_off
        int64_t writes
    ctypedef struct write_notes:
        void (*begin)(write_notes *, int64_t, int64_t) noexcept nogil
        void (*done)(write_notes *, int64_t) noexcept nogil
    log_partition *partition_new(lf_encode *)
    void partition_release(log_partition *)
    void partition_watch(log_partition *, bint)
    shown_end partition_shown(const shown_end *)
    int64_t appending_write(log_writer *, const uint8_t *, int64_t, write_notes *)
    const void *APPENDING "&APPENDING"


@cython.final
cdef class LogEnd:
    """Where the active segment ends; appends to it. One owner, which serialises the calls.

    Args:
        file: The ``.log``.
        base_offset: Base offset of the segment.
        index_interval_bytes: Kafka's ``index.interval.bytes``.

    Attributes:
        file_position: Where the next batch begins.
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
        """Go on at the end of a segment that was loaded; see ``IndexBuilder``.

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
        return self.shown.version

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
    cdef LogEnd end = <LogEnd>owner
    try:
        end.file.pwrite(end.error, position)
    except BaseException as error:
        end.error = error
        return EIO
    return 0


@cython.final
cdef class PartitionLock:
    """The lock of a partition, which every change takes, and what a thread without Python may do.

    A thread of Python may take it more than once. Taking it disarms the partition: the thread
    leaves all writes to Python until ``arm``, which is called with the lock.

    Attributes:
        last_modified_ms: Clock of the newest append.
        unflushed_since_ms: Clock of the oldest append that is not durable; None if all are.
        announcements: How many batches the thread has announced in files of unfinished lines.
        is_watched: Whether the thread has to tell of its appends, because readers wait.
        clock_ms: The clock of the thread, for tests; 0: that of the machine.
    """

    cdef log_partition *partition
    cdef LogEnd armed       # keeps what the partition points at

    def __cinit__(self):
        self.partition = partition_new(
            <lf_encode *>PyCapsule_GetPointer(encode_function, "logfs.encode")
        )
        if self.partition is NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.partition is not NULL:
            self.partition.is_armed = 0
            partition_release(self.partition)

    def __enter__(self):
        cdef log_partition *partition = self.partition
        if pthread_mutex_trylock(&partition.mutex):
            with nogil:
                pthread_mutex_lock(&partition.mutex)
        partition.depth += 1
        partition.is_armed = 0
        return self

    def __exit__(self, *_):
        self.partition.depth -= 1
        pthread_mutex_unlock(&self.partition.mutex)

    @property
    def is_busy(self):
        """Whether the thread is appending, which may take as long as a slow disk does."""
        return self.partition.is_busy != 0

    @property
    def address(self):
        """Where the partition is, for the thread."""
        return <uintptr_t>self.partition

    def arm(
        self,
        LogEnd end,
        int descriptor,
        *,
        int64_t file_position,
        int64_t last_offset,
        int64_t timestamp,
        lengths,
        int64_t entries,
        int64_t max_batch_bytes,
        int32_t leader_epoch,
        int64_t room_end,
    ):
        """Let the thread append within bounds, which are inclusive. With the lock.

        Args:
            end: The end of the log.
            descriptor: Of the ``.log``.
            file_position: The largest size of the ``.log``.
            last_offset: Of the last record.
            timestamp: The latest clock.
            lengths: The lengths of the renderings of the segment: text, tsv, jsonl.
            entries: How many batches may have index entries that are not in the index files.
            max_batch_bytes: The size of the largest batch.
            leader_epoch: For the header of each batch.
            room_end: Larger batches must not end after it.
        """
        cdef log_partition *partition = self.partition
        cdef append_bounds *bounds = &partition.bounds
        bounds.file_position = file_position
        bounds.last_offset = last_offset
        bounds.timestamp = timestamp
        bounds.text, bounds.tsv, bounds.jsonl = lengths
        bounds.entries = min(entries, LOG_END_ENTRIES)
        bounds.max_batch_bytes = max_batch_bytes
        bounds.leader_epoch = leader_epoch
        bounds.fd = descriptor
        partition.room_end = room_end
        self.armed = end
        partition.end = &end.end
        partition.shown = &end.shown
        partition.is_armed = 1

    @property
    def is_armed(self):
        """Whether the thread may append."""
        return self.partition.is_armed != 0

    @property
    def clock_ms(self):
        return self.partition.clock_ms

    @clock_ms.setter
    def clock_ms(self, int64_t clock_ms):
        self.partition.clock_ms = clock_ms

    def take_slow(self):
        """Return whether an append of the thread has taken long, once."""
        was_slow, self.partition.is_slow = self.partition.is_slow != 0, 0
        return was_slow

    def take_failed(self):
        """Return whether the thread may have left something in the file of a line, once."""
        has_failed, self.partition.has_failed = self.partition.has_failed != 0, 0
        return has_failed

    def take_counts(self, add):
        """Have what the thread has counted added, unless the lock is taken just now.

        Args:
            add: Called with appends, records, bytes, seconds, and the appends by duration.
        """
        cdef log_partition *partition = self.partition
        if not partition.appends or pthread_mutex_trylock(&partition.mutex):
            return
        try:
            add(
                partition.appends, partition.records, partition.bytes, partition.nanoseconds / 1e9,
                [partition.classes[i] for i in range(APPEND_CLASSES)],
            )
            partition.appends = partition.records = partition.bytes = partition.nanoseconds = 0
            memset(partition.classes, 0, sizeof(partition.classes))
        finally:
            pthread_mutex_unlock(&partition.mutex)

    @property
    def announcements(self):
        return self.partition.announcements

    @property
    def is_watched(self):
        return self.partition.is_watched != 0

    @is_watched.setter
    def is_watched(self, bint is_watched):
        partition_watch(self.partition, is_watched)

    @property
    def last_modified_ms(self):
        return self.partition.last_modified_ms

    @last_modified_ms.setter
    def last_modified_ms(self, int64_t now_ms):
        self.partition.last_modified_ms = now_ms

    @property
    def unflushed_since_ms(self):
        cdef int64_t since_ms = self.partition.unflushed_since_ms
        return None if since_ms < 0 else since_ms

    @unflushed_since_ms.setter
    def unflushed_since_ms(self, since_ms):
        self.partition.unflushed_since_ms = -1 if since_ms is None else since_ms


@cython.final
cdef class LineFile:
    """What is in the file of an unfinished line, and where; see ``logfs.log.writing.unfinished``.

    Attributes:
        descriptor: Of the file; -1: it is not open, or the thread cannot write it.
        end, crc: Where the frames end; the checksum of the last one.
        line_bytes: Length of the line.
        line_begin, line_crc: Where its frames begin; the checksum of the frame before.
        changes, synced_changes: Only grow: a sync may be on its way.
        is_durable, is_void, first_announced: See ``UnfinishedFile``.
    """

    cdef line_file line

    def __cinit__(self):
        line_begin_file(&self.line)

    def __dealloc__(self):
        free(self.line.kept)

    def begin(self):
        """Be a file that has not been made yet."""
        line_begin_file(&self.line)

    def frame(self, int kind, bytes data):
        """Make a frame that comes after the last one, which ``wrote`` notes.

        Returns:
            The frame, and its checksum.
        """
        cdef uint8_t header[FRAME_HEADER]
        cdef uint32_t crc = line_frame(
            &self.line, header, kind, <const uint8_t *>PyBytes_AS_STRING(data),
            PyBytes_GET_SIZE(data),
        )
        return PyBytes_FromStringAndSize(<char *>header, FRAME_HEADER) + data, crc

    def wrote(self, int64_t size, uint32_t crc):
        """Note that so many bytes, which end with a frame, have been written."""
        line_wrote(&self.line, size, crc)

    def changed(self):
        """Note that the file was cut."""
        self.line.changes += 1

    def cut_back(self, int64_t end, uint32_t crc):
        """Note that the frames end earlier."""
        self.line.end = end
        self.line.crc = crc

    def kept(self, bytes data, int64_t begin, uint32_t crc):
        """Note that the line is longer, by a frame that began at a place after a checksum."""
        if line_kept(
            &self.line, <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), begin, crc
        ):
            raise MemoryError

    def announced(self, int64_t base_offset, int64_t begin, uint32_t crc):
        """Note an announcement, by a frame that began at a place after a checksum."""
        line_announced(&self.line, base_offset, begin, crc)

    def cancelled(self):
        """Note that an announcement is to be cut off; returns whether there was one."""
        if not self.line.has_before:
            return False
        self.line.end = self.line.before_end
        self.line.crc = self.line.before_crc
        self.line.has_before = 0
        return True

    def consumed(self):
        """Note that the line is a record."""
        line_consumed(&self.line)

    def adopt(self, int64_t end, uint32_t crc, bytes data, int64_t line_begin, uint32_t line_crc):
        """Note what an earlier writer has left."""
        line_consumed(&self.line)
        self.kept(data, line_begin, line_crc)
        self.line.end = end
        self.line.crc = crc

    def line_in_memory(self):
        """Return the line; None if it is only in the file."""
        if self.line.kept_bytes != self.line.line_bytes:
            return None
        return PyBytes_FromStringAndSize(<char *>self.line.kept, self.line.kept_bytes)

    @property
    def has_unsynced_announcement(self):
        """Whether the last announcement may not be durable."""
        return self.line.announced_change > self.line.synced_changes

    @property
    def descriptor(self):
        return self.line.fd

    @descriptor.setter
    def descriptor(self, int descriptor):
        self.line.fd = descriptor

    @property
    def end(self):
        return self.line.end

    @property
    def crc(self):
        return self.line.crc

    @property
    def line_bytes(self):
        return self.line.line_bytes

    @property
    def line_begin(self):
        return self.line.line_begin

    @property
    def line_crc(self):
        return self.line.line_crc

    @property
    def changes(self):
        return self.line.changes

    @property
    def synced_changes(self):
        return self.line.synced_changes

    @synced_changes.setter
    def synced_changes(self, int64_t changes):
        self.line.synced_changes = changes

    @property
    def is_durable(self):
        return self.line.is_durable != 0

    @is_durable.setter
    def is_durable(self, bint is_durable):
        self.line.is_durable = is_durable

    @property
    def is_void(self):
        return self.line.is_void != 0

    @is_void.setter
    def is_void(self, bint is_void):
        self.line.is_void = is_void

    @property
    def first_announced(self):
        return None if self.line.first_announced < 0 else self.line.first_announced

    @first_announced.setter
    def first_announced(self, offset):
        self.line.first_announced = -1 if offset is None else offset


@cython.final
cdef class NativeWriter:
    """An open file whose writes a thread may apply. Changes with the lock of the partition.

    Attributes:
        is_off: Its writes are left to Python.
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
        """Where it is, for the thread."""
        return <uintptr_t>&self.writer

    @property
    def line(self):
        """What is in the file of the unfinished line; None: it has no file."""
        return self.line_file

    @line.setter
    def line(self, LineFile line):
        self.writer.line = NULL if line is None else &line.line
        self.line_file = line

    @property
    def is_off(self):
        return self.writer.is_off != 0

    @is_off.setter
    def is_off(self, bint is_off):
        self.writer.is_off = is_off

    @property
    def writes(self):
        return self.writer.writes

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
        return None if accepted == APPENDING_LEFT else accepted


cdef void note_nothing_before(write_notes *notes, int64_t end, int64_t unfinished) noexcept nogil:
    pass


cdef void note_nothing_after(write_notes *notes, int64_t accepted) noexcept nogil:
    pass


LINE_KEPT_BYTES = _LINE_KEPT_BYTES
"""A longer unfinished line is only in its file, and its writes are left to Python."""

functions_address = <uintptr_t>APPENDING
"""Where the functions for the thread are; see ``_served.h``."""
