/* SPDX-License-Identifier: Apache-2.0 */
/* The findings of doctor's checks, and the code that the checks share. */
#include "checkup.h"

#include "core/base/open.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void found(struct checkup *c, enum state state, const char *fmt, ...)
{
    struct finding *more = realloc(c->found, (c->count + 1) * sizeof(*more));
    va_list ap;

    if (!more) {
        remark("no memory for a finding of %s", c->check);
        return;
    }
    c->found = more;
    more += c->count++;
    *more = (struct finding){ .check = c->check, .state = state };
    va_start(ap, fmt);
    vsnprintf(more->text, sizeof(more->text), fmt, ap);
    va_end(ap);
}

void remedy(struct checkup *c, const char *fmt, ...)
{
    struct finding *f = c->count ? &c->found[c->count - 1] : NULL;
    va_list ap;

    if (!f)
        return;
    va_start(ap, fmt);
    if (vsnprintf(f->remedy, sizeof(f->remedy), fmt, ap) >= (int)sizeof(f->remedy))
        f->remedy[0] = '\0';
    va_end(ap);
}

const char *shell_word(const char *name, char *out, size_t len)
{
    static const char plain_ones[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789/._-+:@%,=";
    size_t n = 0;

    if (name[0] && !name[strspn(name, plain_ones)] && strlen(name) < len) {
        memcpy(out, name, strlen(name) + 1);
        return out;
    }
    if (strlen(name) > (len - 3) / 4) /* each may be a quote */
        name = "?";
    out[n++] = '\'';
    for (; *name; name++)
        if (*name == '\'')
            n += (size_t)snprintf(out + n, len - n, "'\\''");
        else
            out[n++] = *name;
    memcpy(out + n, "'", 2);
    return out;
}

int limit_of(const char *who, const char *name, uint64_t *out_soft, uint64_t *out_hard)
{
    char path[64], line[256], soft[32], hard[32];
    int rc = -1;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%.20s/limits", who);
    f = hth_open_kernel_text(path);
    while (f && rc && fgets(line, sizeof(line), f))
        if (!strncmp(line, name, strlen(name)) &&
                sscanf(line + strlen(name), "%31s %31s", soft, hard) == 2)
            rc = 0;
    if (f)
        fclose(f);
    if (rc)
        return -1;
    *out_soft = soft[0] == 'u' ? UINT64_MAX : strtoull(soft, NULL, 10);
    *out_hard = hard[0] == 'u' ? UINT64_MAX : strtoull(hard, NULL, 10);
    return 0;
}
