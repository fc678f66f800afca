"""The only code that touches data files.

``vfs`` says what the log needs of a disk, above all what is durable when; ``posix`` does it with
the operating system. Tests put a fake in its place that tears writes, fails and loses power.
"""
