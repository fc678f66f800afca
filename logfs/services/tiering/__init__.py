"""Tiered storage: the work. For the objects and files see ``logfs.log.remote``.

    stores     stores by their heads: rows, writers, orphans, problems
    heads      changing heads: fencing, lost replies, spilled tables
    copying    a sealed segment is stored
    securing   the head names it: after a look whether the store has all that it names
    dropping   its local files go (``local.retention.*``)
    removing   it goes altogether (``retention.*``, trim, deletion of the topic)
    uncopied   what retention deletes before it is copied
    owning     all of this for one partition, by the process that writes it
    topics     the objects of deleted topics
    ownership  the claim of a directory on a store

A crash at any step leaves objects that no head names, never a head that names what is not there.

    a copy        1 compare the head with the log, then fence: swap the head with the next epoch;
                    once per daemon and partition
                  2 put .log and .indexes under a new segment id
                  3 swap the head with the entries of all segments that are complete
                  4 note them in logfs.tiered
                  5 local retention may remove the local files
    a removal     1 the local log start moves, durably
                  2 swap the head: the log start, without the entries, their objects doomed
                  3 after the delay delete the objects
                  4 swap the head without them
"""
