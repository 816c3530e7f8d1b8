/* SPDX-License-Identifier: Apache-2.0 */
/* Options from the environment, for programs and adapters: one table of names, defaults and help. */
#include "env.h"
#include "core/base/fail.h"
#include "core/base/opts.h"
#include <errno.h>
#include <hearth/hearth.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DOMAINS 4

#define ROW(k, variable, field, none, text)                                               \
    {                                                                                     \
        .name = "HEARTH_" variable, .kind = k, .at = offsetof(struct hearth_opts, field), \
        .standard = none, .help = text                                                    \
    }

static const struct hth_env_row rows[] = {
    ROW(HTH_ENV_TEXT, "ROOT", root, "", "tmpfs of Hearth's own, the same path on every node"),
    ROW(HTH_ENV_TEXT, "JOB", job, "", "name of the job"),
    ROW(HTH_ENV_U32, "RANK", rank, "0", "this process, from 0"),
    ROW(HTH_ENV_U32, "WORLD", world, "", "how many ranks there are"),
    ROW(HTH_ENV_TEXT, "NODE", node, "host name", "id of this node"),
    ROW(HTH_ENV_U32, "COPIES", copies, "1", "replicas beside the owner's own"),
    ROW(HTH_ENV_U32, "MIN_COPIES", min_copies, "copies", "replicas that PROTECTED needs"),
    ROW(HTH_ENV_U32, "KEEP", keep, "1", "protected saves retained"),
    ROW(HTH_ENV_BOOL, "ALLOW_DEGRADED", allow_degraded, "0", "1: fewer nodes than copies need"),
    ROW(HTH_ENV_LIST, "DOMAINS", domains, "", "rack,feed,...: failure domains, narrowest first"),
    ROW(HTH_ENV_START, "START", start, "auto", "auto, never or in_process"),
    ROW(HTH_ENV_TEXT, "ENGINE", engine, "found", "path of hearthd"),
    ROW(HTH_ENV_TEXT, "TRANSPORT", transport, "ofi", "ofi or ucx"),
    ROW(HTH_ENV_TEXT, "PROVIDER", provider, "tcp", "of the transport"),
    ROW(HTH_ENV_TEXT, "BIND", bind, "127.0.0.1", "numeric address for peers"),
    ROW(HTH_ENV_TEXT, "DEVICE", device, "of BIND", "network interface"),
    ROW(HTH_ENV_TEXT, "KEY_FILE", key_file, "", "32 bytes, mode 0600; none: loopback only"),
    ROW(HTH_ENV_U32, "ENGINE_PORT", port, "any", "port of the engine for peers"),
    ROW(HTH_ENV_NETWORK, "NETWORK", network, "hostile",
            "hostile, or trusted: no stranger reaches it"),
    ROW(HTH_ENV_BOOL, "ANY_ROOT", any_root, "0", "1: the root need not be a tmpfs"),
    ROW(HTH_ENV_U32, "OPEN_MS", open_ms, "60000", "deadline of open"),
    ROW(HTH_ENV_U32, "RECOVER_MS", recover_ms, "300000", "deadline of recover"),
    ROW(HTH_ENV_U32, "SAVE_MS", save_ms, "600000", "a save not protected by then is cancelled"),
    ROW(HTH_ENV_U32, "HEARTBEAT_MS", heartbeat_ms, "1000", "between engines"),
    ROW(HTH_ENV_U32, "DEAD_MS", dead_ms, "5000", "without a heartbeat a peer is lost"),
    ROW(HTH_ENV_U32, "STALL_MS", stall_ms, "5000", "without progress a pull is given up"),
    ROW(HTH_ENV_U32, "LINGER_S", linger_s, "86400", "an engine without ranks ends"),
    ROW(HTH_ENV_U32, "COPY_THREADS", copy_threads, "2", "of this rank's copies"),
    ROW(HTH_ENV_U32, "INFLIGHT_MIB", inflight_mib, "64", "being pulled by a node at once"),
    ROW(HTH_ENV_BOOL, "OFF", off, "0", "1: kill switch, nothing is kept"),
    ROW(HTH_ENV_U64, "LEASE_BYTES", lease_bytes, "0", "room for what readers keep"),
    ROW(HTH_ENV_U64, "SPARE_BYTES", spare_bytes, "0", "for repair without a replacement node"),
    ROW(HTH_ENV_U32, "LOG_LEVEL", log_level, "30", "10 error, 20 warn, 30 info, 40, 50"),
};

/* Lists live until exit; the chain keeps them in sight of leak checkers. */
static struct list {
    struct list *next;
    const char *name[DOMAINS];
    size_t count;
    char text[];
} * lists;
static pthread_mutex_t lists_lock = PTHREAD_MUTEX_INITIALIZER;

const struct hth_env_row *hth_env_rows(size_t *out_count)
{
    *out_count = sizeof(rows) / sizeof(rows[0]);
    return rows;
}

static int bad(
        const struct hth_env_row *row, const char *value, const char *may, struct hearth_error *err)
{
    return hth_fail(err, HEARTH_EINVAL, 0, "%s is '%.80s': give %s", row->name, value, may);
}

static int env_number(const struct hth_env_row *row, const char *value, uint64_t most,
        uint64_t *out, struct hearth_error *err)
{
    char *end;

    errno = 0;
    *out = strtoull(value, &end, 10);
    if (errno || end == value || *end || value[0] < '0' || value[0] > '9' || *out > most)
        return bad(row, value, most == 1 ? "0 or 1" : "a whole number that is not too large", err);
    return HEARTH_OK;
}

/* Options whose values have names. */
static const struct word {
    const char *name;
    enum hth_env_kind kind;
    uint32_t value;
} words[] = {
    { "auto", HTH_ENV_START, HEARTH_START_AUTO },
    { "never", HTH_ENV_START, HEARTH_START_NEVER },
    { "in_process", HTH_ENV_START, HEARTH_START_IN_PROCESS },
    { "hostile", HTH_ENV_NETWORK, HEARTH_NETWORK_HOSTILE },
    { "trusted", HTH_ENV_NETWORK, HEARTH_NETWORK_TRUSTED },
};

static int word(
        const struct hth_env_row *row, const char *value, uint64_t *out, struct hearth_error *err)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (words[i].kind == row->kind && !strcmp(words[i].name, value)) {
            *out = words[i].value;
            return HEARTH_OK;
        }
    return bad(row, value,
            row->kind == HTH_ENV_START ? "auto, never or in_process" : "hostile or trusted", err);
}

static int has_words(const struct hth_env_row *row)
{
    return row->kind == HTH_ENV_START || row->kind == HTH_ENV_NETWORK;
}

static int list_of(struct hearth_opts *o, const struct hth_env_row *row, const char *value,
        struct hearth_error *err)
{
    struct list *list = calloc(1, sizeof(*list) + strlen(value) + 1);
    char *save = NULL;

    if (!list)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %s", row->name);
    memcpy(list->text, value, strlen(value) + 1);
    for (char *p = strtok_r(list->text, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
        if (list->count == DOMAINS) {
            free(list);
            return bad(row, value, "at most four names with commas between", err);
        }
        list->name[list->count++] = p;
    }
    pthread_mutex_lock(&lists_lock);
    list->next = lists;
    lists = list;
    pthread_mutex_unlock(&lists_lock);
    o->domains = list->name;
    o->domain_count = list->count;
    return HEARTH_OK;
}

static int env_take(struct hearth_opts *o, const struct hth_env_row *row, const char *value,
        struct hearth_error *err)
{
    char *at = (char *)o + row->at;
    uint64_t most = row->kind == HTH_ENV_U64    ? UINT64_MAX
                    : row->kind == HTH_ENV_BOOL ? 1
                                                : UINT32_MAX;
    uint64_t v = 0;
    uint32_t narrow;
    int rc;

    if (row->kind == HTH_ENV_TEXT) {
        memcpy(at, &value, sizeof(value));
        return HEARTH_OK;
    }
    if (row->kind == HTH_ENV_LIST)
        return list_of(o, row, value, err);
    rc = has_words(row) ? word(row, value, &v, err) : env_number(row, value, most, &v, err);
    if (rc)
        return rc;
    narrow = (uint32_t)v;
    if (row->kind == HTH_ENV_U64)
        memcpy(at, &v, sizeof(v));
    else
        memcpy(at, &narrow, sizeof(narrow));
    return HEARTH_OK;
}

static int is_set(const struct hearth_opts *o, const struct hth_env_row *row)
{
    static const char zeros[sizeof(uint64_t)];
    size_t size = row->kind == HTH_ENV_U32 || row->kind == HTH_ENV_BOOL || has_words(row)
                          ? sizeof(uint32_t)
                          : sizeof(uint64_t);

    return memcmp((const char *)o + row->at, zeros, size) != 0;
}

int hearth_opts_from_env(struct hearth_opts *opts, struct hearth_error *err)
{
    struct hearth_opts o;
    int rc;

    if (!opts)
        return hth_fail(err, HEARTH_EINVAL, 0, "opts is NULL: begin with HEARTH_OPTS_INIT");
    if ((rc = hth_opts_copy(&o, sizeof(o), opts, err)))
        return rc;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *value = getenv(rows[i].name);

        /* An older caller has no place for the value, and cannot know of the variable. */
        if (!value || !value[0] || rows[i].at >= o.struct_size || is_set(&o, &rows[i]))
            continue;
        if ((rc = env_take(&o, &rows[i], value, err)))
            return rc;
    }
    return hth_give(opts, &o, sizeof(o), err);
}
