/* What a member of a JSON value is, for queries: as json.loads of Python reads UTF-8, without objects.

   The whole value is read: one that is not JSON has no members, and of members with the same name
   the last one is taken. Where the bytes alone do not say what Python would make of them, the answer
   is LF_JSON_UNSURE, and Python has to read the value. */

#ifndef LF_JSON_H
#define LF_JSON_H

#include "_bytes.h"

enum { LF_JSON_NO, LF_JSON_YES, LF_JSON_UNSURE };

#define LF_JSON_DEPTH 100 /* objects and arrays in each other; Python reads what is deeper */
#define LF_JSON_OFF_PATH (-1)

typedef struct {
    const uint8_t *name;
    int64_t name_n;
    int64_t element; /* number of the element of an array; -1 if the name is no number */
} lf_json_step;

/* A member, from the outside in, and the text that it has to be. All bytes are UTF-8. */
typedef struct {
    const lf_json_step *steps;
    int64_t steps_n;
    const uint8_t *text;
    int64_t text_n;
} lf_json_member;

/* A value that is being read: p moves on, and is NULL after something that is no JSON. */
typedef struct {
    const uint8_t *p;
    const uint8_t *end;
    const lf_json_member *member;
    int found; /* what is known of the member so far */
} lf_json_reader;

static inline int lf_json_next(lf_json_reader *r) {
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r')) {
        r->p++;
    }
    return r->p < r->end ? *r->p : -1;
}

static inline int lf_json_is_digit(const lf_json_reader *r, const uint8_t *p) {
    return p < r->end && *p >= '0' && *p <= '9';
}

static inline int lf_json_is_same(const uint8_t *p, int64_t n, const uint8_t *other, int64_t m) {
    return n == m && memcmp(p, other, (size_t)n) == 0;
}

/* The bytes after the backslash of an escape; 0 if it is none. */
static inline int lf_json_escape(const uint8_t *p, const uint8_t *end) {
    if (p == end) {
        return 0;
    }
    if (*p != 'u') {
        return *p != 0 && strchr("\"\\/bfnrt", *p) != NULL;
    }
    for (int i = 1; i <= 4; i++) {
        if (p + i >= end || p[i] == 0 || strchr("0123456789abcdefABCDEF", p[i]) == NULL) {
            return 0;
        }
    }
    return 5;
}

/* Pass over the rest of a string, after its first quote; returns its length, -1 if it is broken. */
static inline int64_t lf_json_string(lf_json_reader *r, int *has_escape) {
    const uint8_t *begin = r->p, *p = begin;
    *has_escape = 0;
    for (;;) {
        while (r->end - p >= 16) {
            lf_v16 v = lf_load16(p);
            lf_v16 odd = (lf_v16)(v < 0x20) | (lf_v16)(v == '"') | (lf_v16)(v == '\\');
            if (lf_any16(odd)) {
                break;
            }
            p += 16;
        }
        while (p < r->end && *p != '"' && *p != '\\' && *p >= 0x20) {
            p++;
        }
        if (p == r->end || *p < 0x20) {
            r->p = NULL;
            return -1;
        }
        if (*p == '"') {
            r->p = p + 1;
            return p - begin;
        }
        int escaped = lf_json_escape(p + 1, r->end);
        if (escaped == 0) {
            r->p = NULL;
            return -1;
        }
        *has_escape = 1;
        p += 1 + escaped;
    }
}

static inline void lf_json_digits(lf_json_reader *r) {
    while (lf_json_is_digit(r, r->p)) {
        r->p++;
    }
}

/* Pass over a number, true, false, null or what Python takes beside them. */
static inline void lf_json_word(lf_json_reader *r) {
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    const uint8_t *p = r->p;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        int64_t n = (int64_t)strlen(words[i]);
        if (*p == (uint8_t)*words[i] && r->end - p >= n && memcmp(p, words[i], (size_t)n) == 0) {
            r->p = p + n;
            return;
        }
    }
    r->p += *p == '-';
    if (!lf_json_is_digit(r, r->p)) {
        r->p = NULL;
        return;
    }
    if (*r->p == '0') {
        r->p++;
    } else {
        lf_json_digits(r);
    }
    if (r->p < r->end && *r->p == '.' && lf_json_is_digit(r, r->p + 1)) {
        r->p++;
        lf_json_digits(r);
    }
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        p = r->p + 1;
        p += p < r->end && (*p == '+' || *p == '-');
        if (lf_json_is_digit(r, p)) {
            r->p = p;
            lf_json_digits(r);
        }
    }
}

static void lf_json_value(lf_json_reader *r, int64_t step, int depth);

static inline void lf_json_give_up(lf_json_reader *r) {
    r->p = NULL;
    r->found = LF_JSON_UNSURE;
}

/* Read the name of a member; returns the step that its value is at. */
static int64_t lf_json_name(lf_json_reader *r, int64_t step) {
    const lf_json_step *wanted;
    const uint8_t *begin;
    int has_escape;
    int64_t n;
    if (lf_json_next(r) != '"') {
        r->p = NULL;
        return LF_JSON_OFF_PATH;
    }
    begin = ++r->p;
    n = lf_json_string(r, &has_escape);
    if (step == LF_JSON_OFF_PATH || r->p == NULL) {
        return LF_JSON_OFF_PATH;
    }
    if (has_escape) {
        lf_json_give_up(r);
        return LF_JSON_OFF_PATH;
    }
    wanted = &r->member->steps[step];
    return lf_json_is_same(begin, n, wanted->name, wanted->name_n) ? step + 1 : LF_JSON_OFF_PATH;
}

/* Read the rest of an object or array, after its bracket. */
static void lf_json_container(lf_json_reader *r, int64_t step, int depth, int close) {
    int64_t number = 0, inner;
    int next = lf_json_next(r);
    if (depth == LF_JSON_DEPTH) {
        lf_json_give_up(r);
        return;
    }
    if (next == close) {
        r->p++;
        return;
    }
    for (;; number++) {
        inner = LF_JSON_OFF_PATH;
        if (close == '}') {
            inner = lf_json_name(r, step);
            if (r->p == NULL || lf_json_next(r) != ':') {
                r->p = NULL;
                return;
            }
            r->p++;
        } else if (step != LF_JSON_OFF_PATH && r->member->steps[step].element == number) {
            inner = step + 1;
        }
        lf_json_value(r, inner, depth + 1);
        if (r->p == NULL) {
            return;
        }
        next = lf_json_next(r);
        if (next == close) {
            r->p++;
            return;
        }
        if (next != ',') {
            r->p = NULL;
            return;
        }
        r->p++;
    }
}

/* Read a value; step: how many names of the path have led to it. */
static void lf_json_value(lf_json_reader *r, int64_t step, int depth) {
    const lf_json_member *m = r->member;
    int is_member = step == m->steps_n, has_escape = 0;
    int next = lf_json_next(r);
    const uint8_t *begin = r->p;
    int64_t n;
    if (step != LF_JSON_OFF_PATH) {
        r->found = LF_JSON_NO; /* one with the same name before it is not taken */
    }
    if (next < 0) {
        r->p = NULL;
        return;
    }
    if (next == '{' || next == '[') {
        r->p++;
        step = is_member ? LF_JSON_OFF_PATH : step;
        lf_json_container(r, step, depth, next == '{' ? '}' : ']');
        return;
    }
    if (next == '"') {
        begin = ++r->p;
        n = lf_json_string(r, &has_escape);
    } else {
        lf_json_word(r);
        n = r->p == NULL ? 0 : r->p - begin;
    }
    if (r->p != NULL && is_member) {
        r->found = has_escape ? LF_JSON_UNSURE : lf_json_is_same(begin, n, m->text, m->text_n);
    }
}

/* Whether bytes are JSON in which a member has its text. */
static int lf_json_has(const uint8_t *p, int64_t n, const lf_json_member *member) {
    lf_json_reader r = {p, p + n, member, LF_JSON_NO};
    if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) {
        r.p += 3; /* some programs begin UTF-8 with this mark */
    }
    lf_json_value(&r, 0, 0);
    if (r.p == NULL) {
        return r.found == LF_JSON_UNSURE ? LF_JSON_UNSURE : LF_JSON_NO;
    }
    if (lf_json_next(&r) >= 0) {
        return LF_JSON_NO;
    }
    if (r.found == LF_JSON_YES && lf_count(p, (size_t)n).high && !lf_is_utf8(p, (size_t)n)) {
        return LF_JSON_NO;
    }
    return r.found;
}

#endif
