/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: this node as a whole. One table of checks; what they find is printed worst first. */
#include "checkup.h"

#include "core/base/root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WIDTH  80
#define INDENT 25

static const struct {
    const char *name;
    void (*see)(struct checkup *c);
} checks[] = {
    { "root", see_root },
    { "use", see_use },
    { "size", see_size },
    { "need", see_need },
    { "inodes", see_inodes },
    { "huge-pages", see_huge },
    { "swap", see_swap },
    { "owners", see_owners },
    { "memory-limit", see_cgroup },
    { "locked-memory", see_memlock },
    { "open-files", see_files },
    { "file-size", see_file_size },
    { "threads", see_threads },
    { "shm", see_shm },
    { "clock", see_clock },
    { "settings", see_settings },
    { "interface", see_interface },
    { "listening", see_listening },
    { "port", see_port },
    { "tcp", see_tcp },
    { "engine", see_engines },
    { "version", see_versions },
    { "log", see_logs },
    { "mtu", see_mtu },
};

static const char *const state_words[] = { [STATE_OK] = "ok",
    [STATE_UNKNOWN] = "not known",
    [STATE_RISK] = "at risk",
    [STATE_BROKEN] = "broken" };

/* ---- what they look at ----------------------------------------------------------------------- */

static void checkup_add_job(struct checkup *c, const char *name)
{
    struct patient p = { .fd = -1 }, *more;
    struct hearth_error err = { 0 };
    char *text;

    if (hth_job_check(name, NULL) || job_open(c->root, name, &p.fd, &err))
        return;
    more = job_check(p.fd, name, &err) || fstat(p.fd, &p.st)
                   ? NULL
                   : realloc(c->patient, (c->patients + 1) * sizeof(*more));
    if (!more) {
        c->closed += err.native == EACCES;
        close(p.fd);
        return;
    }
    snprintf(p.name, sizeof(p.name), "%.255s", name);
    if (hth_store_locked(c->root, name, &p.engine, NULL))
        p.engine.held = 0;
    text = p.engine.held ? engine_status(p.fd) : NULL;
    p.status = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    c->patient = more;
    c->patient[c->patients++] = p;
}

static void checkup_look_at_root(struct checkup *c)
{
    const char *under = doctor_root();
    char proc[300];
    char **names;

    shell_word(c->root, c->shown, sizeof(c->shown));
    if (hth_root_open(c->root, O_RDONLY, &c->root_fd, &c->root_err)) {
        c->root_fd = -1;
        return;
    }
    snprintf(proc, sizeof(proc), "%s/proc", under);
    if (fstat(c->root_fd, &c->at) || hth_room_look(c->root_fd, proc, &c->room, &c->root_err)) {
        close(c->root_fd);
        c->root_fd = -1;
        return;
    }
    hth_pages_look(under, c->root, 1, &c->pages);
    shell_word(c->pages.mount, c->mount, sizeof(c->mount));
    names = names_in(c->root_fd, c->root, NULL);
    for (size_t i = 0; names && names[i]; i++)
        if (!c->job || !strcmp(c->job, names[i]))
            checkup_add_job(c, names[i]);
    names_free(names);
}

static void checkup_fini(struct checkup *c)
{
    for (unsigned i = 0; i < c->patients; i++) {
        close(c->patient[i].fd);
        json_decref(c->patient[i].status);
    }
    free(c->patient);
    free(c->found);
    if (c->root_fd >= 0)
        close(c->root_fd);
    hth_machine_fini(&c->net.machine);
    free(c);
}

/* ---- for people ------------------------------------------------------------------------------ */

/* Prints the text in lines of WIDTH, all but the first behind INDENT blanks. */
static void checkup_wrap(const char *text)
{
    size_t room = WIDTH - INDENT;

    while (strlen(text) > room) {
        size_t n = room;

        while (n && text[n] != ' ')
            n--;
        n = n ? n : strcspn(text, " ");
        say("%.*s\n", (int)n, text);
        text += n + (text[n] == ' ');
        if (*text)
            say("%*s", INDENT, "");
    }
    if (*text)
        say("%s\n", text);
}

/* A command stays in one line, so that it can be copied. */
static void checkup_print(const struct finding *f)
{
    const char *line = f->remedy;

    say_state(state_words[f->state]);
    say("%*s %-*s", (int)(9 - strlen(state_words[f->state])), "", INDENT - 10, f->check);
    checkup_wrap(f->text);
    while (*line) {
        size_t n = strcspn(line, "\n");

        say("%*s%.*s\n", INDENT, line == f->remedy ? "do:  " : "", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

static json_t *checkup_json(const struct finding *f)
{
    return json_pack("{s:s, s:s, s:o, s:o}", "check", f->check, "state", state_words[f->state],
            "text", json_text(f->text, strlen(f->text)), "remedy",
            f->remedy[0] ? json_text(f->remedy, strlen(f->remedy)) : json_null());
}

static enum status checkup_show(const struct checkup *c, int json)
{
    static const enum state order[] = { STATE_BROKEN, STATE_RISK, STATE_UNKNOWN, STATE_OK };
    json_t *all = json_array();
    enum status status = STATUS_OK;

    for (size_t s = 0; s < sizeof(order) / sizeof(order[0]); s++)
        for (unsigned i = 0; i < c->count; i++) {
            if (c->found[i].state != order[s])
                continue;
            if (c->found[i].state >= STATE_RISK)
                status = STATUS_WRONG;
            if (json)
                json_array_append_new(all, checkup_json(&c->found[i]));
            else
                checkup_print(&c->found[i]);
        }
    if (json && print_json(json_pack("{s:O}", "findings", all)))
        status = STATUS_SYSTEM;
    json_decref(all);
    return status;
}

static enum status doctor_node(const struct args *a)
{
    struct checkup *c = calloc(1, sizeof(*c));
    enum status status;

    if (!c)
        return complain(&(struct hearth_error){ HEARTH_ENOMEM, 0, "no memory to look" });
    c->root = a->root;
    c->job = a->count ? a->value[0] : NULL;
    c->root_fd = -1;
    doctor_look(&c->net, NULL, &c->env_err);
    if (c->root)
        checkup_look_at_root(c);
    if (c->job && c->root_fd >= 0 && !c->patients) {
        if (c->closed)
            hth_fail(&c->root_err, HEARTH_EIO, EACCES,
                    "job '%.64s' is another user's: ask as that user or as root", c->job);
        else
            job_unknown(c->root, c->job, &c->root_err);
        status = complain(&c->root_err);
        checkup_fini(c);
        return status;
    }
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        c->check = checks[i].name;
        checks[i].see(c);
    }
    status = checkup_show(c, a->json);
    checkup_fini(c);
    return remarks() && !status ? STATUS_WRONG : status;
}

enum status run_doctor(const struct args *a)
{
    if (a->pairs)
        return doctor_pairs(a);
    if (a->count && !strcmp(a->value[0], "net"))
        return doctor_net(a);
    return doctor_node(a);
}
