/* Looking up names of topics and of files that grow, so that a path takes no Python.

   Python says which name means which inode. It has all names forgotten before it changes a topic, and says
   none until that is done. A name is answered only while the attributes of its inode are known
   (attributes.h): not after Python has changed the partition, and not while Python has to answer something
   about the partition before. Everything else is left to Python.

   The kernel adds up the replies, and takes these look-ups back with a FORGET. So they are counted before
   the reply. Python, which owns the inodes, takes the count together with the name: from then on each
   look-up of the inode comes to Python. So an inode that the kernel may know is never dropped. */

#ifndef LOGFS_NAMING_H
#define LOGFS_NAMING_H

#include <stddef.h>
#include <stdint.h>

#include "requests.h"

#define LOGFS_NAMING_PLACES 4096u

/* --- For Python ---------------------------------------------------------------------------------- */

/* Answer LOOKUPs of a name in a directory natively from now on, as long as the attributes of the inode
   are known. kept_ms: how long the kernel may keep the name. is_single: each open file of the name has
   another inode, and Python has just given this one; it is answered again after naming_give_back. Returns
   0, or the inode that has to be taken before: one of its names is at the same place. */
uint64_t logfs_naming_know(
    uint64_t parent, const char *name, size_t size, uint64_t node, uint32_t kept_ms, int is_single);

/* Leave LOOKUPs of an inode to Python again. Returns how many were answered since it was known. */
uint64_t logfs_naming_take(uint64_t node);

/* The same for all inodes; an inode is taken once for each of its names. There is room for
   LOGFS_NAMING_PLACES. Returns how many names there were. */
size_t logfs_naming_take_all(uint64_t *taken, uint64_t *lookups);

/* --- For the threads that read requests ---------------------------------------------------------- */

/* Answer a LOOKUP; returns 0 if it is left to Python. Any thread. */
int naming_look_up(const struct request_header *header, size_t size);

/* Note that a file of an inode was closed: a single name may give the inode again. Any thread. */
void naming_give_back(uint64_t node);

#endif
