# Part of _encoding.pyx: which partition of a topic a line belongs to.

cdef enum:
    SEED = 0x9747b28c

cdef uint32_t murmur2_of(bytes_t p, int64_t n) noexcept nogil:
    """Hash a key. Source: Kafka Utils.murmur2."""
    cdef uint32_t h = <uint32_t>SEED ^ <uint32_t>n
    cdef uint32_t k
    cdef int64_t i
    cdef int64_t whole = n & ~3
    for i in range(0, whole, 4):
        k = p[i] | <uint32_t>p[i + 1] << 8 | <uint32_t>p[i + 2] << 16 | <uint32_t>p[i + 3] << 24
        k *= 0x5bd1e995U
        k ^= k >> 24
        k *= 0x5bd1e995U
        h *= 0x5bd1e995U
        h ^= k
    if n & 3:
        if n & 3 == 3:
            h ^= <uint32_t>p[whole + 2] << 16
        if n & 3 >= 2:
            h ^= <uint32_t>p[whole + 1] << 8
        h ^= p[whole]
        h *= 0x5bd1e995U
    h ^= h >> 13
    h *= 0x5bd1e995U
    return h ^ h >> 15


cdef inline int32_t place_of(bytes_t p, int64_t n, int32_t partitions) noexcept nogil:
    """Source: Kafka BuiltInPartitioner.partitionForKey."""
    return <int32_t>((murmur2_of(p, n) & 0x7fffffff) % <uint32_t>partitions)


def murmur2(bytes key):
    """Return Kafka's hash of a key, as Java's signed int."""
    return <int32_t>murmur2_of(<bytes_t>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


cdef int32_t place_of_tsv(bytes_t p, bytes_t lf, int32_t partitions, int32_t unkeyed) except -1:
    cdef Span key, value
    cdef int64_t size
    cdef bytes plain
    if split_tsv(p, lf, &key, &value) == NULL:
        return unkeyed
    size = plain_length(&key)
    if size < 0:
        return unkeyed
    if size == key.n:
        return place_of(key.p, size, partitions)
    plain = PyBytes_FromStringAndSize(NULL, 10 + size)      # put_plain writes the length, too
    p = <bytes_t>put_plain(<uint8_t *>PyBytes_AS_STRING(plain), key, size)
    return place_of(p - size, size, partitions)


cdef int32_t place_of_line(
    int view, bytes_t p, bytes_t lf, Span delimiter, int32_t partitions, int32_t unkeyed
) except -1:
    cdef Span key, value
    cdef bytes found
    if view == TSV:
        return place_of_tsv(p, lf, partitions, unkeyed)
    if view == TEXT:
        if delimiter.n and split_keyed(p, lf, delimiter, &key, &value):
            return place_of(key.p, key.n, partitions)
        return unkeyed
    try:
        found = parse_line(PyBytes_FromStringAndSize(<const char *>p, lf - p)).key
    except UnparsableLineError:
        return unkeyed
    if found is None:
        return unkeyed
    return place_of(<bytes_t>PyBytes_AS_STRING(found), PyBytes_GET_SIZE(found), partitions)


def partition_lines(
    int view, bytes delimiter, body, Py_ssize_t start, Py_ssize_t stop, int32_t partitions,
    int32_t unkeyed,
):
    """Sort complete lines by the partitions that Kafka's default partitioner gives their keys.

    Args:
        view: What the lines are: 0 text, 1 tsv, 2 jsonl.
        delimiter: Between key and value of text; empty: text has no keys.
        body: Buffer with the lines.
        start: Where in ``body`` to begin.
        stop: Where to end; the byte before it is a LF unless the range is empty.
        partitions: How many there are, at least 1.
        unkeyed: Where lines go that have no key, or that do not parse.

    Returns:
        The lines of each partition, one after the other in their order.

    Raises:
        ValueError: The range is not inside ``body`` or does not end with a line, or ``unkeyed`` is
            none of the partitions.

    Source: Kafka BuiltInPartitioner.partitionForKey.
    """
    cdef _View lines = window(body, start, stop)
    cdef bytes_t end = lines.p + stop
    cdef bytes_t p = lines.p + start
    cdef bytes_t run = p            # lines in a row that go to the same partition
    cdef bytes_t lf
    cdef int32_t place, last = unkeyed
    cdef Span between = span_of(delimiter)
    cdef list parts
    if not 0 <= unkeyed < partitions:
        raise ValueError(f"{unkeyed} is none of {partitions} partitions")
    if start < stop and end[-1] != 10:
        raise ValueError("the last line has no end")
    parts = [bytearray() for _ in range(partitions)]
    while p < end:
        lf = <bytes_t>memchr(p, 10, end - p)
        place = place_of_line(view, p, lf, between, partitions, unkeyed)
        if place != last:
            if p > run:
                (<bytearray>parts[last]).extend(borrowed(run, p - run))
            run = p
            last = place
        p = lf + 1
    if p > run:
        (<bytearray>parts[last]).extend(borrowed(run, p - run))
    return parts
