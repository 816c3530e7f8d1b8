/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that the commands of `hearth` share: arguments, exit status, objects as files, text. */
/* For this folder alone. */
#ifndef CLI_H
#define CLI_H

#include "core/foreign/items.h"
#include "core/format/manifest.h"
#include <jansson.h>
#include <stdio.h>

enum status {
    STATUS_OK = 0,
    STATUS_WRONG = 1, /* looked at, and found damaged */
    STATUS_USAGE = 2,
    STATUS_NOT_FOUND = 3,
    STATUS_IN_USE = 4, /* an engine runs */
    STATUS_SYSTEM = 5, /* no rights, no memory, or the output cannot be written */
};

struct args {
    int json;
    int env;
    int recovery;
    int pairs;
    int alive;
    const char *root; /* --root, else HEARTH_ROOT, else NULL */
    const char *offset;
    const char *listen; /* NULL: the default */
    const char *watch;  /* NULL: look once; "": every 2 s */
    const char *worst;
    struct { /* plan */
        const char *ranks, *nodes, *bytes, *model, *optimizer, *parameter_bytes;
        const char *copies, *keep, *objects, *common, *extra, *link, *interval;
    } plan;
    const char *node;
    const char *save;
    int all;
    int count; /* of value */
    char **value;
};

/* ---- watch.c ---- */

/* Runs `look`; with --watch again and again, until SIGINT. Returns its last status. */
enum status watch(enum status (*look)(const struct args *a), const struct args *a);

/* ---- nearest.c ---- */

/* `found`: of the words that were tried, the nearest to `word`; NULL: none is near. */
struct nearest {
    const char *word, *found;
    unsigned apart;
};
void nearest_try(struct nearest *n, const char *known);

/* ---- the commands ---- */

enum status env_list(const struct args *a); /* of ls */

enum status run_ls(const struct args *a);
enum status run_inspect(const struct args *a);
enum status run_cat(const struct args *a);
enum status run_verify(const struct args *a);
enum status run_header(const struct args *a);
enum status run_rm(const struct args *a);
enum status run_clean(const struct args *a);
enum status run_keep(const struct args *a);
enum status run_why(const struct args *a);
enum status run_trace(const struct args *a);
enum status run_events(const struct args *a);
enum status run_top(const struct args *a);
enum status run_what_if(const struct args *a);
enum status run_log(const struct args *a);
enum status run_upgrade(const struct args *a);
enum status run_status(const struct args *a);
enum status run_nodes(const struct args *a);
enum status run_saves(const struct args *a);
enum status run_plan(const struct args *a);
enum status run_key(const struct args *a);
enum status run_doctor(const struct args *a);
enum status run_metrics(const struct args *a);
enum status run_exporter(const struct args *a);

/* ---- say.c: text for people and programs. Names that come from other programs, files and users
 * reach a terminal only through here, without control characters. ---- */

/* As printf(); what is not printable is '?', but for the ends of lines. */
void say(const char *fmt, ...) HTH_PRINTF(1, 2);

/* "hearth: ..." on standard error; the status that goes with the code. */
enum status complain(const struct hearth_error *err);
enum status complain_usage(const char *fmt, ...) HTH_PRINTF(1, 2);
/* The same for one entry of many: the command continues, and ends with STATUS_WRONG. */
void remark(const char *fmt, ...) HTH_PRINTF(1, 2);
unsigned remarks(void); /* so far */
void remarks_forget(void);
/* The same for a text that is no failure. */
void note(const char *fmt, ...) HTH_PRINTF(1, 2);

/* Printable, cut to len: a name from another program or user may hold any bytes. */
void plain(char *out, size_t len, const void *bytes, size_t count);
json_t *json_text(const void *bytes, size_t count); /* as it is when UTF-8, else made plain */
json_t *json_unsigned(uint64_t n);                  /* above INT64_MAX its digits, as a string */
void human(char out[32], uint64_t bytes);           /* "64.0 MiB" */
void human_age(char out[32], int64_t seconds);      /* "12 s", "3 min"; negative: "-" */

char *printable(const char *text); /* a copy without control characters; malloc'ed */

/* Print and free. */
enum status print_json(json_t *value);

/* ---- grid.c: tables ---- */

/* Columns as wide as their widest cell. Cells are copied. */
struct grid {
    size_t columns, cells, room;
    size_t needed; /* columns behind so many are left out where the width is not enough; 0: none */
    char **cell;
};
void grid_add(struct grid *g, const char *fmt, ...) HTH_PRINTF(2, 3);
void grid_titles(struct grid *g, const char *const *titles); /* [g->columns] */
/* how[column]: 'r' right, 'l' left, 's' left, a state, which has a colour */
void grid_print(const struct grid *g, const char *how);
void grid_free(struct grid *g);

/* "label  text", whose further lines begin below the text. */
void say_field(const char *label, const char *fmt, ...) HTH_PRINTF(2, 3);
size_t terminal_width(void);      /* 0: any: the output is no terminal, and COLUMNS is not set */
void say_state(const char *word); /* in its colour, if standard output is a terminal */

/* ---- place.c: how files are opened ---- */

/* A container and the job that it is of. */
struct place {
    int container, job;  /* -1: none */
    char job_path[4096]; /* only to compare links with */
};

/* HEARTH_ENOENT or HEARTH_EIO, from errno; errno 0: what err has already. */
int place_failed(const char *path, struct hearth_error *err);
/* Below `root`, through no link; or, where that is NULL, as it is named. -1 and errno; errno 0:
 * the root is refused, and err says why. */
int place_below(const char *root, const char *name, int flags, struct hearth_error *err);
/* The place of an open container, which it takes. -1 and errno. */
int place_around(struct place *p, int container, const char *path);
void place_close(struct place *p);
/* Errors: HEARTH_ENOENT, HEARTH_EIO. */
int job_open(const char *root, const char *job, int *out_fd, struct hearth_error *err);
/* HEARTH_ENOENT: there is no such job, with the nearest name that the root has. */
int job_unknown(const char *root, const char *job, struct hearth_error *err);

/* A file of the container; -1 and errno: EINVAL it is none, ELOOP a link to elsewhere, ESTALE
 * one to a buffer that has gone. */
int entry_open(const struct place *p, const char *name);

/* An engine frees and publishes saves while a command reads them. 1: no file with this inode number
 * has that name of `dir` any more. For a link: 1 if the link is gone. */
int entry_went(int dir, const char *name, uint64_t inode);
/* The same, but waits for it: a save that is freed loses its objects and its manifest some
 * milliseconds before its directory. Waits at most *patience_ms, and subtracts the time: a whole
 * command waits no longer than that. */
#define PATIENCE_MS 1000
int entry_goes(int dir, const char *name, uint64_t inode, uint32_t *patience_ms);

/* A file by its path, open, and where it lies. A negative code: HEARTH_ENOENT, HEARTH_EINVAL,
 * HEARTH_EIO. */
int object_file(const char *root, const char *path, struct place *out, struct hearth_error *err);

struct mount_room {
    uint64_t size, used, free; /* bytes of the file system, as df counts */
    int full;                  /* 1: less than a hundredth is free */
};
int place_room(int dir, struct mount_room *out); /* 0, or -1: not known */

/* Bytes of memory that the files below a directory take: free slots and what is not listed, too.
 * Links are not followed. */
uint64_t place_taken(int dir);

/* A small file whole; malloc'ed. Errors: HEARTH_ENOENT, HEARTH_EIO, HEARTH_ENOMEM. */
int read_small(int dir, const char *name, void **out, size_t *out_len, struct hearth_error *err);
/* Names in a folder in order, `.` and `..` left out; malloc'ed all. NULL at the end. All of
 * them, or NULL. Errors: HEARTH_ENOENT, HEARTH_EIO, HEARTH_ENOMEM. */
char **names_in(int dir, const char *path, struct hearth_error *err);
void names_free(char **names);

/* ---- object.c: an object as a file ---- */

struct object {
    const char *path;        /* borrowed */
    const unsigned char *at; /* [len], mapped */
    uint64_t len;
    struct hth_block block;
    struct hth_table table; /* own objects */
    void *table_copy;       /* its bytes */
    uint64_t pos;           /* of the walk */
    struct hth_items walk;  /* foreign objects */
    struct object_names
            *names; /* of those, what their container's `.metadata` says; NULL: nothing */
};

/* An item as both kinds of object have it. */
struct item {
    struct hth_found found;
    struct hth_item own; /* key, where it is known; box of own objects alone */
};

/* Opens an object whose block and table are right; of a foreign object the block. The payload is
 * not checked. `fd` is a file's, and still the caller's; `path` is for sentences. Errors:
 * HEARTH_EIO, HEARTH_ECORRUPT, HEARTH_EUNSUPPORTED. */
int object_open(struct object *o, int fd, const char *path, struct hearth_error *err);
/* The same of a file that the user names. Errors: HEARTH_ENOENT, HEARTH_EINVAL too. */
int object_open_named(struct object *o, const char *path, struct hearth_error *err);
void object_close(struct object *o);
const char *object_format(const struct object *o); /* "MLF_TENS" */

/* From here on the items of a foreign object are those that the `.metadata` beside it names, in
 * order, with their keys; without a `.metadata` that fits, they are those that the file itself
 * shows. */
void object_name_items(struct object *o);

void object_rewind(struct object *o);
/* 0; HEARTH_ENOENT at the end. Errors: HEARTH_ECORRUPT. */
int object_next(struct object *o, struct item *out, struct hearth_error *err);

/* Checksums of the chunks that [off, off + len) of the data touches; own objects alone. `meter`
 * may be NULL. Errors: HEARTH_ECORRUPT naming the chunk. */
struct meter;
int object_check(struct object *o, uint64_t off, uint64_t len, struct meter *meter,
        struct hearth_error *err);
/* One chunk of the data into out[HTH_CHUNK], and its length; checked there, so that what was
 * checked is what is used. Errors: HEARTH_ECORRUPT. */
int object_chunk(struct object *o, uint32_t chunk, unsigned char *out, uint64_t *out_len,
        struct hearth_error *err);
/* Checks all of the object, and its items against their headers. */
int object_verify(struct object *o, struct meter *meter, struct hearth_error *err);

/* ---- meter.c: how far long work is, on a terminal ---- */

struct meter {
    uint64_t done, total;
    uint64_t shown_ms;
    int shown;
};
void meter_add(struct meter *m, uint64_t bytes);
void meter_end(struct meter *m);

/* ---- saves.c: what a job's directory holds ---- */

struct save_row {
    struct save_row *next;
    char dir[4096]; /* path */
    char name[256]; /* its last part */
    int own;        /* id is known */
    int published;  /* lies beside, not in, .hearth */
    int unsaid;     /* its unreadable files are not reported */
    struct hth_save_id id;
    uint64_t step;
    uint64_t inode; /* of the directory; 0: it is not known */
    uint64_t objects, bytes;
    const char *state; /* protected, degraded, kept, complete, unfinished, bad, foreign */
    int64_t age_s;     /* since PROTECTED; -1: not known to have been */
    int manifest;      /* 1: there is one */
    int pinned;
    int64_t tries; /* jobs in a row that recovered it and had no save decided */
    char why[400]; /* a foreign one: why a recovery would refuse it; "": it would not */
};

/* Newest last; remark() names files of theirs that cannot be read. No save is called protected:
 * only a running engine knows that. Errors: HEARTH_ENOENT, HEARTH_EIO, HEARTH_ENOMEM. */
int saves_list(int job, const char *path, const char *only, struct save_row **out,
        struct hearth_error *err);
void saves_free(struct save_row *rows);
/* Is the directory a job's, with .hearth or containers? `err` is needed. Errors: HEARTH_ENOENT:
 * it is none; HEARTH_EIO: that cannot be seen. */
int job_check(int job, const char *path, struct hearth_error *err);
/* The save's, of this job. Errors: as read_small(), and the decoder's. */
int manifest_of(int job, struct hth_save_id id, struct hth_manifest *out, struct hearth_error *err);

/* ---- kept.c: of a row of "kept" in an engine's status ---- */

const char *kept_state(const json_t *row); /* one word; NULL: the row has none */
void kept_marks(int pinned, int64_t tries, char out[80]);

/* ---- ask.c ---- */

/* The status (JSON) that a running engine reports, within 2 s; NULL: no engine answers.
 * malloc'ed. */
char *engine_status(int job);
#define METRICS_WAIT_MS 2000 /* for an answer */
/* Sends METRICS. Returns the socket for engine_metrics_take(), or a negative errno: -ENOENT no
 * engine runs on the job, -ECONNREFUSED its engine has ended without removing its socket, -EAGAIN
 * it does not accept connections. */
int engine_metrics_ask(int job);
/* The answer (JSON), or NULL: there is none within wait_ms. Closes the socket. malloc'ed. */
char *engine_metrics_take(int sock, int wait_ms);
/* A page of what it remembers (core/local/local.h: HISTORY), as JSON, within 2 s; NULL: err says
 * why. malloc'ed. */
char *engine_history(int job, uint32_t what, uint32_t skip, struct hearth_error *err);
/* A page of the placement that it knows (core/local/local.h: PLACES), likewise. */
char *engine_places(int job, uint32_t skip, struct hearth_error *err);
/* A page of its members (NODES), as JSON, within 2 s; NULL: err says why. malloc'ed. */
char *engine_nodes(int job, uint32_t skip, struct hearth_error *err);
/* A page of the last lines of its log (EVENTS), likewise. */
char *engine_events(int job, uint32_t skip, struct hearth_error *err);
/* The answer of another member's engine to a question (core/local/local.h: ELSEWHERE), within
 * 3 s; NULL: err says why, with the node's name. member: its index, or HTH_NODE_NONE: the member
 * `node`; "": the coordinator. malloc'ed. */
char *engine_elsewhere(int job, uint32_t member, const char *node, uint32_t type, uint32_t what,
        uint32_t skip, struct hearth_error *err);
/* The same of the members 0 to members - 1, of at most 16 at a time. heard() is called once for
 * each, in any order; text NULL: err says why. Errors: HEARTH_ENOENT no engine, HEARTH_EENGINE. */
struct everywhere {
    uint32_t members, type, what, skip;
    void (*heard)(void *self, uint32_t member, const char *text, const struct hearth_error *err);
    void *self;
};
int engine_everywhere(int job, const struct everywhere *e, struct hearth_error *err);
/* Changes the level of its log (0: asks alone); what the log reports of itself, as JSON,
 * likewise. */
char *engine_log_level(int job, uint32_t level, struct hearth_error *err);
/* Sends a running engine this wish about the newest kept save of `step`, and waits at most 30 s
 * until the engine has done it or refused it. */
int engine_wish(int job, uint32_t wish, uint64_t step, struct hearth_error *err);

/* The engine ends for the next program, and nothing has ended if it refuses: its own sentence. */
int engine_upgrade(int job, struct hearth_error *err);

#endif
