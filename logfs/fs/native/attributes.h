/* The attributes of files that grow, so that stat(2) takes no Python.

   Python says what it has answered. That stays true, but for the length and the time, as long as Python
   changes nothing of the partition: what is appended without Python is added here. A change of owners
   and modes is no change of a partition, so Python has all attributes forgotten then. */

#ifndef LOGFS_ATTRIBUTES_H
#define LOGFS_ATTRIBUTES_H

#include <stdint.h>

#include "../../log/writing/_served.h"
#include "requests.h"

/* Find the attributes of an inode. Returns 0 if they are left to Python. Any thread. */
int attributes_find(uint64_t node, struct attributes_reply *found);

/* Find the partition of an inode that may be opened to append, with a hold on it. changes: as it was when
   Python said so. key: of the partition, for the slots of handover.h. Returns 0 if that is left to
   Python. Any thread. */
int attributes_find_partition(
    uint64_t node, log_partition **partition, int64_t *changes, int *view, uint64_t *key);

#endif
