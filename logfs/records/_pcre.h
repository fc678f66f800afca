/* Regular expressions of the library PCRE2, compiled to machine code. The library is loaded when an
 * expression is first needed; where it is missing, or cannot make machine code, there are none. */

#ifndef LF_PCRE_H
#define LF_PCRE_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

enum { LF_PCRE_NO, LF_PCRE_YES, LF_PCRE_UNSURE, LF_PCRE_GAVE_UP };

/* From pcre2.h, which is not needed to build this: these belong to the ABI of libpcre2-8.so.0. */
enum { LF_PCRE_JIT_COMPLETE = 1, LF_PCRE_NO_MATCH = -1, LF_PCRE_MATCH_LIMIT = -47 };

typedef struct {
    void *(*compile)(const uint8_t *, size_t, uint32_t, int *, size_t *, void *);
    int (*jit_compile)(void *, uint32_t);
    void *(*match_data_create)(uint32_t, void *);
    int (*jit_match)(const void *, const uint8_t *, size_t, size_t, uint32_t, void *, void *);
    void (*match_data_free)(void *);
    void (*code_free)(void *);
} lf_pcre_library;

static lf_pcre_library lf_pcre;

/* Return a function of the library as an object pointer, which POSIX lets be converted. */
static int lf_pcre_take(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    *(void **)function = found;
    return found != NULL;
}

/* Load the library, once; 0 if it is missing. The caller has the GIL. */
static int lf_pcre_load(void)
{
    static int state; /* 1 loaded, -1 missing */
    if (state == 0) {
        void *library = dlopen("libpcre2-8.so.0", RTLD_NOW | RTLD_LOCAL);
        int is_there = library != NULL
            && lf_pcre_take(library, "pcre2_compile_8", &lf_pcre.compile)
            && lf_pcre_take(library, "pcre2_jit_compile_8", &lf_pcre.jit_compile)
            && lf_pcre_take(library, "pcre2_match_data_create_8", &lf_pcre.match_data_create)
            && lf_pcre_take(library, "pcre2_jit_match_8", &lf_pcre.jit_match)
            && lf_pcre_take(library, "pcre2_match_data_free_8", &lf_pcre.match_data_free)
            && lf_pcre_take(library, "pcre2_code_free_8", &lf_pcre.code_free);
        state = is_there ? 1 : -1;
    }
    return state > 0;
}

/* Return an expression for several threads; NULL if it cannot be had. The caller has the GIL. */
static void *lf_pcre_new(const uint8_t *pattern, size_t size)
{
    int error;
    size_t place;
    if (!lf_pcre_load())
        return NULL;
    void *code = lf_pcre.compile(pattern, size, 0, &error, &place, NULL);
    if (code != NULL && lf_pcre.jit_compile(code, LF_PCRE_JIT_COMPLETE) != 0) {
        lf_pcre.code_free(code);
        return NULL;
    }
    return code;
}

static void lf_pcre_free(void *code)
{
    if (code != NULL)
        lf_pcre.code_free(code);
}

/* Return what one thread needs to match; NULL without memory. Free it with lf_pcre_end. */
static void *lf_pcre_begin(void)
{
    return lf_pcre.match_data_create(1, NULL);
}

static void lf_pcre_end(void *match)
{
    if (match != NULL)
        lf_pcre.match_data_free(match);
}

/* Say whether p[0..n) contains a match; unsure if that takes too much memory. It gives up after
   the library's limit of steps: another engine may take years. */
static int lf_pcre_find(const void *code, void *match, const uint8_t *p, size_t n)
{
    if (match == NULL)
        return LF_PCRE_UNSURE;
    int answer = lf_pcre.jit_match(code, p, n, 0, 0, match, NULL);
    if (answer >= 0)
        return LF_PCRE_YES;
    if (answer == LF_PCRE_MATCH_LIMIT)
        return LF_PCRE_GAVE_UP;
    return answer == LF_PCRE_NO_MATCH ? LF_PCRE_NO : LF_PCRE_UNSURE;
}

#endif
