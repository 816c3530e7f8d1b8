/* SPDX-License-Identifier: Apache-2.0 */
/* ls: jobs of a root, saves of a job, and where the engine and its log are. */
#include "named.h"

#include "core/base/open.h"
#include "core/base/root.h"
#include "core/store/store_tmpfs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct job {
    char name[256];
    char dir[4096];
    char log[4096 + 16]; /* empty: there is none */
    struct hth_lock_holder engine;
    uint64_t taken;         /* bytes of memory, by all that lies in the directory */
    struct mount_room room; /* size 0: not known */
    json_t *status;         /* the engine's status; NULL: none */
    struct save_row *saves;
};

static void row_take_kept(struct save_row *row, const json_t *kept)
{
    static const char *const words[] = { "protected", "degraded", "kept", "bad" };
    const char *state = kept_state(kept);

    for (size_t w = 0; row->age_s >= 0 && w < sizeof(words) / sizeof(words[0]); w++)
        if (!strcmp(state, words[w]))
            row->state = words[w];
    row->pinned = json_is_true(json_object_get(kept, "pinned"));
    row->tries = json_integer_value(json_object_get(kept, "tries"));
}

/* A running engine's state of a kept save is newer than the record's. */
static void job_take_states(const struct job *j)
{
    const json_t *kept = json_object_get(j->status, "kept");

    for (size_t i = 0; i < json_array_size(kept); i++) {
        const json_t *one = json_array_get(kept, i);
        const char *save = json_string_value(json_object_get(one, "save"));
        struct hth_save_id id;

        if (!save || !kept_state(one) || hth_save_parse(save, &id))
            continue;
        for (struct save_row *row = j->saves; row; row = row->next)
            if (row->own && !hth_save_cmp(row->id, id))
                row_take_kept(row, one);
    }
}

static int job_has_log(int job)
{
    int fd = hth_open_below(job, HTH_RECORDS_DIR "/log", O_PATH, 0);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* A foreign container by its marker and its `.metadata`. To read a large container takes seconds:
 * hearth verify does. */
static void job_look_foreign(
        const struct job *j, int job, const struct job_names *names, struct save_row *row)
{
    struct place p = { .job = job };
    struct hearth_error err = { 0 };
    struct named_sum sum;

    if (named_marker(names, job, row->name, row->why)) {
        row->state = "unfinished";
        return;
    }
    p.container = hth_open_below(job, row->name, O_PATH | O_DIRECTORY, 0);
    if (p.container < 0)
        return;
    snprintf(p.job_path, sizeof(p.job_path), "%s", j->dir);
    if (named_is_quick(p.container) && named_check(&p, row->dir, &sum, &err))
        snprintf(row->why, sizeof(row->why), "%.390s",
                err.code == HEARTH_ENOENT ? "no .metadata is here" : err.text);
    close(p.container);
}

static void job_look_all_foreign(const struct job *j, int job)
{
    struct job_names names = job_names_list(job, j->dir);

    for (struct save_row *row = j->saves; row; row = row->next)
        if (row->published && !row->own)
            job_look_foreign(j, job, &names, row);
    job_names_free(&names);
}

static int job_look_into(struct job *j, int fd, const char *root, struct hearth_error *err)
{
    int rc = job_check(fd, j->dir, err);
    char *text;

    if (rc)
        return rc;
    if (job_has_log(fd))
        snprintf(j->log, sizeof(j->log), "%s/" HTH_RECORDS_DIR "/log", j->dir);
    if (hth_store_locked(root, j->name, &j->engine, NULL))
        j->engine.held = 0;
    text = j->engine.held ? engine_status(fd) : NULL;
    j->status = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    j->taken = place_taken(fd);
    if (place_room(fd, &j->room))
        j->room.size = 0;
    rc = saves_list(fd, j->dir, NULL, &j->saves, err);
    if (!rc)
        job_take_states(j);
    job_look_all_foreign(j, fd);
    return rc;
}

static int job_look(struct job *j, const char *root, const char *name, struct hearth_error *err)
{
    int fd = -1, rc;

    memset(j, 0, sizeof(*j));
    snprintf(j->name, sizeof(j->name), "%.255s", name);
    snprintf(j->dir, sizeof(j->dir), "%.3800s/%.255s", root, name);
    rc = job_open(root, name, &fd, err);
    rc = rc ? rc : job_look_into(j, fd, root, err);
    if (fd >= 0)
        close(fd);
    if (rc == HEARTH_ENOENT)
        return hth_fail(err, rc, 0, "there is no job '%.64s'", name);
    return rc;
}

static void job_free(struct job *j)
{
    saves_free(j->saves);
    json_decref(j->status);
}

/* null: it is not known. */
static json_t *json_room(const struct mount_room *room)
{
    if (!room->size)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:b}", "size", (json_int_t)room->size, "used",
            (json_int_t)room->used, "free", (json_int_t)room->free, "full", room->full);
}

static json_t *json_job(const struct job *j)
{
    json_t *out = json_object(), *saves = json_array();

    for (const struct save_row *s = j->saves; s; s = s->next) {
        json_t *row = json_pack("{s:o, s:s, s:o, s:I, s:I, s:o, s:b}", "step",
                json_unsigned(s->step), "state", s->state, "age_s",
                s->age_s < 0 ? json_null() : json_integer(s->age_s), "objects",
                (json_int_t)s->objects, "bytes", (json_int_t)s->bytes, "directory",
                json_text(s->dir, strlen(s->dir)), "manifest", s->manifest);

        json_object_set_new(row, "pinned", json_boolean(s->pinned));
        json_object_set_new(row, "tries", json_integer(s->tries));
        if (s->why[0])
            json_object_set_new(row, "why", json_text(s->why, strlen(s->why)));
        if (s->own) {
            json_object_set_new(row, "epoch", json_unsigned(s->id.epoch));
            json_object_set_new(row, "attempt", json_integer((json_int_t)s->id.attempt));
        }
        json_array_append_new(saves, row);
    }
    json_object_set_new(out, "job", json_text(j->name, strlen(j->name)));
    json_object_set_new(out, "directory", json_text(j->dir, strlen(j->dir)));
    json_object_set_new(
            out, "engine_pid", j->engine.pid > 0 ? json_integer(j->engine.pid) : json_null());
    json_object_set_new(out, "engine_host",
            j->engine.held && j->engine.host[0] ? json_text(j->engine.host, strlen(j->engine.host))
                                                : json_null());
    json_object_set_new(out, "taken_bytes", json_integer((json_int_t)j->taken));
    json_object_set_new(out, "mount", json_room(&j->room));
    json_object_set_new(out, "log", j->log[0] ? json_text(j->log, strlen(j->log)) : json_null());
    json_object_set_new(out, "status", j->status ? json_incref(j->status) : json_null());
    json_object_set_new(out, "saves", saves);
    return out;
}

/* Prints how old the engine's knowledge of the job is, and what is wrong with the job. */
static void ls_print_heard(const json_t *status)
{
    const json_t *as_of = json_object_get(status, "as_of_ms");
    const char *from = json_string_value(json_object_get(status, "coordinator"));
    char ago[48] = "an unknown time";

    if (!from || !from[0])
        return;
    if (json_is_integer(as_of))
        snprintf(ago, sizeof(ago), "%.1f s ago", (double)json_integer_value(as_of) / 1000.0);
    say_field("as of", "%s, by the coordinator, node %s: %lld nodes lost, %lld saves degraded", ago,
            from, (long long)json_integer_value(json_object_get(status, "lost")),
            (long long)json_integer_value(json_object_get(status, "degraded")));
}

/* A line for each way in which bytes of GPUs come into the slots of ranks here. */
static void ls_print_gpu(const json_t *status)
{
    static const char *const ways[][2] = { { "slots", "slots are pinned" },
        { "buffers", "pinned buffers, slots are not pinned" },
        { "nothing", "buffers, nothing is pinned" } };
    const json_t *all = json_object_get(status, "gpu");

    for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
        json_int_t most = 0;
        unsigned found = 0;

        for (size_t i = 0; i < json_array_size(all); i++) {
            const json_t *one = json_array_get(all, i);
            const char *pinned = json_string_value(json_object_get(one, "pinned"));
            json_int_t ms = json_integer_value(json_object_get(one, "ms_per_gib"));

            if (!pinned || strcmp(pinned, ways[w][0]) != 0)
                continue;
            say(found++ ? " %lld" : "gpu     rank %lld",
                    (long long)json_integer_value(json_object_get(one, "rank")));
            most = ms > most ? ms : most;
        }
        if (found)
            say(": %s", ways[w][1]);
        if (found && w == 0)
            say(", in at most %.3f s/GiB", (double)most / 1000);
        if (found)
            say("\n");
    }
}

/* More than jobs take: df counts all files of the file system, and removed ones that are open. */
static void ls_print_room(const struct mount_room *room)
{
    char size[32], used[32], free_text[32];

    if (!room->size)
        return;
    human(size, room->size);
    human(used, room->used);
    human(free_text, room->free);
    say_field("mount", "%s%s of %s used, %s free, as df counts: by all files there",
            room->full ? "FULL: " : "", used, size, free_text);
}

static void ls_print_engine(const struct job *j)
{
    const char *confined = json_string_value(json_object_get(j->status, "confined"));
    const char *state = json_string_value(json_object_get(j->status, "state"));
    char who[HTH_LOCK_HOLDER_TEXT], taken[32];

    if (!j->engine.held)
        say_field("engine", "none runs");
    else if (!j->status)
        say_field("engine", "%s, which does not answer", hth_lock_holder_text(&j->engine, who));
    else
        say_field("engine", "%s, epoch %lld, %lld nodes, %lld ranks here%s%s",
                hth_lock_holder_text(&j->engine, who),
                (long long)json_integer_value(json_object_get(j->status, "epoch")),
                (long long)json_integer_value(json_object_get(j->status, "members")),
                (long long)json_integer_value(json_object_get(j->status, "ranks_attached")),
                state && state[0] ? ": " : "", state ? state : "");
    if (j->status)
        ls_print_heard(j->status);
    ls_print_gpu(j->status);
    if (confined && confined[0])
        say_field("files", "%s", confined);
    human(taken, j->taken);
    say_field("takes", "%s of memory: this job's saves, other nodes' copies, free slots", taken);
    ls_print_room(&j->room);
    say_field("log", "%s", j->log[0] ? j->log : "none");
    puts("");
}

static int ls_has_marks(const struct save_row *s)
{
    for (; s; s = s->next)
        if (s->pinned || s->tries || (s->own && !s->manifest))
            return 1;
    return 0;
}

static void ls_add_marks(struct grid *g, const struct save_row *s)
{
    const char *missing = s->own && !s->manifest ? "no manifest" : "";
    char marks[80];

    kept_marks(s->pinned, s->tries, marks);
    grid_add(g, "%s%s%s", marks, marks[0] && missing[0] ? ", " : "", missing);
}

/* The column of marks is there where a save has one. */
static void ls_print_saves(const struct job *j)
{
    static const char *const titles[] = { "STEP", "STATE", "AGE", "OBJECTS", "SIZE", "MARKS",
        "DIRECTORY" };
    int marks = ls_has_marks(j->saves);
    struct grid g = { .columns = 6 + (size_t)marks };
    char size[32], age[32], dir[300], why[400];

    for (size_t i = 0; i < 7; i++)
        if (marks || i != 5)
            grid_add(&g, "%s", titles[i]);
    for (const struct save_row *s = j->saves; s; s = s->next) {
        uint32_t tries = s->own ? hth_attempt_count(s->id.attempt) : 1;
        const char *of = s->own ? hth_attempt_of(s->id.attempt) : "";

        human(size, s->bytes);
        plain(dir, sizeof(dir), s->dir, strlen(s->dir));
        if (tries > 1 || of[0])
            grid_add(&g, "%" PRIu64 ", try %" PRIu32 "%s", s->step, tries, of);
        else
            grid_add(&g, "%" PRIu64, s->step);
        grid_add(&g, "%s", s->state);
        human_age(age, s->age_s);
        grid_add(&g, "%s", age);
        grid_add(&g, "%" PRIu64, s->objects);
        grid_add(&g, "%s", size);
        if (marks)
            ls_add_marks(&g, s);
        plain(why, sizeof(why), s->why, strlen(s->why));
        grid_add(&g, "%s%s%s", dir, why[0] ? ": " : "", why);
    }
    if (j->saves)
        grid_print(&g, marks ? "rsrrrll" : "rsrrrl");
    else
        puts("There is no save here.");
    grid_free(&g);
}

static enum status ls_job(const struct args *a)
{
    struct hearth_error err = { 0 };
    struct job j;
    int rc = job_look(&j, a->root, a->value[0], &err);
    enum status status;

    if (rc == HEARTH_ENOENT)
        job_unknown(a->root, a->value[0], &err);
    status = rc ? complain(&err) : STATUS_OK;

    if (!rc && a->json) {
        status = print_json(json_job(&j));
    } else if (!rc) {
        say_field("job", "%s", j.name);
        ls_print_engine(&j);
        ls_print_saves(&j);
    }
    job_free(&j);
    return status ? status : remarks() ? STATUS_WRONG : STATUS_OK;
}

static void ls_grid_job(struct grid *g, const struct job *j)
{
    const struct save_row *best = NULL;
    char size[32], age[32], name[80], pid[24];
    uint64_t bytes = 0, count = 0;

    for (const struct save_row *s = j->saves; s; s = s->next, count++) {
        bytes += s->bytes;
        if (strcmp(s->state, "unfinished") != 0 && strcmp(s->state, "bad") != 0)
            best = s;
    }
    human(size, bytes);
    plain(name, sizeof(name), j->name, strlen(j->name));
    grid_add(g, "%s", name);
    snprintf(pid, sizeof(pid), "%ld", (long)j->engine.pid);
    grid_add(g, "%s", j->engine.pid > 0 ? pid : j->engine.held ? j->engine.host : "-");
    grid_add(g, "%" PRIu64, count);
    if (best)
        grid_add(g, "%" PRIu64, best->step);
    else
        grid_add(g, "%s", "-");
    grid_add(g, "%s", best ? best->state : "-");
    human_age(age, best ? best->age_s : -1);
    grid_add(g, "%s", age);
    grid_add(g, "%s", size);
    human(size, j->taken);
    grid_add(g, "%s", size);
}

/* That another user's directory cannot be read is no failure; the caller's own should be
 * readable. */
static void ls_say_unread(int root, const char *name, const struct hearth_error *err)
{
    struct stat st;
    char text[256];

    plain(text, sizeof(text), name, strlen(name));
    if (!fstatat(root, name, &st, AT_SYMLINK_NOFOLLOW) && st.st_uid != geteuid())
        fprintf(stderr, "hearth: %s belongs to user %ld and cannot be read\n", text,
                (long)st.st_uid);
    else
        remark("%s", err->text);
}

static void ls_print_jobs(const struct grid *g, int root)
{
    struct mount_room room;

    grid_print(g, "lrrrsrrr");
    if (place_room(root, &room))
        return;
    puts("");
    ls_print_room(&room);
}

static enum status ls_names(const struct args *a, int root, char **names)
{
    static const char *const titles[] = { "JOB", "ENGINE", "SAVES", "NEWEST", "STATE", "AGE",
        "SIZE", "TAKES" };
    struct grid g = { .columns = 8 };
    struct hearth_error err = { 0 };
    json_t *jobs = json_array();
    enum status status = STATUS_OK;
    size_t found = 0, looked = 0;

    grid_titles(&g, titles);
    for (size_t i = 0; names[i]; i++) {
        struct job j = { .status = NULL };
        int rc = hth_job_check(names[i], NULL) ? HEARTH_ENOENT
                                               : job_look(&j, a->root, names[i], &err);

        found += rc != HEARTH_ENOENT;
        looked += !rc;
        if (rc && rc != HEARTH_ENOENT)
            ls_say_unread(root, names[i], &err);
        else if (!rc && a->json)
            json_array_append_new(jobs, json_job(&j));
        else if (!rc)
            ls_grid_job(&g, &j);
        job_free(&j);
    }
    if (a->json)
        status = print_json(json_pack("{s:O}", "jobs", jobs));
    else if (looked)
        ls_print_jobs(&g, root);
    json_decref(jobs);
    grid_free(&g);
    if (!status && !found) {
        hth_fail(&err, HEARTH_ENOENT, 0,
                "there is no job in %.300s: give the root that the job has, as --root of hearthd or "
                "HEARTH_ROOT",
                a->root);
        return complain(&err);
    }
    if (!status && !looked)
        return STATUS_WRONG; /* each that is there is named, and could not be read */
    return status ? status : remarks() ? STATUS_WRONG : STATUS_OK;
}

static enum status ls_root(const struct args *a)
{
    struct hearth_error err = { 0 };
    int root = -1;
    char **names = NULL;
    enum status status;

    if (!hth_root_open(a->root, O_PATH, &root, &err))
        names = names_in(root, a->root, &err);
    status = names ? ls_names(a, root, names) : complain(&err);
    names_free(names);
    if (root >= 0)
        close(root);
    return status;
}

enum status run_ls(const struct args *a)
{
    if (a->env)
        return env_list(a);
    if (!a->root)
        return complain_usage("ls needs --root, or HEARTH_ROOT set: the tmpfs that is Hearth's");
    return a->count ? ls_job(a) : ls_root(a);
}
