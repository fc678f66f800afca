"""The file system: the only code that imports pyfuse3 and trio.

The order of the modules, lowest first. Each imports only modules of lines above its own:

    errnos, options                    errors as errnos; the text after ``-o``
    suspects                           requests that may end each daemon
    hooks, kernelcache                 the C library beside libfuse; what the kernel has cached
    handover.descriptors, .journal     what outlives the daemon: descriptors and the state
    supervision, cpulatency            what systemd is told; processors that do not sleep
    interrupts, earlyreplies, ahead    signals, early replies and read-ahead, by the hooks
    passthrough, readerqueue           sealed files that the kernel reads; waiting readers
    diskcalls                          calls that may wait for a disk
    executor                           where the calls of a partition run, in which order
    partitions, compaction, inodes     a partition in the mount; compaction; inode numbers
    permissions                        owners and modes, and what they let a user do
    nodes                              what an inode is: its key and its attributes
    rawnodes, quotas, indexwait        nodes below ``.segments``; limits of users; unknown positions
    accesslog                          a line for each open and change, if it is wanted
    replies                            results in pyfuse3's types; errors on the way out
    tree, xattrs                       from names to nodes; extended attributes
    handover.slots … .restoring        writes applied once; nodes and open files after a restart
    handles                            what open files do
    rules, unmounting                  what may be opened and created; taking a mount away
    following, retention               the look at another program's directory; deletion by age
    followreads, fsyncs                reads that wait at the end of ``.follow``; fsyncs
    topics, tasks                      changes of topics; background tasks
    throttling, watching               writers that wait for a quota; counting for ``logfs top``
    filereads                          reads, on the event loop or in a thread
    openfiles                          the open files of the mount
    storewaits, lookups                waits for an object store; look-ups, which never wait for it
    refusedoperations, operations      the requests of the kernel
    metrics                            what Prometheus and ``logfs status`` read
    requests … listening               the control socket
    session                            the connection to the kernel: mounted or adopted
    mount                              starts and ends all of it

``tree``, ``nodes`` and ``handles`` are plain, synchronous and free of FUSE.
"""
