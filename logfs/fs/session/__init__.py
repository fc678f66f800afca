"""The life of a mount, from its start to its end.

supervision    messages to systemd or to the holder
connection     the connection to the kernel: mounted, or adopted from the last daemon
unmounting     taking a mount away
mount          starts and ends everything
"""
