/* Where a segment ends, and the rules of its indexes: what one more batch changes.

   Appending, recovery, compaction and followers account for batches with these functions, so that no
   rule exists twice. Source: Kafka LogSegment.append and LogSegment.recover (per batch, KAFKA-806). */

#ifndef LOGFS_LOGEND_H
#define LOGFS_LOGEND_H

#include "_bytes.h"

#define LF_OFFSET_ENTRY 8
#define LF_TIME_ENTRY 12
#define LF_TEXT_ENTRY 32

typedef struct {
    int64_t base_offset, index_interval_bytes;
    int64_t file_position; /* where the next batch begins */
    int64_t next_offset;
    int64_t max_timestamp; /* -1: none */
    int64_t offset_of_max_timestamp;
    int64_t first_timestamp;   /* max timestamp of the first batch, -1: none */
    int64_t last_time_entry;   /* timestamp of the last time index entry, -1: none */
    int64_t bytes_since_entry; /* the counter of index_interval_bytes */
    int64_t text, tsv, jsonl;  /* lengths of the renderings, from the segment's first byte */
    int64_t batches, records;
} lf_end;

typedef struct { /* a batch at the end of a segment */
    int64_t size, base_offset, last_offset, max_timestamp, count;
    int64_t text, tsv, jsonl; /* lengths of its renderings */
} lf_added;

typedef struct { /* the index entries of a batch */
    int is_due, has_time;
    uint8_t offset[LF_OFFSET_ENTRY], time[LF_TIME_ENTRY], text[LF_TEXT_ENTRY];
} lf_entries;

#define LF_ENCODED_BATCHES 8

typedef struct { /* lines as whole batches, one after the other */
    uint8_t *p;
    int64_t capacity, size;
    int count;
    lf_added batches[LF_ENCODED_BATCHES];
} lf_encoded;

/* Encode complete lines of text or tsv, which have no unusual form: those of first, then those of rest.

   view: 0 text, 1 tsv. limit: the largest batch. Returns whether all lines are in batches; if not,
   encode_lines() has to be asked, for a refusal or for more room. */
typedef int lf_encode(
    lf_encoded *encoded, int view, const uint8_t *first, int64_t first_bytes, const uint8_t *rest,
    int64_t rest_bytes, int64_t base_offset, int64_t now_ms, int64_t limit, int64_t leader_epoch);

static inline void lf_end_begin(lf_end *end, int64_t base_offset, int64_t index_interval_bytes) {
    memset(end, 0, sizeof *end);
    end->base_offset = end->next_offset = end->offset_of_max_timestamp = base_offset;
    end->index_interval_bytes = index_interval_bytes;
    end->max_timestamp = end->first_timestamp = end->last_time_entry = -1;
}

/* Whether an index entry can point at a batch that begins at file_position. */
static inline int lf_has_entries(const lf_end *end, int64_t last_offset, int64_t size) {
    return lf_sub(last_offset, end->base_offset) <= INT32_MAX && end->file_position <= INT32_MAX - size;
}

/* Continue after bytes that hold no record. */
static inline void lf_end_pass_over(lf_end *end, int64_t size, int64_t next_offset) {
    end->bytes_since_entry = lf_add(end->bytes_since_entry, size);
    end->file_position = lf_add(end->file_position, size);
    end->next_offset = next_offset;
}

/* Make the time index entry of a roll, a close or the end of recovery; returns whether one is due. */
static inline int lf_final_time_entry(lf_end *end, uint8_t entry[LF_TIME_ENTRY]) {
    if (end->max_timestamp <= end->last_time_entry ||
        lf_sub(end->offset_of_max_timestamp, end->base_offset) > INT32_MAX) {
        return 0;
    }
    end->last_time_entry = end->max_timestamp;
    lf_put64(entry, end->max_timestamp);
    lf_put32(entry + 8, lf_sub(end->offset_of_max_timestamp, end->base_offset));
    return 1;
}

/* Account for a batch that begins at file_position; its index entries are made if they are due.

   In this order: the max timestamp (only a larger one is noted, with the last offset of this batch);
   entries, if more than index_interval_bytes lie since the last ones, which sets the counter to 0;
   then the counter grows by the size of the batch. So the first batch never has entries, and a batch
   that is too far from the base for an entry has none. */
static inline void lf_end_add(lf_end *end, const lf_added *batch, lf_entries *entries) {
    if (end->file_position == 0) {
        end->first_timestamp = batch->max_timestamp;
    }
    if (batch->max_timestamp > end->max_timestamp) {
        end->max_timestamp = batch->max_timestamp;
        end->offset_of_max_timestamp = batch->last_offset;
    }
    entries->is_due = end->bytes_since_entry > end->index_interval_bytes &&
                      lf_has_entries(end, batch->last_offset, batch->size);
    if (entries->is_due) {
        lf_put32(entries->offset, lf_sub(batch->last_offset, end->base_offset));
        lf_put32(entries->offset + 4, end->file_position);
        lf_put32(entries->text, lf_sub(batch->base_offset, end->base_offset));
        lf_put32(entries->text + 4, end->file_position);
        lf_put64(entries->text + 8, end->text);
        lf_put64(entries->text + 16, end->tsv);
        lf_put64(entries->text + 24, end->jsonl);
        entries->has_time = lf_final_time_entry(end, entries->time);
        end->bytes_since_entry = 0;
    }
    lf_end_pass_over(end, batch->size, lf_add(batch->last_offset, 1));
    end->text = lf_add(end->text, batch->text);
    end->tsv = lf_add(end->tsv, batch->tsv);
    end->jsonl = lf_add(end->jsonl, batch->jsonl);
    end->batches++;
    end->records = lf_add(end->records, batch->count);
}

#endif
