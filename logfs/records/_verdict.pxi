# Part of _core.pxi: the verdict on a batch, which every reader and every scan asks for.
#
# judge() tells why a batch cannot be used where it is. Readers ask it through whole_batches(), which
# Window of logfs.log.segments.batches calls, and scans through IndexBuilder. Both check order: the
# offsets of a batch are not below the end of the batch before it. The checksum, and whether all records
# decode, is checked by all that look at records.

cdef inline bint goes_back(Batch *b, int64_t after) noexcept nogil:
    """Whether a batch has offsets below one that the batches before it end at.

    The base offset of a compressed message of an old format is not known before it is opened.
    """
    if is_unopened(b):
        return b.last_offset < after and (b.magic == 0 or b.last_offset > 0)
    return b.base_offset < after


cdef str frame_problem(int code, bytes_t p):
    if code == BAD_MAGIC:
        return f"unsupported magic {p[16]}"
    if code == BAD_SIZE:
        return f"batch length {lf_get32(p + 8)} is too small"
    if p[16] < 2:
        return f"batch header is impossible: offset {lf_get64(p)}"
    return (
        f"batch header is impossible: base offset {lf_get64(p)}, last offset delta "
        f"{lf_get32(p + 23)}, {lf_get32(p + 57)} records"
    )


cdef str checksum_problem(bytes_t p, int64_t size):
    """Why the checksum does not fit, None if it does."""
    cdef uint32_t stored, computed
    if p[16] < 2:
        stored = <uint32_t>lf_get32(p + 12)
        computed = _crc32(borrowed(p + 16, size - 16))
    else:
        stored = <uint32_t>lf_get32(p + 17)
        computed = checksum(p, size)
    if stored == computed:
        return None
    return f"checksum differs: stored {stored:#010x}, computed {computed:#010x}"


cdef str judge(bytes_t p, int64_t available, int64_t after, int64_t *size, Batch *b):
    """Why the header of the batch at p cannot be used; None if it can, or is not all there.

    after: the offset after the batches before it, 0 if that is not known. size: 0 if it is not whole.
    """
    cdef int code = peek(p, available, size)
    if code == INCOMPLETE:
        return None
    if code == WHOLE:
        code = read_header(p, b)
    if code != WHOLE:
        return frame_problem(code, p)
    return order_problem(b, after) if goes_back(b, after) else None


cdef inline str order_problem(Batch *b, int64_t after):
    return f"base offset {b.last_offset if is_unopened(b) else b.base_offset} is below {after}"
