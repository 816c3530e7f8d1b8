/* SPDX-License-Identifier: Apache-2.0 */
/* A job and its engine: does one run, does it answer, and should one run. */
#include "running.h"

#include "core/base/open.h"
#include "core/base/root.h"
#include "core/store/store_tmpfs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An engine removes its socket when it ends in order. *out_others: it is another user's. */
static int running_left_socket(int job, int *out_others)
{
    int fd = hth_open_below(job, HTH_RECORDS_DIR "/sock", O_PATH, 0);
    struct stat st;

    *out_others = fd >= 0 && geteuid() != 0 && !fstat(fd, &st) && st.st_uid != geteuid();
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void running_ask(struct running *r, const char *root)
{
    struct hth_lock_holder engine = { 0 };
    char holder[HTH_LOCK_HOLDER_TEXT];
    char *text = engine_status(r->fd);
    int left;

    r->status = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    if (json_is_object(r->status))
        return;
    json_decref(r->status);
    r->status = NULL;
    if (hth_store_locked(root, r->name, &engine, NULL))
        engine.held = 0;
    left = running_left_socket(r->fd, &r->is_others);
    if (r->is_others)
        snprintf(r->why, sizeof(r->why),
                "The job is another user's: its engine answers to that user and to root alone");
    else if (engine.held)
        snprintf(r->why, sizeof(r->why),
                "The engine, %s, has the job and does not answer within 2 s: it stands still",
                hth_lock_holder_text(&engine, holder));
    else if (left)
        snprintf(r->why, sizeof(r->why),
                "No engine runs, and the last one did not end in order: a rank that still runs "
                "starts the next one; the saves stay");
}

int running_open(const char *root, const char *name, struct running *out, struct hearth_error *err)
{
    struct hearth_error cause = { 0 };
    int rc;

    *out = (struct running){ .fd = -1 };
    snprintf(out->name, sizeof(out->name), "%.255s", name);
    rc = job_open(root, name, &out->fd, &cause);
    rc = rc ? rc : job_check(out->fd, name, &cause);
    if (rc == HEARTH_ENOENT)
        return job_unknown(root, name, err);
    if (rc)
        return hth_fail(err, rc, cause.native, "%s", cause.text);
    running_ask(out, root);
    return HEARTH_OK;
}

int running_need(const char *root, const char *name, struct running *out, struct hearth_error *err)
{
    int rc = running_open(root, name, out, err);

    if (rc || out->status)
        return rc;
    if (out->why[0])
        return hth_fail(err, HEARTH_EENGINE, 0, "%s", out->why);
    return hth_fail(err, HEARTH_ENOENT, 0,
            "no engine runs on job '%.64s': hearth ls shows what lies here", name);
}

void running_free(struct running *r)
{
    if (r->fd >= 0)
        close(r->fd);
    json_decref(r->status);
    *r = (struct running){ .fd = -1 };
}

char **running_names(const char *root, struct hearth_error *err)
{
    char **names;
    int fd;

    if (hth_root_open(root, O_PATH, &fd, err))
        return NULL;
    names = names_in(fd, root, err);
    close(fd);
    return names;
}

json_t *engine_members(int job, uint32_t skip, struct hearth_error *err)
{
    char *text = engine_nodes(job, skip, err);
    json_t *page = text ? json_loads(text, 0, NULL) : NULL;

    if (text && !page)
        hth_fail(err, HEARTH_EPROTO, 0, "the engine's answer cannot be read");
    free(text);
    return page;
}
