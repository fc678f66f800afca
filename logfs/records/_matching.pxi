# Part of _reading.pyx: which records a query wants, found before a record becomes an object.

cdef enum:
    LEFT_OUT = LF_JSON_NO
    WANTED = LF_JSON_YES
    UNSURE = LF_JSON_UNSURE
    GAVE_UP

cdef enum:
    LONGEST_NUMBER = 18     # digits; no array has so many elements


cdef struct Needle:
    bytes_t p
    int64_t n


cdef void *room_for(Py_ssize_t count, size_t size) except NULL:
    cdef void *room = realloc(NULL, (count + 1) * size)
    if room == NULL:
        raise MemoryError
    return room


cdef Needle needle_of(bytes text):
    return Needle(<bytes_t>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef Needle *needles_in(tuple texts) except NULL:
    """Point at bytes that the caller keeps; the array is to be freed."""
    cdef Needle *needles = <Needle *>room_for(len(texts), sizeof(Needle))
    cdef Py_ssize_t i
    for i in range(len(texts)):
        needles[i] = needle_of(texts[i])
    return needles


cdef inline bint is_same(const Span *span, const Needle *other) noexcept nogil:
    return span.n == other.n and memcmp(span.p, other.p, other.n) == 0


cdef bint has_any(bytes_t p, Py_ssize_t size, const Needle *needles, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        if lf_find(p, size, needles[i].p, needles[i].n) != NULL:
            return True
    return False


@cython.final
cdef class RecordSearch:
    """Tells which records a query wants. Batches without any are passed over as a whole.

    Args:
        needles: The value contains one of them; none: any value, a null one too.
        keys: The key is one of them; none: any key.
        headers: Pairs of a key and a value, all of which the record has.
        fields: Pairs of the path of a member, ``(name, ...)``, and its text, all in UTF-8: the value
            is JSON with all of these members.
        confirm: Decides about a value where native code cannot: ``(value) -> wanted``.
        always_confirms: ``confirm`` decides about all values that the other arguments want.
        expression: The value contains a match of it, as PCRE2 reads it; of no records with a null
            value. Without PCRE2, and for a value that it cannot decide about, ``confirm`` decides.
            A value on which PCRE2 reaches its limit of steps is an ``ExpressionError``.

    Attributes:
        is_native: ``confirm`` is called for hardly any value, so threads can search.
    """

    cdef tuple kept             # the bytes that the needles point at
    cdef Needle *needles
    cdef Needle *keys
    cdef Needle *headers        # key, value, key, value ...
    cdef Needle *probes         # a batch with none of them has no record to take
    cdef lf_json_member *fields
    cdef lf_json_step *steps
    cdef Py_ssize_t needle_count, key_count, header_count, probe_count, field_count
    cdef object confirm
    cdef bint always_confirms
    cdef void *expression       # NULL: none

    def __init__(
        self, needles=(), keys=(), headers=(), fields=(), confirm=None, always_confirms=False,
        bytes expression=None,
    ):
        cdef tuple found = tuple(needles), known = tuple(keys), members = tuple(fields)
        cdef tuple pairs = tuple([text for pair in headers for text in pair])
        cdef tuple probes = found or known or ((pairs[1] or pairs[0],) if pairs else ())
        if self.kept is not None:
            raise TypeError("a search is made once")
        if confirm is None and (members or always_confirms or expression is not None):
            raise ValueError("fields and expressions need a function that confirms")
        self.kept = (found, known, pairs, probes, members)
        self.needles, self.needle_count = needles_in(found), len(found)
        self.keys, self.key_count = needles_in(known), len(known)
        self.headers, self.header_count = needles_in(pairs), len(pairs) // 2
        self.probes, self.probe_count = needles_in(probes), len(probes)
        self.confirm, self.always_confirms = confirm, always_confirms
        if expression is not None:
            self.expression = lf_pcre_new(
                <bytes_t>PyBytes_AS_STRING(expression), PyBytes_GET_SIZE(expression)
            )
            if self.expression == NULL:
                self.always_confirms = True
        self.take_fields(members)

    def __dealloc__(self):
        lf_pcre_free(self.expression)
        free(self.needles)
        free(self.keys)
        free(self.headers)
        free(self.probes)
        free(self.fields)
        free(self.steps)

    @property
    def is_native(self):
        return not self.always_confirms

    cdef int take_fields(self, tuple members) except -1:
        cdef lf_json_step *step
        cdef lf_json_member *member
        cdef bytes name, text, digits
        cdef Py_ssize_t count = sum([len(path) for path, _ in members])
        self.fields = <lf_json_member *>room_for(len(members), sizeof(lf_json_member))
        self.steps = step = <lf_json_step *>room_for(count, sizeof(lf_json_step))
        for path, text in members:
            member = &self.fields[self.field_count]
            member.steps, member.steps_n = step, len(path)
            member.text, member.text_n = <bytes_t>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
            for name in path:
                step.name, step.name_n = <bytes_t>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
                step.element = -1
                digits = name.lstrip(b"0")
                if name.isdigit() and len(digits) < LONGEST_NUMBER:
                    step.element = int(digits or b"0")
                step += 1
            self.field_count += 1
        return 0

    cdef bint may_be_in(self, const Batch *b) noexcept nogil:
        return self.probe_count == 0 or has_any(b.p, b.end - b.p, self.probes, self.probe_count)

    cdef void *begin(self) noexcept nogil:
        """Return what one thread needs to judge, which ``lf_pcre_end`` frees."""
        return NULL if self.expression == NULL else lf_pcre_begin()

    cdef int judge(self, const Rec *r, void *match) noexcept nogil:
        """Say whether a record is wanted, as far as native code can.

        Args:
            match: What ``begin`` has returned.
        """
        cdef int answer = UNSURE if self.always_confirms else WANTED
        cdef int one
        cdef Py_ssize_t i
        if self.needle_count and (
            r.value.n < 0 or not has_any(r.value.p, r.value.n, self.needles, self.needle_count)
        ):
            return LEFT_OUT
        if self.key_count:
            for i in range(self.key_count):
                if is_same(&r.key, &self.keys[i]):
                    break
            else:
                return LEFT_OUT
        if self.header_count and not self.has_headers(r):
            return LEFT_OUT
        if r.value.n < 0 and (self.field_count or self.always_confirms or self.expression != NULL):
            return LEFT_OUT
        for i in range(self.field_count):
            one = lf_json_has(r.value.p, r.value.n, &self.fields[i])
            if one == LEFT_OUT:
                return LEFT_OUT
            if one == UNSURE:
                answer = UNSURE
        if self.expression != NULL:
            one = lf_pcre_find(self.expression, match, r.value.p, r.value.n)
            if one == LF_PCRE_NO:
                return LEFT_OUT
            if one == LF_PCRE_GAVE_UP:
                return GAVE_UP
            if one == LF_PCRE_UNSURE:
                answer = UNSURE
        return answer

    cdef bint takes(self, const Rec *r) except -1:
        """Decide whether a record is wanted."""
        cdef void *match = self.begin()
        cdef int answer = self.judge(r, match)
        lf_pcre_end(match)
        if answer == GAVE_UP:
            raise ExpressionError(
                f"the regular expression takes too many steps on a value of {r.value.n} bytes. "
                "Write it without repetitions inside of repetitions"
            )
        if answer != UNSURE:
            return answer == WANTED
        try:
            return bool(self.confirm(PyBytes_FromStringAndSize(<const char *>r.value.p, r.value.n)))
        except SystemError as error:  # a defect of Python's re
            raise ExpressionError(
                f"the regular expression fails on a value of {r.value.n} bytes ({error}). "
                "Write it in another way"
            ) from None

    cdef bint has_headers(self, const Rec *r) noexcept nogil:
        cdef Span key, value
        cdef const Needle *pair
        cdef bytes_t p
        cdef Py_ssize_t wanted
        cdef int64_t i
        for wanted in range(self.header_count):
            p = r.headers
            pair = self.headers + 2 * wanted
            for i in range(r.header_count):
                p = skip_bytes(p, r.end, &key, 0)
                p = skip_bytes(p, r.end, &value, -1)
                if is_same(&key, pair) and is_same(&value, pair + 1):
                    break
            else:
                return False
        return True
