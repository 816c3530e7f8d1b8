/* SPDX-License-Identifier: Apache-2.0 */
/* Names and sizes of dtypes, all from the one list in dtype.h. */
#include <hearth/dtype.h>

#include <string.h>

static const struct {
    enum hearth_dtype dtype;
    unsigned bytes;
    const char *name;
} dtypes[] = {
#define HEARTH_X(enumerator, value, text, size) \
    { .dtype = enumerator, .bytes = (size), .name = (text) },
    HEARTH_DTYPES(HEARTH_X)
#undef HEARTH_X
};

#define DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

const char *hearth_dtype_name(enum hearth_dtype dtype)
{
    for (size_t i = 0; i < DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return NULL;
}

enum hearth_dtype hearth_dtype_parse(const char *name)
{
    for (size_t i = 0; i < DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return dtypes[i].dtype;
    return HEARTH_DTYPE_NONE;
}

unsigned hearth_dtype_bytes(enum hearth_dtype dtype)
{
    for (size_t i = 0; i < DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].bytes;
    return 0;
}
