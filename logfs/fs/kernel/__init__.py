"""What lies between the kernel and Python.

The modules, lowest first:

    errnos          errors as errnos
    permissions     owners and modes, and what they let a user do
    suspects        requests that may end each daemon
    library         ctypes: the types of the functions of the hooks
    serving         what the hooks answer natively
    hooks           the C library beside libfuse, in ``native/``: all of it
    cache           what the kernel has cached, dropped before its time
    interrupts      signals for programs that wait for an answer
    passthrough     sealed files that the kernel reads itself
    cpulatency      processors that do not sleep while small reads are answered

All of it works without the hooks, more slowly: each module has a way for ``hooks is None``.
"""
