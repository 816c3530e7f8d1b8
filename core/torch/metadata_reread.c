/* SPDX-License-Identifier: Apache-2.0 */
/* Texts and integers of a `.metadata`, read again at the places that the records have. */
#include "metadata_parts.h"

struct hearth_text md_text(const struct hearth_metadata *md, uint32_t at)
{
    const unsigned char *p = md->bytes + at;
    const char *text = (const char *)p;

    if (at == 0)
        return (struct hearth_text){ 0 };
    if (*p == 0x8c)
        return (struct hearth_text){ text + 2, p[1] };
    if (*p == 'X')
        return (struct hearth_text){ text + 5, hth_get32(p + 1) };
    return (struct hearth_text){ text + 9, (size_t)hth_get64(p + 1) };
}

int64_t md_int(const struct hearth_metadata *md, uint32_t at)
{
    const unsigned char *p = md->bytes + at;

    return md_int_next(&p);
}

void md_dims(
        const struct hearth_metadata *md, uint32_t at, uint32_t ndim, int64_t out[HTH_DIMS_MAX])
{
    const unsigned char *p = md->bytes + at;

    for (uint32_t i = 0; i < ndim; i++)
        out[i] = md_int_next(&p);
}
