# Part of _end.pyx: the file of an unfinished line.

@cython.final
cdef class LineFile:
    """What is in the file of an unfinished line, and where; see ``logfs.log.writing.unfinished``.

    Attributes:
        descriptor: The descriptor of the file; -1: it is not open, or the thread cannot write it.
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
        return line_cancelled(&self.line) != 0

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
