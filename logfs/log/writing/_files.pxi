# Part of _end.pyx: the files of another disk in the place of those of the machine.

cdef object _files = None       # what ``use_files`` was given
cdef object _raised = None      # by a call to it; None: nothing
cdef file_calls _calls
_calls.write = write_other
_calls.cut = cut_other
_calls.hold = hold_other
_calls.sync = sync_other


def use_files(files):
    """Let native code write to the files of another disk, for the whole process.

    Args:
        files: Has ``write(descriptor, data, position)``, ``cut(descriptor, size)`` and
            ``sync(descriptor)``, for the descriptors that ``File.fileno`` gives. An OSError is what
            the machine would answer; any other exception is raised by ``NativeWriter``, after the
            call has ended. None: the files of the machine.
    """
    global _files, appending_files
    _files = files
    appending_files = &MACHINE_FILES if files is None else &_calls


cdef int ask_files(call) noexcept:
    """Call a function; returns 0 or an errno."""
    global _raised
    try:
        call()
    except OSError as error:
        return error.errno or EIO
    except BaseException as error:
        _raised = _raised or error
        return EIO
    return 0


cdef int raise_of_files() except -1:
    """Raise what a call to the files has raised."""
    global _raised
    raised, _raised = _raised, None
    if raised is not None:
        raise raised
    return 0


cdef int write_other(int fd, const uint8_t *data, int64_t size, int64_t position) noexcept with gil:
    content = PyBytes_FromStringAndSize(<const char *>data, size)
    return ask_files(lambda: _files.write(fd, content, position))


cdef int cut_other(int fd, int64_t size) noexcept with gil:
    return ask_files(lambda: _files.cut(fd, size))


cdef int hold_other(int fd) noexcept nogil:
    return fd


cdef int sync_other(int fd, int *is_removed) noexcept with gil:
    is_removed[0] = 0
    return ask_files(lambda: _files.sync(fd))
