"""The whole daemon in a simulation: one seed decides all that happens, and replays it.

preload.c         a hash of what goes to the disk and the kernel; kills, errors, no room
preloading        that library, and what parent and daemon share
power             power cuts: what was not synced is undone
kernel            a model of FUSE in the kernel, over a socket pair
calls             what system calls send
machine           the machine of the daemon: its time, threads and identifiers
child             a daemon in a child, which the parent moves
store             an object store that fails, for segments of the topic
controls          clients of the control socket
streams           what a writer has written, and what may be found of it
clients           programs that use the mount, and what they have seen
plans             what a seed makes likely
decisions         what of a run can be left out, and the fewest decisions that find its defect
schedule          what happens when, and the digest of it
__main__          the command line

The daemon is the real one, with pyfuse3, libfuse and the hooks. libfuse is told to mount at
``/dev/fd/N``, so it takes the socket as if a parent had opened /dev/fuse for it. It runs in one
thread. When nothing can run, it waits for the parent, which gives it requests, time or a kill.
"""
