/* Requests that may end each daemon that gets them.

   After a kill the kernel sends a request again, with REQUEST_RESENT, and the next daemon begins it. If
   that daemon ends without a plan before it has answered, the request is a suspect: the third daemon
   refuses it, or, if there are several, begins one after the other to find out which one it is. A
   request that waits (for records, say) is no longer under way, so it does not become one.

   There are two tables in the state: of the requests that this daemon has begun, and of those that the
   daemon before had begun when it ended. Each word is the number of a request; 0: free. */

#ifndef LOGFS_SUSPECTS_H
#define LOGFS_SUSPECTS_H

#include <stdint.h>

#define SUSPECTS 4096 /* in a table; further requests are not noted */

/* --- For Python; the thread of the event loop only ---------------------------------------------- */

/* How many requests the last two daemons had begun. */
uint64_t logfs_suspects(void);

/* Whether a request, by its number, is one of them. */
int logfs_is_suspect(uint64_t unique);

/* Note that one of several suspects begins; that any request waits from now on. */
void logfs_note_begun(uint64_t unique);
void logfs_note_waiting(uint64_t unique);

/* --- For the hooks ------------------------------------------------------------------------------- */

/* A connection was taken over. tables: two of SUSPECTS words. turn: differs from that of the last
   take-over by 1. was_planned: the daemon before has stopped by itself. */
void suspects_begin(uint64_t *tables, uint64_t turn, int was_planned);

/* A request goes to Python, which does not begin it yet if it is one of several suspects; it has been
   answered. Any thread. */
void suspects_note_begun(uint64_t unique);
void suspects_note_ended(uint64_t unique);

#endif
