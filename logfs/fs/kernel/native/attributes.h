/* The attributes of files that grow and of directories, so that stat(2) takes no Python.

   Python says what it has answered. That stays true, but for the length and the time, as long as Python
   changes nothing of the partition: what is appended natively is added here. A change of owners,
   modes and topics is no change of a partition, so Python has all attributes forgotten then. */

#ifndef LOGFS_ATTRIBUTES_H
#define LOGFS_ATTRIBUTES_H

#include <stdint.h>

#include "../../../log/writing/_served.h"
#include "requests.h"

/* --- For Python ---------------------------------------------------------------------------------- */

/* Answer GETATTRs of an inode natively from now on, as long as Python has not changed its partition
   since it was marked with changes. before: the position at which the active segment begins in the view.
   append_key: if it may be opened to append natively, too: of its partition, as above. Else 0.
   shown: the number of the inode that programs see. */
void logfs_serving_know(uint64_t node, log_partition *partition, int64_t changes, int view,
                        int64_t before, uint32_t mode, uint32_t uid, uint32_t gid,
                        uint64_t append_key, uint64_t shown);

/* The same for a directory, which is as it is until logfs_serving_forget. valid_ms: how long the kernel may
   keep the attributes. */
void logfs_serving_know_directory(uint64_t node, uint32_t mode, uint32_t uid, uint32_t gid,
                                  int64_t modified_ms, uint32_t valid_ms);

/* Forget what is known of all inodes. */
void logfs_serving_forget(void);

/* --- For the threads that read requests ---------------------------------------------------------- */

/* Find the attributes of an inode. Returns 0 if they are left to Python. Any thread. */
int attributes_find(uint64_t node, struct attributes_reply *found);

/* Find the partition of an inode that may be opened to append, with a hold on it. changes: as it was when
   Python said so. key: of the partition, for the slots of handover.h. Returns 0 if that is left to
   Python. Any thread. */
int attributes_find_partition(
    uint64_t node, log_partition **partition, int64_t *changes, int *view, uint64_t *key);

#endif
