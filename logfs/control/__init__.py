"""The control protocol: how a program asks the daemon that owns a data directory. Pure.

frames: the bytes of requests and answers. requests: the table of requests with their fields.
``logfs.client`` is the side of the program, ``logfs.fs.service.server`` the side of the daemon.

The daemon listens on the socket ``logfs.socket`` in the root of the data directory. Its own user
and root may connect and send every request; other users are refused. A client sends a request,
reads frames with progress, then the answer. Then it may send the next request.
"""
