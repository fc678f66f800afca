# cython: language_level=3
"""What the C headers of this directory declare, for the modules that include them."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "string.h" nogil:
    void *memmem(const void *, size_t, const void *, size_t)

cdef extern from "_bytes.h" nogil:
    ctypedef struct lf_counts:
        int64_t tsv
        int64_t json
        int high
    int lf_get16(const uint8_t *)
    int64_t lf_get32(const uint8_t *)
    int64_t lf_get64(const uint8_t *)
    void lf_put16(uint8_t *, int64_t)
    void lf_put32(uint8_t *, int64_t)
    void lf_put64(uint8_t *, int64_t)
    int64_t lf_add(int64_t, int64_t)
    int64_t lf_sub(int64_t, int64_t)
    int lf_varint_size(int64_t)
    uint8_t *lf_put_varint(uint8_t *, int64_t)
    const uint8_t *lf_get_varint(const uint8_t *, const uint8_t *, int64_t *)
    const uint8_t *lf_get_varlong(const uint8_t *, const uint8_t *, int64_t *)
    int lf_digits(int64_t)
    int64_t lf_digits_of_range(int64_t, int64_t)
    uint8_t *lf_put_decimal(uint8_t *, int64_t)
    lf_counts lf_count(const uint8_t *, size_t)
    bint lf_is_utf8(const uint8_t *, size_t)
    uint8_t *lf_put(uint8_t *, const void *, size_t)
    uint8_t *lf_put_wild(uint8_t *, const uint8_t *, int64_t)
    uint8_t *lf_put_tsv(uint8_t *, const uint8_t *, size_t)
    uint8_t *lf_put_json(uint8_t *, const uint8_t *, size_t)
    uint8_t *lf_put_base64(uint8_t *, const uint8_t *, size_t)
    uint8_t *lf_put_java(uint8_t *, const uint8_t *, size_t)

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
        int64_t batches
        int64_t records
    ctypedef struct lf_added:
        int64_t size
        int64_t base_offset
        int64_t last_offset
        int64_t max_timestamp
        int64_t count
        int64_t text
        int64_t tsv
        int64_t jsonl
    ctypedef struct lf_entries:
        bint is_due
        bint has_time
        uint8_t offset[8]
        uint8_t time[12]
        uint8_t text[32]
    enum:
        LF_ENCODED_BATCHES
    ctypedef struct lf_encoded:
        uint8_t *p
        int64_t capacity
        int64_t size
        int count
        lf_added batches[8]
    ctypedef int lf_encode(
        lf_encoded *, int, const uint8_t *, int64_t, const uint8_t *, int64_t, int64_t, int64_t, int64_t,
        int64_t)
    void lf_end_begin(lf_end *, int64_t, int64_t)
    bint lf_has_entries(const lf_end *, int64_t, int64_t)
    void lf_end_pass_over(lf_end *, int64_t, int64_t)
    bint lf_final_time_entry(lf_end *, uint8_t *)
    void lf_end_add(lf_end *, const lf_added *, lf_entries *)

cdef extern from "_plain.h" nogil:
    enum:
        LF_JSON_FRAME
        LF_PLAIN_RECORD_ROOM
    ctypedef struct lf_plain:
        int64_t size
        int64_t timestamp_delta
        int64_t offset_delta
        const uint8_t *fields
        const uint8_t *key
        int64_t key_n
        const uint8_t *value
        int64_t value_n
        const uint8_t *end
    bint lf_take_plain(const uint8_t *, const uint8_t *, lf_plain *)
    ctypedef struct lf_lens:
        int64_t text
        int64_t tsv
        int64_t jsonl
    ctypedef struct lf_frame:
        int64_t base_offset
        int64_t base_timestamp
        int64_t timestamp_mask
        int64_t stop_offset
    ctypedef struct lf_decades:
        pass
    void lf_add_plain(
        const lf_plain *, const uint8_t *, int64_t, int64_t, lf_decades *, lf_lens *)
    int64_t lf_text_run(const uint8_t **, const uint8_t *, int64_t *, uint8_t *, int64_t, int64_t *)
    int64_t lf_text_length_run(const uint8_t **, const uint8_t *, int64_t *)
    void lf_measure_run(const uint8_t **, const uint8_t *, int64_t *, const lf_frame *, lf_lens *)
    int64_t lf_json_length(const uint8_t *, int64_t, lf_counts)

cdef extern from "_views.h" nogil:
    uint8_t *lf_put_tsv_span(uint8_t *, const uint8_t *, int64_t)
    uint8_t *lf_put_json_span(uint8_t *, const uint8_t *, int64_t)
    uint8_t *lf_put_jsonl_head(uint8_t *, int64_t, int64_t)
    uint8_t *lf_put_tsv_pair(uint8_t *, const uint8_t *, int64_t, const uint8_t *, int64_t)
    uint8_t *lf_put_jsonl_fields(
        uint8_t *, int64_t, int64_t, const uint8_t *, int64_t, const uint8_t *, int64_t)
    int64_t lf_longest_rendering(int64_t, int64_t)

cdef extern from "_lines.h" nogil:
    lf_counts lf_count_lines(const uint8_t *, size_t)
    int64_t lf_line_run(
        const uint8_t **, const uint8_t *, int64_t, uint8_t *, int64_t, int64_t *)

cdef extern from "_crc.h" nogil:
    uint32_t lf_crc32c(uint32_t, const uint8_t *, size_t)

cdef extern from "_hash.h" nogil:
    ctypedef struct lf_hash:
        uint64_t low
        uint64_t high
    lf_hash lf_hash_bytes(const uint8_t *, size_t, uint64_t, uint64_t)
    uint64_t lf_share_of(uint64_t, uint64_t)
    void *lf_reserve(size_t)
    void lf_release(void *, size_t)
    void lf_prefetch(const void *)

cdef extern from "_find.h" nogil:
    const uint8_t *lf_find(const uint8_t *, size_t, const uint8_t *, size_t)

cdef extern from "_pcre.h" nogil:
    enum:
        LF_PCRE_NO
        LF_PCRE_YES
        LF_PCRE_UNSURE
        LF_PCRE_GAVE_UP
    void *lf_pcre_begin()
    void lf_pcre_end(void *)
    int lf_pcre_find(const void *, void *, const uint8_t *, size_t)

cdef extern from "_pcre.h":
    void *lf_pcre_new(const uint8_t *, size_t)
    void lf_pcre_free(void *)

cdef extern from "_json.h" nogil:
    enum:
        LF_JSON_NO
        LF_JSON_YES
        LF_JSON_UNSURE
    ctypedef struct lf_json_step:
        const uint8_t *name
        int64_t name_n
        int64_t element
    ctypedef struct lf_json_member:
        const lf_json_step *steps
        int64_t steps_n
        const uint8_t *text
        int64_t text_n
    int lf_json_has(const uint8_t *, int64_t, const lf_json_member *)
