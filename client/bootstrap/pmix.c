/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PMIx, the way Slurm and mpirun let processes find each other: in each gather every rank puts its
 * bytes under a key of its own, all meet at a fence that collects them, and each gets the others'.
 * No key is put twice: a get of the second value might return the first. Ranks may have put
 * different numbers of keys. So the bytes begin with the number of gathers that the rank has
 * completed; of several keys with the same number the newest counts.
 * The library is opened at run time, so that programs without it run too; the header is needed
 * when Hearth is built.
 */
#include "bootstrap.h"

#include "meeting/meeting.h"

#if __has_include(<pmix.h>)

#include "core/base/bytes.h"
#include <dlfcn.h>
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER 4u /* bytes of that number, before a row */

struct pmix {
    struct hearth_bootstrap base;
    void *so;
    pmix_status_t (*init)(pmix_proc_t *, pmix_info_t *, size_t);
    pmix_status_t (*finalize)(const pmix_info_t *, size_t);
    pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *);
    pmix_status_t (*commit)(void);
    pmix_status_t (*fence)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t);
    pmix_status_t (*get)(
            const pmix_proc_t *, const char *, const pmix_info_t *, size_t, pmix_value_t **);
    void (*value_free)(pmix_value_t *, size_t);
    const char *(*error)(pmix_status_t);
    pmix_proc_t me;
    uint32_t world, deadline_ms;
    size_t len; /* of a row */
    int started;
};

/* Of the process: all its bootstraps share one set of keys. */
static uint32_t own_keys; /* keys that this rank has put */
static uint32_t gathers;  /* completed gathers, as far as this rank knows */
static uint32_t highest;  /* the highest number of gathers that a rank has put */
static uint32_t *seen;    /* [world] how many keys of each rank were read */

static const char *pmix_words(const struct pmix *p, pmix_status_t st)
{
    return p->error ? p->error(st) : "an error";
}

static int pmix_load(struct pmix *p, struct hearth_error *err)
{
    struct {
        const char *name;
        void *at;
        int needed;
    } symbols[] = { { "PMIx_Init", &p->init, 1 }, { "PMIx_Finalize", &p->finalize, 1 },
        { "PMIx_Put", &p->put, 1 }, { "PMIx_Commit", &p->commit, 1 },
        { "PMIx_Fence", &p->fence, 1 }, { "PMIx_Get", &p->get, 1 },
        { "PMIx_Value_free", &p->value_free, 0 }, { "PMIx_Error_string", &p->error, 0 } };

    p->so = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!p->so)
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
                "PMIx is not there (%s): install libpmix2, or use another bootstrap", dlerror());
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *f = dlsym(p->so, symbols[i].name);

        if (!f && symbols[i].needed)
            return hth_fail(err, HEARTH_EUNSUPPORTED, 0, "this PMIx has no %s", symbols[i].name);
        memcpy(symbols[i].at, &f, sizeof(f));
    }
    return HEARTH_OK;
}

static void pmix_info_set(pmix_info_t *info, const char *key)
{
    memset(info, 0, sizeof(*info));
    snprintf(info->key, sizeof(info->key), "%s", key);
}

static void pmix_info_timeout(pmix_info_t *info, uint32_t ms)
{
    pmix_info_set(info, PMIX_TIMEOUT);
    info->value.type = PMIX_INT;
    info->value.data.integer = (int)((ms + 999) / 1000);
}

/* Values are the library's to free; without its function a value of 512 bytes a rank stays. */
static void pmix_value_free(const struct pmix *p, pmix_value_t *v)
{
    if (p->value_free) {
        p->value_free(v, 1);
        return;
    }
    if (v->type == PMIX_BYTE_OBJECT)
        free(v->data.bo.bytes);
    free(v);
}

static int pmix_put(
        struct pmix *p, const char *key, const void *mine, size_t len, struct hearth_error *err)
{
    pmix_value_t v;
    pmix_info_t info[2];
    pmix_status_t st;

    memset(&v, 0, sizeof(v));
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = (char *)(uintptr_t)mine;
    v.data.bo.size = len;
    if ((st = p->put(PMIX_GLOBAL, key, &v)) != PMIX_SUCCESS || (st = p->commit()) != PMIX_SUCCESS)
        return hth_fail(err, HEARTH_EIO, st, "PMIx does not take our data: %s", pmix_words(p, st));
    pmix_info_set(&info[0], PMIX_COLLECT_DATA);
    info[0].value.type = PMIX_BOOL;
    info[0].value.data.flag = true;
    pmix_info_timeout(&info[1], p->deadline_ms);
    if ((st = p->fence(NULL, 0, info, 2)) != PMIX_SUCCESS)
        return hth_fail(err, HEARTH_ETIMEOUT, st,
                "not all of %u ranks came to the PMIx fence in %u ms: %s", p->world, p->deadline_ms,
                pmix_words(p, st));
    return HEARTH_OK;
}

/* Returns the number of bytes, or 0. maybe: the key need not exist, so the call does not wait. */
static size_t pmix_get(struct pmix *p, uint32_t rank, uint32_t number, int maybe, void *out)
{
    const size_t whole = NUMBER + p->len;
    pmix_proc_t who = p->me;
    pmix_value_t *v = NULL;
    pmix_info_t info;
    char key[64];
    size_t len;

    who.rank = rank;
    snprintf(key, sizeof(key), "hearth.%u", number);
    if (maybe) {
        pmix_info_set(&info, PMIX_OPTIONAL);
        info.value.type = PMIX_BOOL;
        info.value.data.flag = true;
    } else {
        pmix_info_timeout(&info, p->deadline_ms);
    }
    if (p->get(&who, key, &info, 1, &v) != PMIX_SUCCESS || !v)
        return 0;
    len = v->type == PMIX_BYTE_OBJECT && v->data.bo.size > NUMBER ? v->data.bo.size : 0;
    memcpy(out, v->data.bo.bytes, len < whole ? len : whole);
    pmix_value_free(p, v);
    return len;
}

/* The newest row that the rank has put for our gather. Rows of failed gathers may come before it,
 * and a fast rank may have put its next row already. */
static int pmix_newest(struct pmix *p, uint32_t rank, void *out)
{
    unsigned char *next = malloc(NUMBER + p->len);
    int found = 0;
    size_t len;

    while (next && (len = pmix_get(p, rank, seen[rank] + 1, found, next))) {
        uint32_t number = hth_get32(next);

        if (number > highest)
            highest = number;
        if (number > gathers)
            break;
        seen[rank]++;
        found = number == gathers && len == NUMBER + p->len;
        memcpy(out, next + NUMBER, p->len);
    }
    free(next);
    return found;
}

static int pmix_collect(struct pmix *p, const void *mine, void *all, struct hearth_error *err)
{
    unsigned char *there = calloc(p->world, 1);
    uint32_t missing = 0;
    char who[200];

    if (!there)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %u ranks", p->world);
    memset(there, 1, p->world);
    /* After a failed rank all others would be waited for in turn: one is enough to know. */
    for (uint32_t i = 0; i < p->world && !missing; i++) {
        if (i == p->me.rank)
            memcpy((char *)all + i * p->len, mine, p->len);
        else
            there[i] = (unsigned char)pmix_newest(p, i, (char *)all + i * p->len);
        missing += !there[i];
    }
    hth_ranks_text(who, sizeof(who), there, p->world);
    free(there);
    return missing ? hth_fail(err, HEARTH_ETIMEOUT, 0,
                             "PMIx does not give the data of rank %s, or it is of another size",
                             who)
                   : HEARTH_OK;
}

static int pmix_allgather(
        void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    struct pmix *p = self;
    unsigned char *put = malloc(NUMBER + len);
    char key[64];
    int rc;

    if (!put)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %zu bytes", len);
    p->len = len;
    snprintf(key, sizeof(key), "hearth.%u", ++own_keys);
    hth_put32(put, gathers);
    memcpy(put + NUMBER, mine, len);
    rc = pmix_put(p, key, put, NUMBER + len, err);
    free(put);
    if (!rc && !(rc = pmix_collect(p, mine, all, err)))
        highest = highest > gathers ? highest : gathers + 1;
    gathers = highest;
    return rc;
}

static void pmix_close(struct hearth_bootstrap *bootstrap)
{
    struct pmix *p = bootstrap->self;

    if (p->started)
        p->finalize(NULL, 0);
    /* The library stays loaded: it may have threads of its own, and MPI may use it too. */
    free(p);
}

static int pmix_start(struct pmix *p, struct hearth_error *err)
{
    pmix_proc_t all;
    pmix_value_t *v = NULL;
    pmix_status_t st;
    int rc;

    if ((rc = pmix_load(p, err)))
        return rc;
    if ((st = p->init(&p->me, NULL, 0)) != PMIX_SUCCESS)
        return hth_fail(err, HEARTH_EUNSUPPORTED, st,
                "no PMIx server started this process (%s): start it with mpirun or srun "
                "--mpi=pmix, or use another bootstrap",
                pmix_words(p, st));
    p->started = 1;
    all = p->me;
    all.rank = PMIX_RANK_WILDCARD;
    if ((st = p->get(&all, PMIX_JOB_SIZE, NULL, 0, &v)) != PMIX_SUCCESS || !v)
        return hth_fail(err, HEARTH_EUNSUPPORTED, st, "PMIx does not tell the job's size: %s",
                pmix_words(p, st));
    p->world = v->data.uint32;
    pmix_value_free(p, v);
    if (!seen)
        seen = calloc(p->world, sizeof(*seen));
    return seen ? HEARTH_OK : hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %u ranks", p->world);
}

int hearth_bootstrap_pmix(uint32_t deadline_ms, struct hearth_bootstrap **out, uint32_t *out_rank,
        uint32_t *out_world, struct hearth_error *err)
{
    struct pmix *p;
    int rc;

    if ((rc = hth_bootstrap_check(0, 1, deadline_ms, out, err)))
        return rc;
    p = calloc(1, sizeof(*p));
    if (!p)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a bootstrap");
    p->base = (struct hearth_bootstrap){
        .struct_size = sizeof(p->base), .allgather = pmix_allgather, .close = pmix_close, .self = p
    };
    p->deadline_ms = deadline_ms;
    if ((rc = pmix_start(p, err))) {
        pmix_close(&p->base);
        return rc;
    }
    if (out_rank)
        *out_rank = p->me.rank;
    if (out_world)
        *out_world = p->world;
    *out = &p->base;
    return HEARTH_OK;
}

#else

int hearth_bootstrap_pmix(uint32_t deadline_ms, struct hearth_bootstrap **out, uint32_t *out_rank,
        uint32_t *out_world, struct hearth_error *err)
{
    (void)out_rank, (void)out_world;
    int rc = hth_bootstrap_check(0, 1, deadline_ms, out, err);

    return rc ? rc
              : hth_fail(err, HEARTH_EUNSUPPORTED, 0,
                        "this build has no PMIx: build it with libpmix-dev, or use another "
                        "bootstrap");
}

#endif
