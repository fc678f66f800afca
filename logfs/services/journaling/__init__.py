"""The journal of a data directory in its store: what is not sealed yet, so that it outlives a disk.

Every ``freshness.ms`` one object with the new bytes of all partitions is created. With the sealed
segments, which the heads name, the store then has every record up to that moment.

    objects    the objects of the journal: names, bytes; pure
    root       the owner of the journal, and where each earlier epoch ended
    assembly   the ends of the partitions, from all objects
    notes      what a second machine needs beside records: groups, owners and modes, forwards
    kept       which objects are still needed; pure
    writing    the rounds of the daemon that owns the journal
    healing    a start after a power cut: the log gets what the disk has lost
    making     the directories of partitions, from heads and journal
    promotion  a data directory from heads and journal, on another machine
    diverging  records that this directory has and the store does not: another one owns it
    rejoining  such a directory becomes a copy of the store again
    cursor     the next object for a reader
    polling    when a reader asks for it; pure
    standbyfiles, standby, standbystore  a data directory that follows a store, and its mount

The rules::

    1  Rows are whole ranges of bytes of a .log below the published end. No lock is held while the
       store is asked, and no append waits for it.
    2  An object is created and never changed. If its name is taken, it has the nonce of this
       writer, or another writer has fenced this one.
    3  A partition with more than 64 MiB to send is sealed instead: its segment is copied.
    4  An object is deleted when the heads name what is in it, or a later object has it again. The
       last object of an epoch stays; a fence stays for a week.
    5  What holds an old object is sent again if it is small; else its segment is sealed.
    6  After a pause the root is read before the next object is created.
    7  If bytes change that were sent (packing, truncation), they are sent again from the start, as
       a new content. It replaces the earlier one once all of it is in the store.

Source of the rules 4 and 6: fences that a clean-up has deleted let a stalled writer continue.
"""
