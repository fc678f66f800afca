"""The names of the mount: from a path to a node, its inode number and its attributes.

The modules, lowest first:

    nodes           what an inode is: its key and its attributes
    rawnodes        nodes below ``.segments``
    tree            from a name to its node, from a directory to its names
    inodes          inode numbers, and the nodes that the kernel knows by them
    nativenames     names that the hooks look up
    indexwait       requests that wait for the positions of a partition
    storewaits      requests that wait for an object store
    lookups         look-ups, which never wait for either
    rules           what may be opened and created
    xattrs          extended attributes
    accesslog       a line for each open and change, if it is wanted
    replies         results in pyfuse3's types, and errors on the way out

``nodes``, ``rawnodes`` and ``tree`` are plain, synchronous and free of FUSE.
"""
