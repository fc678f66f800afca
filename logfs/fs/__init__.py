"""The file system: the only code that knows pyfuse3 and trio.

``tree`` says what the names of the mount are, ``handles`` what open files do; both are plain,
synchronous and free of FUSE. ``executor`` decides where a call runs, ``operations`` turns requests
into calls and results into replies, ``tasks`` does what nobody asked for, ``mount`` starts and ends
it all.
"""
