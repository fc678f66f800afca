"""The control socket: the daemon's side of ``logfs.control``.

query_commands     requests that change nothing
append_commands    requests that append
mirror_commands    requests of ``logfs mirror``
standby_commands   the request of ``logfs promote`` to a standby
commands           which request goes where, and requests that change topics
server             the socket, its connections and their limits
"""
