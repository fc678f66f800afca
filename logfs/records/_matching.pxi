# Part of _native.pyx: which records a query may want, found before a record becomes an object.

cdef bint is_same(Span span, bytes other):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(other)
    return span.n == size and memcmp(span.p, PyBytes_AS_STRING(other), size) == 0


cdef bint has_any(bytes_t p, Py_ssize_t size, tuple needles):
    cdef bytes needle
    for needle in needles:
        if lf_find(p, size, <bytes_t>PyBytes_AS_STRING(needle), PyBytes_GET_SIZE(needle)) != NULL:
            return True
    return False


@cython.final
cdef class RecordSearch:
    """Tells which records ``decode_batches`` takes. Batches without any are passed over as a whole.

    Args:
        needles: The value contains one of them; none: any value, a null one too.
        keys: The key is one of them; none: any key.
        headers: Pairs of a key and a value, all of which the record has.
    """

    cdef tuple needles
    cdef tuple keys
    cdef tuple headers
    cdef tuple probes       # a batch with none of them has no record to take

    def __init__(self, needles=(), keys=(), headers=()):
        self.needles = tuple(needles)
        self.keys = tuple(keys)
        self.headers = tuple(headers)
        self.probes = self.needles or self.keys
        if self.headers and not self.probes:
            name, value = self.headers[0]
            self.probes = (value or name,)

    cdef bint may_be_in(self, Batch *b):
        return not self.probes or has_any(b.p, b.end - b.p, self.probes)

    cdef bint takes(self, Rec *r):
        cdef bytes key
        if self.needles and (r.value.n < 0 or not has_any(r.value.p, r.value.n, self.needles)):
            return False
        if self.keys:
            for key in self.keys:
                if is_same(r.key, key):
                    break
            else:
                return False
        return not self.headers or self.has_headers(r)

    cdef bint has_headers(self, Rec *r):
        cdef Span key, value
        cdef bytes_t p
        cdef int64_t i
        for name, wanted in self.headers:
            p = r.headers
            for i in range(r.header_count):
                p = skip_bytes(p, r.end, &key, 0)
                p = skip_bytes(p, r.end, &value, -1)
                if is_same(key, name) and is_same(value, wanted):
                    break
            else:
                return False
        return True
