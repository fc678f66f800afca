/* The cursor that reads natively, log/reading/_cursor.h, over any bytes. Built with sanitizers.

   Arguments: a .log, a view (0 text, 1 tsv, 2 jsonl), a number from which the sizes of the reads follow, and
   the file position and the bytes of its rendering at which to begin. Writes the rendering to stdout, and to
   stderr where the cursor has stopped: the numbers of the place, and the status. */

#define _GNU_SOURCE

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../logfs/log/reading/_cursor.h"

int main(int count, char **arguments) {
    static const int64_t sizes[] = {1, 3, 16, 17, 50, 1000, 70000};
    static uint8_t scratch[100];
    enum cursor_status status = CURSOR_FULL;
    cursor_place place = {0}, where;
    plain_cursor cursor;
    struct stat file;
    unsigned seed;
    int fd;

    if (count != 6 || (fd = open(arguments[1], O_RDONLY)) < 0 || fstat(fd, &file) != 0)
        return 2;
    seed = (unsigned)atoi(arguments[3]);
    place.batch_position = atoll(arguments[4]);
    place.delivered = atoll(arguments[5]);
    cursor_begin(&cursor, fd, atoi(arguments[2]), &place);
    where = place;
    if (!cursor_skip(&cursor, file.st_size, scratch, sizeof scratch))
        status = CURSOR_LEFT;
    while (status == CURSOR_FULL) {
        int64_t size = sizes[rand_r(&seed) % 7], got;
        uint8_t *out = malloc((size_t)size); /* a sanitizer sees the first byte after it */

        got = cursor_render(&cursor, file.st_size, out, size, &status);
        if (status != CURSOR_LEFT) {
            fwrite(out, 1, (size_t)got, stdout);
            where = cursor_where(&cursor);
        }
        free(out);
    }
    fprintf(stderr, "%lld %lld %d %d\n", (long long)where.batch_position, (long long)where.delivered,
            where.is_inside, (int)status);
    cursor_free(&cursor);
    return 0;
}
