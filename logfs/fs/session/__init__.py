"""The life of a mount, from its start to its end.

machine        what a mount takes from the machine that it runs on
supervision    messages to systemd or to the holder
connection     the connection to the kernel: mounted, or adopted from the last daemon
fresh          the store of a mount that follows an object store
unmounting     taking a mount away
mount          starts and ends everything
"""
