/* The order of a write of lines. Python and the native threads bring the steps; the order is only here.

   A kill between any two steps leaves each line once: the next start takes an unfinished line for a
   record if the batch that its file announces is in the log, and otherwise continues with the line. */

#ifndef LOGFS_WRITEORDER_H
#define LOGFS_WRITEORDER_H

#include <stdint.h>

typedef struct write_steps {
    /* Note in the file of the unfinished line that the first batch has it; 0, or it failed. */
    int (*announce)(void *write);
    /* Append the batches; returns the bytes of their lines in this write, or -1: no batch is in the log. */
    int64_t (*append)(void *write);
    /* Cut off the announcement, if there is one: its batch is not in the log. */
    void (*cancel)(void *write);
    /* Begin an empty line: the announced batch is in the log. */
    void (*consume)(void *write);
    /* Keep the bytes after the last newline as an unfinished line, or as more of one; 0, or it failed. */
    int (*keep)(void *write);
} write_steps;

/* Apply a write of size bytes whose complete lines end at stop. continues: the first of them begins with
   the unfinished line. Returns the bytes accepted, or -1: none, because a step failed. */
static int64_t write_in_order(
    const write_steps *steps, void *write, int continues, int64_t stop, int64_t size) {
    if (stop > 0) {
        int64_t appended =
            continues && steps->announce(write) != 0 ? -1 : steps->append(write);
        if (appended < 0) {
            if (continues)
                steps->cancel(write);
            return -1;
        }
        if (continues)
            steps->consume(write);
        if (appended < stop)
            return appended;
    }
    if (size > stop && steps->keep(write) != 0)
        return stop > 0 ? stop : -1;
    return size;
}

#endif
