/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request, checked before it is decoded: its type, its length, that every name in it ends within
 * its field, and that what follows is a set of ranks where there may be one. Later code may treat
 * each name as a string.
 */
#include "request.h"

#include "core/format/ranks.h"

#include <string.h>

#define COMMONS_MAX    32u

#define NO_TEXT        0, 0
#define TEXT(m, field) offsetof(struct m, field), sizeof(((struct m *)0)->field)

static const struct {
    uint32_t type;
    size_t bytes;             /* of the fixed part */
    size_t text_at, text_len; /* its one field of characters */
} kinds[] = {
    { HTH_LOCAL_ATTACH, sizeof(struct hth_local_attach), TEXT(hth_local_attach, job) },
    { HTH_LOCAL_JOIN, sizeof(struct hth_local_join), NO_TEXT },
    { HTH_LOCAL_RECOVER, sizeof(struct hth_local_recover), NO_TEXT },
    { HTH_LOCAL_BEGIN, sizeof(struct hth_local_begin), TEXT(hth_local_begin, name) },
    { HTH_LOCAL_SET_STEP, sizeof(struct hth_local_set_step), NO_TEXT },
    { HTH_LOCAL_SEAL, sizeof(struct hth_local_seal), NO_TEXT },
    { HTH_LOCAL_WRITTEN, sizeof(struct hth_local_written_chunks), NO_TEXT },
    { HTH_LOCAL_COMMON, sizeof(struct hth_local_common), TEXT(hth_local_common, name) },
    { HTH_LOCAL_COMMIT, sizeof(struct hth_local_head), NO_TEXT },
    { HTH_LOCAL_ABORT, sizeof(struct hth_local_head), NO_TEXT },
    { HTH_LOCAL_CANCEL, sizeof(struct hth_local_head), NO_TEXT },
    { HTH_LOCAL_FORGET, sizeof(struct hth_local_head), NO_TEXT },
    { HTH_LOCAL_FOLLOW, sizeof(struct hth_local_follow), NO_TEXT },
    { HTH_LOCAL_MANIFEST, sizeof(struct hth_local_map), NO_TEXT },
    { HTH_LOCAL_MAP, sizeof(struct hth_local_map), NO_TEXT },
    { HTH_LOCAL_UNMAP, sizeof(struct hth_local_unmap), NO_TEXT },
    { HTH_LOCAL_RANGE, sizeof(struct hth_local_map), NO_TEXT },
    { HTH_LOCAL_COMMON_GET, sizeof(struct hth_local_common), TEXT(hth_local_common, name) },
    { HTH_LOCAL_STATUS, sizeof(struct hth_local_head), NO_TEXT },
    { HTH_LOCAL_HISTORY, sizeof(struct hth_local_history), NO_TEXT },
    { HTH_LOCAL_EVENTS, sizeof(struct hth_local_history), NO_TEXT },
    { HTH_LOCAL_ELSEWHERE, sizeof(struct hth_local_elsewhere), TEXT(hth_local_elsewhere, name) },
    { HTH_LOCAL_METRICS, sizeof(struct hth_local_head), NO_TEXT },
    { HTH_LOCAL_NODES, sizeof(struct hth_local_nodes), NO_TEXT },
    { HTH_LOCAL_PLACES, sizeof(struct hth_local_history), NO_TEXT },
    { HTH_LOCAL_LOG_LEVEL, sizeof(struct hth_local_log_level), NO_TEXT },
    { HTH_LOCAL_UPGRADE, sizeof(struct hth_local_head), NO_TEXT },
    { HTH_LOCAL_CLOSE, sizeof(struct hth_local_close), NO_TEXT },
    { HTH_LOCAL_FIND, sizeof(struct hth_local_find), NO_TEXT },
    { HTH_LOCAL_GIVE, sizeof(struct hth_local_give), NO_TEXT },
    { HTH_LOCAL_TAKE, sizeof(struct hth_local_take), NO_TEXT },
    { HTH_LOCAL_REGAIN, sizeof(struct hth_local_regain), TEXT(hth_local_regain, name) },
    { HTH_LOCAL_REFIT, sizeof(struct hth_local_refit), NO_TEXT },
    { HTH_LOCAL_MEET, sizeof(struct hth_local_meet), TEXT(hth_local_meet, place.host) },
    { HTH_LOCAL_WISH, sizeof(struct hth_local_wish), NO_TEXT },
    { HTH_LOCAL_KEPT, sizeof(struct hth_local_head), NO_TEXT },
    { HTH_LOCAL_BAD, sizeof(struct hth_local_bad), NO_TEXT },
};

/* 1: it has as many names as it announces, each within its own field. */
static int request_names_end(const struct hth_local_recover *m, size_t len)
{
    const char *name = (const char *)(m + 1);

    if (m->count > COMMONS_MAX || len - sizeof(*m) != (size_t)m->count * HTH_COMMON_NAME)
        return 0;
    for (uint32_t i = 0; i < m->count; i++)
        if (!memchr(name + (size_t)i * HTH_COMMON_NAME, '\0', HTH_COMMON_NAME))
            return 0;
    return 1;
}

/* Where a set of ranks may begin in a request of this type; 0: it may have none. */
static size_t request_ranks_at(uint32_t type, size_t bytes)
{
    return type == HTH_LOCAL_BEGIN || type == HTH_LOCAL_REGAIN ? bytes : 0;
}

/* RECOVER has names behind its fixed part. ATTACH of a later version may be longer: it passes here,
 * so that it is refused for its version, by name. */
static int request_is_of_length(uint32_t type, size_t bytes, size_t len, size_t ranks_at)
{
    if (ranks_at)
        return len >= ranks_at;
    return len == bytes || (len > bytes && (type == HTH_LOCAL_ATTACH || type == HTH_LOCAL_RECOVER));
}

int request_is_whole(const struct hth_local_head *head, size_t len)
{
    const char *bytes = (const char *)head;
    size_t i = 0, count = sizeof(kinds) / sizeof(kinds[0]);
    struct hth_ranks ranks;
    size_t ranks_at;

    if (len < sizeof(*head) || head->length != len)
        return 0;
    while (i < count && kinds[i].type != head->type)
        i++;
    ranks_at = i < count ? request_ranks_at(head->type, kinds[i].bytes) : 0;
    if (i == count || !request_is_of_length(head->type, kinds[i].bytes, len, ranks_at))
        return 0;
    if (ranks_at && hth_ranks_decode(&ranks, bytes + ranks_at, len - ranks_at, NULL))
        return 0;
    if (kinds[i].text_len && !memchr(bytes + kinds[i].text_at, '\0', kinds[i].text_len))
        return 0;
    return head->type != HTH_LOCAL_RECOVER || request_names_end((const void *)head, len);
}
