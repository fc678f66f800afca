/* A native cursor over the batches of a .log, which gives their text.

   It goes through batches in the order of the file and renders plain records (see _plain.h), which nearly
   all are. Everything else is left to Python: compressed and legacy batches, control batches, other
   records, damage, and bytes that are not in the page cache. The CRC of each batch, and that its
   offsets are not below those of the one before, is checked when it is entered. A call ends inside a
   batch only if all of its records are plain. The bytes are those of the class Renderer in the same view. */

#ifndef LOGFS_CURSOR_H
#define LOGFS_CURSOR_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "../../records/_crc.h"
#include "../../records/_views.h"

#define CURSOR_HEADER 61          /* bytes of the header of a batch */
#define CURSOR_PIECE (256 << 10)  /* bytes that are read at a time: they stay in the processor's caches */
#define CURSOR_LARGEST (2 << 20)  /* bytes of a batch; larger ones are left to Python */
#define CURSOR_SLACK 64           /* bytes after those that were read which may be looked at */
#define CURSOR_NOT_PLAIN 0x27     /* attributes: a codec, or a control batch */
#define CURSOR_APPEND_TIME 0x08   /* attributes: all records have the largest timestamp */
#define CURSOR_LARGEST_RECORD (64 << 10) /* bytes; the rendering of a larger one in tsv or jsonl is left to Python */

enum cursor_status {
    CURSOR_FULL, /* the room is used up */
    CURSOR_END,  /* the end of the file was reached */
    CURSOR_LEFT, /* what follows is left to Python; the cursor cannot be used any more */
};

typedef struct cursor_place { /* where the next byte is */
    int64_t batch_position, batch_end; /* of the batch, in the file */
    int64_t delivered;                 /* bytes of its rendering before it */
    int is_inside;                     /* it is not the first one of a record */
} cursor_place;

typedef struct plain_cursor {
    int fd, view;
    uint8_t *raw;
    int64_t room, bytes;       /* of raw */
    int64_t raw_position;      /* of raw, in the file */
    int64_t next;              /* in raw: the batch after that of the next byte */
    const uint8_t *record, *end; /* the records of the batch that were not begun */
    int64_t left;              /* how many */
    lf_frame frame;            /* of the batch: what its numbers are added to */
    int64_t after;             /* the offset after the last batch that was entered; 0 before the first */
    int is_plain;              /* all records of the batch are */
    const uint8_t *part;       /* the rest of the record that was begun; a newline follows it */
    int64_t part_bytes;
    uint8_t *line;             /* such a record in tsv or jsonl */
    int64_t line_room;
    cursor_place place;
    int64_t skipped;           /* bytes that are to be passed over first */
} plain_cursor;

/* Begin at a place in a view. The descriptor is that of the file. */
static void cursor_begin(plain_cursor *cursor, int fd, int view, const cursor_place *place) {
    *cursor = (plain_cursor){.fd = fd, .view = view, .raw_position = place->batch_position, .place = *place};
    cursor->skipped = place->delivered;
    cursor->place.delivered = 0;
}

static void cursor_free(plain_cursor *cursor) {
    free(cursor->raw);
    free(cursor->line);
    cursor->raw = cursor->line = NULL;
    cursor->room = cursor->bytes = cursor->line_room = 0;
}

/* Read from the page cache; large reads leave it as it is where the file system can do that. */
static ssize_t cursor_read(int fd, uint8_t *into, size_t size, int64_t position) {
    static int flags = 0x80 | RWF_NOWAIT; /* RWF_DONTCACHE, from Linux 6.14 on */
    struct iovec part = {into, size};
    int used = __atomic_load_n(&flags, __ATOMIC_RELAXED);
    ssize_t got = preadv2(fd, &part, 1, position, used);

    if (got < 0 && used != RWF_NOWAIT && (errno == EOPNOTSUPP || errno == EINVAL)) {
        __atomic_store_n(&flags, RWF_NOWAIT, __ATOMIC_RELAXED);
        got = preadv2(fd, &part, 1, position, RWF_NOWAIT);
    }
    return got;
}

/* Have at least size bytes of the file from the next batch on; 0 if that is not possible. */
static int cursor_fill(plain_cursor *cursor, int64_t file_end, int64_t size) {
    int64_t kept = cursor->bytes - cursor->next, wanted;
    int64_t from = cursor->raw_position + cursor->bytes;
    ssize_t got;

    if (size > CURSOR_LARGEST)
        return 0;
    if (kept > 0 && cursor->next > 0)
        memmove(cursor->raw, cursor->raw + cursor->next, (size_t)kept);
    cursor->raw_position += cursor->next;
    cursor->bytes = kept;
    cursor->next = 0;
    wanted = size > CURSOR_PIECE ? size : CURSOR_PIECE;
    if (cursor->room < wanted) {
        uint8_t *more = realloc(cursor->raw, (size_t)(wanted + CURSOR_SLACK));
        if (more == NULL)
            return 0;
        memset(more + wanted, 0, CURSOR_SLACK);
        cursor->raw = more;
        cursor->room = wanted;
    }
    if (wanted > file_end - cursor->raw_position)
        wanted = file_end - cursor->raw_position;
    if (wanted < size)
        return 0;
    got = cursor_read(cursor->fd, cursor->raw + kept, (size_t)(wanted - kept), from);
    if (got > 0)
        cursor->bytes += got;
    memset(cursor->raw + cursor->bytes, 0, CURSOR_SLACK);
    return cursor->bytes >= size;
}

/* Enter the next batch. */
static enum cursor_status cursor_enter(plain_cursor *cursor, int64_t file_end) {
    const uint8_t *batch;
    int64_t size;

    if (cursor->raw_position + cursor->next >= file_end)
        return CURSOR_END;
    if (cursor->bytes - cursor->next < CURSOR_HEADER && !cursor_fill(cursor, file_end, CURSOR_HEADER))
        return CURSOR_LEFT;
    size = 12 + (int64_t)lf_get32(cursor->raw + cursor->next + 8);
    if (size < CURSOR_HEADER ||
        (cursor->bytes - cursor->next < size && !cursor_fill(cursor, file_end, size)))
        return CURSOR_LEFT;
    batch = cursor->raw + cursor->next;
    if (size > file_end - cursor->raw_position - cursor->next || batch[16] != 2 ||
        (lf_get16(batch + 21) & CURSOR_NOT_PLAIN) != 0 || lf_get64(batch) < 0 ||
        lf_get32(batch + 23) < 0 || lf_get64(batch) >= INT64_MAX - lf_get32(batch + 23) ||
        lf_get32(batch + 57) < 0 || lf_get64(batch) < cursor->after ||
        lf_crc32c(0, batch + 21, (size_t)size - 21) != (uint32_t)lf_get32(batch + 17))
        return CURSOR_LEFT;
    cursor->left = lf_get32(batch + 57);
    cursor->after = lf_get64(batch) + lf_get32(batch + 23) + 1;
    cursor->is_plain = 0;
    cursor->frame = (lf_frame){.base_offset = lf_get64(batch), .base_timestamp = lf_get64(batch + 27),
                               .timestamp_mask = -1};
    if (lf_get16(batch + 21) & CURSOR_APPEND_TIME) {
        cursor->frame.base_timestamp = lf_get64(batch + 35);
        cursor->frame.timestamp_mask = 0;
    }
    cursor->record = batch + CURSOR_HEADER;
    cursor->end = batch + size;
    cursor->place = (cursor_place){.batch_position = cursor->raw_position + cursor->next};
    cursor->next += size;
    cursor->place.batch_end = cursor->raw_position + cursor->next;
    return CURSOR_FULL;
}

/* Put the next bytes of the record that was begun; returns how many. */
static int64_t cursor_put_part(plain_cursor *cursor, uint8_t *out, int64_t room) {
    int64_t n = cursor->part_bytes < room ? cursor->part_bytes : room;

    if (n > 0)
        memcpy(out, cursor->part, (size_t)n);
    cursor->part += n;
    cursor->part_bytes -= n;
    if (n < room) {
        out[n++] = '\n';
        cursor->part = NULL;
    }
    cursor->place.is_inside = cursor->part != NULL;
    return n;
}

/* Begin a record for which the room may be short; 0 if it is left to Python. */
static int cursor_begin_part(plain_cursor *cursor) {
    lf_plain plain;
    int64_t room;

    if (!lf_take_plain(cursor->record, cursor->end, &plain))
        return 0;
    if (cursor->view == LF_TEXT_VIEW) {
        cursor->part = plain.value;
        cursor->part_bytes = plain.value_n > 0 ? plain.value_n : 0;
    } else {
        if (plain.size > CURSOR_LARGEST_RECORD)
            return 0;
        room = lf_longest_rendering(plain.size, 0);
        if (room > cursor->line_room) {
            uint8_t *more = realloc(cursor->line, (size_t)room);
            if (more == NULL)
                return 0;
            cursor->line = more;
            cursor->line_room = room;
        }
        cursor->part = cursor->line;
        cursor->part_bytes =
            lf_put_plain(cursor->line, cursor->view, &plain, &cursor->frame) - cursor->line;
    }
    cursor->record = plain.end;
    cursor->left--;
    return 1;
}

/* Render the records that are plain and for which there is room in any case. */
static int64_t cursor_run(plain_cursor *cursor, uint8_t *out, int64_t room) {
    int64_t last;

    if (cursor->view == LF_TEXT_VIEW)
        return lf_text_run(&cursor->record, cursor->end, &cursor->left, out, room, &last);
    return lf_view_run(&cursor->record, cursor->end, &cursor->left, cursor->view, &cursor->frame,
                       out, room);
}

/* Whether the records of the batch that were not begun are plain. */
static int cursor_is_plain(plain_cursor *cursor) {
    const uint8_t *record = cursor->record;
    lf_plain plain;

    for (int64_t left = cursor->left; !cursor->is_plain && left > 0; left--) {
        if (!lf_take_plain(record, cursor->end, &plain))
            return 0;
        record = plain.end;
    }
    cursor->is_plain = cursor->is_plain || record == cursor->end;
    return cursor->is_plain;
}

/* Render up to room bytes of what is before file_end, where a batch ends; room is more than 0.
   Returns how many; fewer only if the status says so. */
static int64_t cursor_render(plain_cursor *cursor, int64_t file_end, uint8_t *out, int64_t room,
                             enum cursor_status *status) {
    int64_t done = 0, got;

    for (;;) {
        got = 0;
        if (cursor->part != NULL && done < room) {
            got = cursor_put_part(cursor, out + done, room - done);
        } else if (done == room) {
            *status = cursor_is_plain(cursor) ? CURSOR_FULL : CURSOR_LEFT;
            return done;
        } else if (cursor->left > 0) {
            got = cursor_run(cursor, out + done, room - done);
            if (got > 0)
                cursor->place.is_inside = 0;
            /* One for which the room may be short, or that is not plain. */
            if (cursor->left > 0 && !cursor_begin_part(cursor)) {
                *status = CURSOR_LEFT;
                return done + got;
            }
        } else {
            *status = cursor->record == cursor->end ? cursor_enter(cursor, file_end) : CURSOR_LEFT;
            if (*status != CURSOR_FULL)
                return done;
        }
        done += got;
        cursor->place.delivered += got;
    }
}

/* Pass over what is to be passed over first, with memory for room bytes; 0 if that is left to Python. */
static int cursor_skip(plain_cursor *cursor, int64_t file_end, uint8_t *scratch, int64_t room) {
    enum cursor_status status = CURSOR_FULL;

    while (cursor->skipped > 0 && status == CURSOR_FULL)
        cursor->skipped -= cursor_render(cursor, file_end, scratch,
                                         cursor->skipped < room ? cursor->skipped : room, &status);
    return cursor->skipped == 0;
}

/* Where the next byte is: at the beginning of the next batch, if all of this one has been rendered. */
static cursor_place cursor_where(const plain_cursor *cursor) {
    int64_t next = cursor->raw_position + cursor->next;

    if (cursor->part == NULL && cursor->left == 0 && cursor->record == cursor->end)
        return (cursor_place){.batch_position = next, .batch_end = next};
    return cursor->place;
}

#endif
