/* The end of a log: where it is written, and what one more append changes. There is one append.

   The index entries of appended batches are kept here until the owner takes them and writes them to
   the index files. Indexes are hints, so those of a killed process are not missed. */

#ifndef LOGFS_END_H
#define LOGFS_END_H

#include "_logend.h"

#define LOG_END_ENTRIES 64 /* how many batches may have entries that have not been taken */

typedef struct log_end {
    lf_end at;
    int due, due_times; /* entries that have not been taken; of them, those of the time index */
    uint8_t offset_entries[LOG_END_ENTRIES * LF_OFFSET_ENTRY];
    uint8_t time_entries[LOG_END_ENTRIES * LF_TIME_ENTRY];
    uint8_t text_entries[LOG_END_ENTRIES * LF_TEXT_ENTRY];
} log_end;

/* Write bytes to the .log; returns 0 or an errno. */
typedef int log_end_write(void *file, const uint8_t *data, int64_t size, int64_t position);

static void log_end_keep_entries(log_end *end, const lf_entries *entries) {
    if (end->due == LOG_END_ENTRIES) {
        return; /* a look-up scans a little further */
    }
    memcpy(end->offset_entries + end->due * LF_OFFSET_ENTRY, entries->offset, LF_OFFSET_ENTRY);
    memcpy(end->text_entries + end->due * LF_TEXT_ENTRY, entries->text, LF_TEXT_ENTRY);
    end->due++;
    if (entries->has_time) {
        memcpy(end->time_entries + end->due_times * LF_TIME_ENTRY, entries->time, LF_TIME_ENTRY);
        end->due_times++;
    }
}

/* Write whole batches after the last one, with one write, and account for them. They lie one after
   the other in data. Returns 0, or an errno: then nothing of them is in the log. */
static int log_end_append(
    log_end *end, log_end_write *write, void *file, const uint8_t *data, const lf_added *batches,
    int count) {
    int64_t size = 0;
    lf_entries entries = {0};
    int error, i;
    for (i = 0; i < count; i++) {
        size += batches[i].size;
    }
    error = write(file, data, size, end->at.file_position);
    if (error != 0) {
        return error;
    }
    for (i = 0; i < count; i++) {
        lf_end_add(&end->at, &batches[i], &entries);
        if (entries.is_due) {
            log_end_keep_entries(end, &entries);
        }
    }
    return 0;
}

#endif
