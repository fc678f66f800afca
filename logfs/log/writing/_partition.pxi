# Part of _end.pyx: the lock of a partition.

@cython.final
cdef class PartitionLock:
    """The lock of a partition, which every change takes, and what a native thread may do.

    A thread of Python may take it more than once. Taking it disarms the partition: the thread
    leaves all writes to Python until ``arm``, which is called with the lock.

    Attributes:
        last_modified_ms: Clock of the newest append.
        unflushed_since_ms: Clock of the oldest append that is not durable; None if all are.
        recovery_point: The first offset that is not known to be durable.
        announcements: How many batches the thread has announced in files of unfinished lines.
        is_watched: Whether the thread has to tell of its appends, because readers wait.
        clock_ms: The clock of the thread, for tests; 0: that of the machine.
    """

    cdef log_partition *partition
    cdef NativeEnd armed       # keeps what the partition points at

    def __cinit__(self):
        self.partition = partition_new(
            <lf_encode *>PyCapsule_GetPointer(encode_function, "logfs.encode")
        )
        if self.partition is NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.partition is not NULL:
            pthread_mutex_lock(&self.partition.mutex)
            partition_disarm(self.partition)
            partition_change(self.partition)
            self.partition.end = NULL
            self.partition.shown = NULL
            pthread_mutex_unlock(&self.partition.mutex)
            partition_release(self.partition)

    def __enter__(self):
        cdef log_partition *partition = self.partition
        if pthread_mutex_trylock(&partition.mutex):
            with nogil:
                pthread_mutex_lock(&partition.mutex)
        partition.depth += 1
        partition_disarm(partition)
        partition_change(partition)
        return self

    def take_now(self):
        """Take the lock for a change, as ``with`` does, if no other thread has it; or return False.

        ``__exit__`` gives it back.
        """
        cdef log_partition *partition = self.partition
        if pthread_mutex_trylock(&partition.mutex):
            return False
        partition.depth += 1
        partition_disarm(partition)
        partition_change(partition)
        return True

    def __exit__(self, *_):
        self.partition.depth -= 1
        pthread_mutex_unlock(&self.partition.mutex)

    def mark(self, int view):
        """Return a number that changes with each change of Python, and the length in a view.

        Returns:
            ``(number, length)``: of the rendering of the active segment, 0 if the thread does not
            know it. None: another thread is changing the partition just now.
        """
        cdef log_partition *partition = self.partition
        if pthread_mutex_trylock(&partition.mutex):
            return None
        mark = partition.changes, appending_rendered(partition, view)
        pthread_mutex_unlock(&partition.mutex)
        return mark

    def unmark(self):
        """Have every mark be of the past: the log is another one now."""
        partition_change(self.partition)

    @property
    def is_busy(self):
        """Whether the thread is appending, which may take as long as a slow disk does."""
        return peek(&self.partition.is_busy) != 0

    @property
    def address(self):
        """Where the partition is, for the thread."""
        return <uintptr_t>self.partition

    def arm(
        self,
        NativeEnd end,
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
        bint may_sync,
    ):
        """Let the thread append within bounds, which are inclusive. With the lock.

        Args:
            end: The end of the log.
            descriptor: The descriptor of the ``.log``.
            file_position: The largest size of the ``.log``.
            last_offset: The offset of the last record.
            timestamp: The latest clock.
            lengths: The lengths of the renderings of the segment: text, tsv, jsonl.
            entries: How many batches may have index entries that are not in the index files.
            max_batch_bytes: The size of the largest batch.
            leader_epoch: For the header of each batch.
            room_end: Larger batches must not end after it.
            may_sync: A sync of the ``.log`` makes all records durable.
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
        if peek(&partition.sync_error):
            return
        partition.room_end = room_end
        partition.settled_announcements = partition.announcements if may_sync else -1
        self.armed = end
        partition.end = &end.end
        partition.shown = &end.shown
        partition_show_position(partition, end.end.at.file_position)
        partition_arm(partition)

    def grant(self, int64_t size_bytes, int64_t duration_ms):
        """Let the thread append so much, unfinished lines included, for so long. With the lock."""
        self.partition.bounds.granted_bytes = size_bytes
        self.partition.bounds.granted_until_ms = appending_now_ms(self.partition) + duration_ms

    @property
    def granted_bytes(self):
        """How much the thread may still append; with the lock."""
        return self.partition.bounds.granted_bytes

    def disarm(self):
        """Leave the log to Python, and let go of its end, which has the file. With the lock."""
        partition_disarm(self.partition)
        self.partition.end = NULL
        self.partition.shown = NULL
        partition_show_position(self.partition, -1)
        self.armed = None

    @property
    def is_armed(self):
        """Whether the thread may append."""
        return peek(&self.partition.is_armed) != 0

    @property
    def clock_ms(self):
        return peek_long(&self.partition.clock_ms)

    @clock_ms.setter
    def clock_ms(self, int64_t clock_ms):
        put_long(&self.partition.clock_ms, clock_ms)

    def take_slow(self):
        """Return whether an append of the thread has taken long, once."""
        was_slow = peek(&self.partition.is_slow) != 0
        if was_slow:
            put(&self.partition.is_slow, 0)
        return was_slow

    def take_failed(self):
        """Return whether the thread may have left something in the file of a line, once."""
        has_failed = peek(&self.partition.has_failed) != 0
        if has_failed:
            put(&self.partition.has_failed, 0)
        return has_failed

    @property
    def sync_error(self):
        """The errno of a sync of the thread that has failed; 0: none has. It stays."""
        return peek(&self.partition.sync_error)

    def take_counts(self, add, add_syncs):
        """Have what the thread has counted added, unless the lock is taken just now.

        Args:
            add: Called with appends, records, bytes, seconds, and the appends by duration.
            add_syncs: Called with seconds, and the syncs by duration.
        """
        cdef log_partition *partition = self.partition
        if not (peek_long(&partition.appends) or peek_long(&partition.syncs)):
            return
        if pthread_mutex_trylock(&partition.mutex):
            return
        try:
            add(
                partition.appends, partition.records, partition.bytes, partition.nanoseconds / 1e9,
                [partition.classes[i] for i in range(APPEND_CLASSES)],
            )
            add_syncs(
                partition.sync_nanoseconds / 1e9,
                [partition.sync_classes[i] for i in range(SYNC_CLASSES)],
            )
            put_long(&partition.appends, 0)
            partition.records = partition.bytes = partition.nanoseconds = 0
            memset(partition.classes, 0, sizeof(partition.classes))
            put_long(&partition.syncs, 0)
            partition.sync_nanoseconds = 0
            memset(partition.sync_classes, 0, sizeof(partition.sync_classes))
        finally:
            pthread_mutex_unlock(&partition.mutex)

    def take_read_bytes(self):
        """Return how many bytes were read natively since the last call."""
        return partition_take_read(self.partition)

    @property
    def announcements(self):
        return peek_long(&self.partition.announcements)

    @property
    def is_watched(self):
        return peek(&self.partition.is_watched) != 0

    @is_watched.setter
    def is_watched(self, bint is_watched):
        partition_watch(self.partition, is_watched)

    @property
    def recovery_point(self):
        return peek_long(&self.partition.recovery_point)

    @recovery_point.setter
    def recovery_point(self, int64_t offset):
        if offset < peek_long(&self.partition.recovery_point):
            partition_change(self.partition)  # what is being synced may not be in the log any more
        put_long(&self.partition.recovery_point, offset)

    @property
    def last_modified_ms(self):
        return peek_long(&self.partition.last_modified_ms)

    @last_modified_ms.setter
    def last_modified_ms(self, int64_t now_ms):
        put_long(&self.partition.last_modified_ms, now_ms)

    @property
    def unflushed_since_ms(self):
        cdef int64_t since_ms = peek_long(&self.partition.unflushed_since_ms)
        return None if since_ms < 0 else since_ms

    @unflushed_since_ms.setter
    def unflushed_since_ms(self, since_ms):
        put_long(&self.partition.unflushed_since_ms, -1 if since_ms is None else since_ms)
