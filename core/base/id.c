/* SPDX-License-Identifier: Apache-2.0 */
/* Ids as text and in order, and the rules for names that become paths. */
#include "id.h"

#include <stdio.h>
#include <string.h>

/* No save, saves with an epoch that cannot be, saves. */
static int age_group(uint64_t epoch)
{
    return !epoch ? 0 : epoch > HTH_EPOCH_MOST ? 1 : 2;
}

int hth_save_cmp(struct hth_save_id a, struct hth_save_id b)
{
    int order = age_group(a.epoch) - age_group(b.epoch);

    if (order)
        return order;
    if (a.epoch != b.epoch)
        return a.epoch < b.epoch ? -1 : 1;
    if (a.nonce != b.nonce)
        return a.nonce < b.nonce ? -1 : 1;
    if (a.step != b.step)
        return a.step < b.step ? -1 : 1;
    a.attempt ^= HTH_ATTEMPT_SOME;
    b.attempt ^= HTH_ATTEMPT_SOME;
    return a.attempt < b.attempt ? -1 : a.attempt > b.attempt;
}

void hth_save_text(struct hth_save_id save, char out[HTH_SAVE_TEXT])
{
    snprintf(out, HTH_SAVE_TEXT, "%016" PRIx64 "-%016" PRIx64 "-%016" PRIx64 "-%08" PRIx32,
            save.epoch, save.nonce, save.step, save.attempt);
}

/* Exactly `digits` lower-case hex digits and then `end`; returns what follows, or NULL. */
static const char *id_hex(const char *text, int digits, char end, uint64_t *out)
{
    uint64_t v = 0;

    for (int i = 0; i < digits; i++) {
        char c = text[i];

        if (c >= '0' && c <= '9')
            v = v << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            v = v << 4 | (uint64_t)(c - 'a' + 10);
        else
            return NULL;
    }
    if (text[digits] != end)
        return NULL;
    *out = v;
    return text + digits + 1;
}

int hth_save_parse(const char *text, struct hth_save_id *out)
{
    struct hth_save_id save;
    uint64_t attempt;

    if (!(text = id_hex(text, 16, '-', &save.epoch)) ||
            !(text = id_hex(text, 16, '-', &save.nonce)) ||
            !(text = id_hex(text, 16, '-', &save.step)) || !id_hex(text, 8, '\0', &attempt))
        return HEARTH_EINVAL;
    save.attempt = (uint32_t)attempt;
    *out = save;
    return HEARTH_OK;
}

#define STEP_FRONT "step-"

int hth_step_dir_parse(const char *name, uint64_t *out_step)
{
    const char *p = name + sizeof(STEP_FRONT) - 1;

    if (!strncmp(name, STEP_FRONT, sizeof(STEP_FRONT) - 1) && *p == '0' && p[1] != '_')
        return HEARTH_EINVAL;
    return hth_step_dir_theirs(name, out_step);
}

int hth_step_dir_theirs(const char *name, uint64_t *out_step)
{
    const char *p = name + sizeof(STEP_FRONT) - 1;
    uint64_t step = 0;

    if (strncmp(name, STEP_FRONT, sizeof(STEP_FRONT) - 1) != 0 || *p < '0' || *p > '9')
        return HEARTH_EINVAL;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(step, 10u, &step) ||
                __builtin_add_overflow(step, (uint64_t)(*p - '0'), &step))
            return HEARTH_EINVAL;
    if (strcmp(p, "_ckpt") != 0)
        return HEARTH_EINVAL;
    *out_step = step;
    return HEARTH_OK;
}

static int name_plain(const char *name)
{
    size_t n = 0;

    for (; name[n]; n++) {
        char c = name[n];
        int fits = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                   c == '.' || c == '_' || c == '-';

        if (!fits || n >= HTH_NAME_MAX)
            return 0;
    }
    return n > 0;
}

static int name_check(const char *what, const char *name, struct hearth_error *err)
{
    if (!name_plain(name) || name[0] == '.')
        return hth_fail(err, HEARTH_EINVAL, 0,
                "'%.80s' cannot name a %s: use 1 to %d of A-Z a-z 0-9 . _ - and no dot in front",
                name, what, HTH_NAME_MAX);
    return HEARTH_OK;
}

int hth_job_check(const char *job, struct hearth_error *err)
{
    return name_check("job", job, err);
}

int hth_node_check(const char *node, struct hearth_error *err)
{
    return name_check("node", node, err);
}

int hth_object_name_check(const char *name, struct hearth_error *err)
{
    static const char tmp[] = ".tmp"; /* what is still being received */
    size_t len = strnlen(name, HTH_NAME_MAX + 1);

    if (!name_plain(name) || !strcmp(name, ".") || !strcmp(name, "..") ||
            (len >= sizeof(tmp) - 1 && !strcmp(name + len - (sizeof(tmp) - 1), tmp)))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "'%.80s' cannot name an object: use 1 to %d of A-Z a-z 0-9 . _ -, but not '.', "
                "'..' and nothing that ends in .tmp",
                name, HTH_NAME_MAX);
    return HEARTH_OK;
}

int hth_foreign_name_check(const char *name, struct hearth_error *err)
{
    size_t len = strnlen(name, 256);

    if (len == 0 || len > 255 || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "'%.80s' cannot name a file of a container: 1 to 255 bytes without '/', not '.' "
                "or '..'",
                name);
    return HEARTH_OK;
}

const char *hth_foreign_buffer(const char *link, const char *base)
{
    static const char tail[] = "/" HTH_BUFFERS "/";
    size_t len = strlen(base), all = len + sizeof(tail) - 1;

    if (!len || strncmp(link, base, len) != 0 || strncmp(link + len, tail, sizeof(tail) - 1) != 0 ||
            hth_foreign_name_check(link + all, NULL))
        return NULL;
    return link + all;
}
