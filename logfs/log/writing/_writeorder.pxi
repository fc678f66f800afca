# Part of _end.pyx: a write of lines whose steps are Python's.

cdef write_steps _python_steps
_python_steps.announce = announce_by_python
_python_steps.append = append_by_python
_python_steps.cancel = cancel_by_python
_python_steps.consume = consume_by_python
_python_steps.keep = keep_by_python


@cython.final
cdef class _Steps:
    """The steps of one write, and what the first one that failed has raised."""

    cdef object write
    cdef object error

    def __cinit__(self, write):
        self.write = write

    cdef int64_t call(self, str name) noexcept:
        """Call a step; returns what it returns, 0 for None, or -1 if it raised."""
        if self.is_over():
            return -1
        try:
            done = getattr(self.write, name)()
        except BaseException as error:
            self.error = self.error or error
            return -1
        return 0 if done is None else done

    cdef bint is_over(self) noexcept:
        """Whether a step has raised what is no failure of the log or the disk: no step follows."""
        return self.error is not None and not isinstance(self.error, (OSError, LogfsError))


cdef int announce_by_python(void *write) noexcept:
    return <int>(<_Steps>write).call("announce")


cdef int64_t append_by_python(void *write) noexcept:
    return (<_Steps>write).call("append")


cdef void cancel_by_python(void *write) noexcept:
    (<_Steps>write).call("cancel")


cdef void consume_by_python(void *write) noexcept:
    (<_Steps>write).call("consume")


cdef int keep_by_python(void *write) noexcept:
    return <int>(<_Steps>write).call("keep")


def apply_in_order(write, *, bint continues, int64_t stop, int64_t size):
    """Apply a write of lines, by its steps, in the order of ``_writeorder.h``.

    Args:
        write: Has the steps: ``announce``, ``append``, ``cancel``, ``consume``, ``keep``.
        continues: Whether the first line begins with the unfinished line.
        stop: Where its complete lines end.
        size: Its bytes.

    Returns:
        The bytes accepted.

    Raises:
        OSError, LogfsError: What the step that failed has raised; nothing was accepted.
    """
    cdef _Steps steps = _Steps(write)
    cdef int64_t accepted = write_in_order(&_python_steps, <void *>steps, continues, stop, size)
    if accepted < 0 or steps.is_over():
        raise steps.error
    return accepted
