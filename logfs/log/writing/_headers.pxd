# cython: language_level=3
"""What ``_end.h`` and ``_appending.h`` declare, for the module that includes them."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from logfs.records._headers cimport lf_added, lf_encode, lf_end

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

cdef extern from "_clock.h" nogil:
    ctypedef int64_t clock_function(int)
    void clock_use(clock_function *)

cdef extern from "_appending.h" nogil:
    enum:
        FRAME_HEADER
        _LINE_KEPT_BYTES "LINE_KEPT_BYTES"
        APPEND_CLASSES
        SYNC_CLASSES
        APPENDING_LEFT
        SYNC_LEFT
        SYNC_NEEDED
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
        uint32_t crc
        uint32_t line_crc
        int64_t changes
        int64_t synced_changes
        int64_t announced_change
        int64_t first_announced
    void line_begin_file(line_file *)
    uint32_t line_frame(const line_file *, uint8_t *, int, const uint8_t *, int64_t)
    void line_wrote(line_file *, int64_t, uint32_t)
    int line_kept(line_file *, const uint8_t *, int64_t, int64_t, uint32_t)
    void line_announced(line_file *, int64_t, int64_t, uint32_t)
    int line_cancelled(line_file *)
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
        int64_t granted_bytes
        int64_t granted_until_ms
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
        int sync_error
        int64_t cold
        log_end *end
        shown_end *shown
        int64_t room_end
        append_bounds bounds
        int64_t clock_ms
        int64_t last_modified_ms
        int64_t unflushed_since_ms
        int64_t announcements
        int64_t recovery_point
        int64_t changes
        int64_t settled_announcements
        int64_t syncs
        int64_t sync_nanoseconds
        int64_t sync_classes[14]
        int64_t appends
        int64_t records
        int64_t bytes
        int64_t nanoseconds
        int64_t classes[12]
    ctypedef struct log_writer:
        log_partition *partition
        line_file *line
        int view
        int has_failed
        int64_t writes
    ctypedef struct write_notes:
        void (*begin)(write_notes *, int64_t, int64_t) noexcept nogil
        void (*done)(write_notes *, int64_t) noexcept nogil
    int peek(const int *)
    int64_t peek_long(const int64_t *)
    void put(int *, int)
    void put_long(int64_t *, int64_t)
    log_partition *partition_new(lf_encode *)
    int64_t appending_now_ms(const log_partition *)
    void partition_arm(log_partition *)
    void partition_disarm(log_partition *)
    void partition_change(log_partition *)
    void partition_show_position(log_partition *, int64_t)
    int64_t partition_take_read(log_partition *)
    void partition_release(log_partition *)
    void partition_watch(log_partition *, bint)
    shown_end partition_shown(const shown_end *)
    ctypedef struct file_calls:
        int (*write)(int, const uint8_t *, int64_t, int64_t) noexcept nogil
        int (*cut)(int, int64_t) noexcept nogil
        int (*hold)(int) noexcept nogil
        int (*sync)(int, int *) noexcept nogil
    const file_calls MACHINE_FILES
    const file_calls *appending_files
    int64_t appending_write(log_writer *, const uint8_t *, int64_t, write_notes *)
    int appending_needs_sync(log_writer *, int64_t *)
    int64_t appending_sync(log_partition *)
    int64_t appending_rendered(const log_partition *, int)
    const void *APPENDING "&APPENDING"

cdef extern from "_writeorder.h":
    ctypedef struct write_steps:
        int (*announce)(void *) noexcept
        int64_t (*append)(void *) noexcept
        void (*cancel)(void *) noexcept
        void (*consume)(void *) noexcept
        int (*keep)(void *) noexcept
    int64_t write_in_order(const write_steps *, void *, int, int64_t, int64_t)
