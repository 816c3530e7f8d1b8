/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this folder share: one rank's membership, and the parts it is made of.
 *
 * One lock, `h->lock`, guards the connection, the handles' status, the slot maps and the leases.
 * Copies run without it. Log lines have a lock of their own and reach the caller's sink with
 * no lock held.
 */
/* For this folder alone. */
#ifndef CLIENT_H
#define CLIENT_H

#include "core/base/fail.h"
#include "core/base/network.h"
#include "core/base/options.h"
#include "core/base/opts.h"
#include "core/format/block.h"
#include "core/format/table.h"
#include "core/local/local.h"
#include "core/torch/header.h"
#include <hearth/hearth.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#define HTH_KEY_MAX     1024u /* bytes of an item's key */
#define HTH_OBJECTS_MAX 64u   /* objects of one rank in one save */
#define HTH_REQUEST_MS  30000u
#define HTH_LOG_LINES   256u
#define HTH_LOG_TEXT    1000u

#define HTH_NO_DESCRIPTOR \
    "no descriptor came: has this process too many open files (RLIMIT_NOFILE)?"

/* ---- time and text (util.c) ------------------------------------------------------------- */

uint64_t hth_mono_ms(void);
uint64_t hth_until_ms(uint64_t wait_ms); /* from now */

const char *hth_level_name(uint32_t level); /* handle.c */

/* It is a step, or `but`, the one constant that the call takes as well (0: none). */
int hth_step_check(uint64_t step, uint64_t but, struct hearth_error *err);

struct hth_object;

/* "object 'x' of rank 3"; of nobody's the name alone. */
#define HTH_OBJECT_TEXT (HTH_NAME_MAX + 32)
const char *hth_object_text(const struct hth_object *o, char out[HTH_OBJECT_TEXT]);

/* Element i of a caller's array of structs `what` of any age, whose first one's struct_size is the
 * stride: *out is it, or mine[size] filled from it. */
int hth_array_at(const void **out, void *mine, size_t size, const void *array, size_t i,
        const char *what, struct hearth_error *err);

/* The sum, or UINT64_MAX where it is more: callers' sizes are added up before they are believed. */
static inline uint64_t hth_add_up(uint64_t a, uint64_t b)
{
    return a < UINT64_MAX - b ? a + b : UINT64_MAX;
}

/* A memfd with bytes[len]; -1 and errno. */
int hth_memfd(const char *name, const void *bytes, size_t len);

/* ---- log (log.c) ------------------------------------------------------------------------ */

struct hth_line {
    uint32_t level;
    char event[32];
    char text[HTH_LOG_TEXT];
};

struct hth_lines {
    pthread_mutex_t lock;
    hearth_log_fn *sink;
    void *arg;
    uint32_t level;
    uint32_t first, count;
    struct hth_line *line; /* [HTH_LOG_LINES] a ring: the oldest make way */
};

int hth_lines_init(struct hth_lines *lines, const struct hearth_opts *opts);
void hth_lines_fini(struct hth_lines *lines);
void hth_line_add(struct hth_lines *lines, uint32_t level, const char *event, const char *fmt, ...)
        HTH_PRINTF(4, 5);
void hth_lines_drain(struct hth_lines *lines); /* to the sink, if there is one; no lock held */

/* ---- copies (copy.c, strided.c) ----------------------------------------------------------- */

/* An n-dimensional copy with adjacent dimensions merged. Steps in bytes. */
struct hth_strided {
    uint32_t ndim;
    uint32_t elem;  /* bytes of one, or of a contiguous run of them */
    uint64_t count; /* elements altogether */
    int64_t shape[HTH_DIMS_MAX], dst[HTH_DIMS_MAX], src[HTH_DIMS_MAX];
};

/* Steps of C order without gaps, in elements. */
void hth_c_order(uint32_t ndim, const int64_t *shape, int64_t *out);

/* strides in elements; NULL: C order. 1: both sides are contiguous (plain memcpy of count * elem). */
int hth_strided_init(struct hth_strided *s, uint32_t elem, uint32_t ndim, const int64_t *shape,
        const int64_t *dst_strides, const int64_t *src_strides);
/* Elements [first, first + count) in C order. */
void hth_strided_copy(
        const struct hth_strided *s, void *dst, const void *src, uint64_t first, uint64_t count);

struct hth_copy {
    void *dst;
    const void *src;
    uint64_t bytes;              /* moved altogether */
    struct hth_strided *strided; /* NULL: plain; owned by the list */
};

struct hth_copies { /* a list that grows */
    struct hth_copy *copy;
    size_t count, room;
    uint64_t bytes;
};

int hth_copies_add(struct hth_copies *list, void *dst, const void *src, uint64_t bytes,
        const struct hth_strided *strided); /* 0 or HEARTH_ENOMEM; strided is copied */
void hth_copies_fini(struct hth_copies *list);

struct hth_crew;
struct hth_crew *hth_crew_open(uint32_t threads); /* the caller is one of them */
void hth_crew_close(struct hth_crew *crew);
void hth_crew_run(struct hth_crew *crew, const struct hth_copies *list); /* until all is copied */

/* ---- the connection (connect.c, spawn.c, local.c, session.c) -------------------------------- */

struct hth_call {                  /* a request on its way; on its caller's stack or in its owner */
    uint64_t request, incarnation; /* of the connection it goes over */
    uint32_t want;                 /* type of the answer */
    void *answer;                  /* [answer_len] */
    size_t answer_len;
    int fd; /* of the answer, -1: none; the owner closes it */
    enum { HTH_CALL_IDLE = 0, HTH_CALL_SENT, HTH_CALL_DONE, HTH_CALL_LOST } state;
    int code; /* of HTH_LOCAL_ERROR, or 0 */
    struct hearth_error error;
    struct hth_call *next;
};

struct hth_ask {
    void *msg; /* begins with struct hth_local_head, filled in here */
    size_t len;
    uint32_t type, want;
    uint64_t token;
    int fd;               /* to send along, -1: none */
    int again;            /* 1: may be asked anew of a restarted engine */
    uint64_t incarnation; /* only of this connection, since `token` is its; 0: of any */
    uint64_t answered;    /* out: the connection it was answered on, and what it gave is of */
    void *answer;
    size_t answer_len;
    int *out_fd; /* NULL: no descriptor wanted */
    uint64_t wait_ms;
    const char *what; /* "begin step 40", for sentences */
};

struct hearth_handle {
    struct hearth *h;
    struct hearth_handle *next; /* h->handles */
    uint64_t token;
    uint64_t incarnation; /* of the connection that token belongs to */
    int committed;
    int copied;       /* COPIED was heard, which may be before or after COMPLETE */
    uint32_t objects; /* that the engine took over: sealed and common ones */
    struct hth_save_id save;
    struct hearth_status status;
};

struct hth_slot_map { /* a slot of the engine's, mapped for writing; kept until close */
    struct hth_slot_map *next;
    dev_t dev;
    ino_t ino;
    unsigned char *base;
    uint64_t bytes;
    uint32_t users; /* saves that write into it now */
};

struct hth_lease {          /* an object that stays as it is; taken again from a restarted engine */
    struct hth_lease *next; /* h->leases */
    struct hth_save_id save;
    uint64_t object;
    uint64_t id, number; /* the engine's, and ours */
    dev_t dev;
    ino_t ino;
};

struct hth_spawned; /* an engine in this process */

struct hearth {
    struct hearth *next; /* of all in this process, for fork */
    atomic_int forked;
    struct hearth_opts opts;  /* strings: own copies, NULL where unset */
    struct hearth_opts wants; /* the same, but times 0 where unset; strings: of opts */
    char *records;            /* <root>/<job>/.hearth */
    struct hth_lines lines;
    struct hth_crew *crew;
    struct hth_spawned *inside;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    int fd; /* -1: no connection */
    int reading, connecting;
    uint64_t incarnation; /* connections so far */
    uint64_t requests, numbers;
    struct hth_call *calls;
    struct hearth_handle *handles;
    struct hth_slot_map *slots;
    struct hth_lease *leases;
    struct hth_local_attached attached;
    struct hth_local_opts joined; /* in effect at the engine */
    unsigned char *packet;        /* [HTH_LOCAL_MAX] the reader's */

    int table_fd; /* what the ranks gathered, to join again; -1: none */
    uint64_t epoch, nonce;
    int recovered; /* in this epoch */
    int asked;     /* hearth_recover() was called: the next one begins a new epoch */
    int rounds;    /* gathers so far */
    int keyed;
    unsigned char key[HTH_KEY]; /* of the job's, for the rendezvous alone */
};

/* Every public call begins with this: 0, HEARTH_EINVAL for NULL, HEARTH_EFORK. */
int hth_enter(const struct hearth *h, struct hearth_error *err);

/* One connected socket to the node's engine, started if need be. */
int hth_connect(struct hearth *h, uint64_t until, int *out_fd, struct hearth_error *err);

/* settings.c: what the engine has, beside what we ask for; HEARTH_EINVAL by name. A line with it. */
int hth_settings_check(
        const struct hearth *h, const unsigned char *challenge, struct hearth_error *err);
void hth_settings_say(struct hearth *h);

/* hearthd's command line for these options. words: what it prints, a memfd. */
struct hth_args {
    const char *argv[2 * HTH_OPTIONS + 4];
    int argc;
    char number[HTH_OPTIONS][24]; /* texts of those that are numbers */
};
void hth_args_make(struct hth_args *args, const struct hearth *h, const char *program);

/* The folder of this library, or of the program it is linked into. */
int hth_own_dir(char *out, size_t len);

/* An engine of our own: a process, or a thread in this one. *out_pidfd: -1 where it ended already,
 * HTH_PID_UNSEEN where the system does not tell. share: take part in one that runs here. */
#define HTH_PID_UNSEEN (-2)
int hth_spawn(const struct hearth *h, int *out_pidfd, int *out_words, struct hearth_error *err);
void hth_inside_share(struct hearth *h);
int hth_inside_start(struct hearth *h, struct hearth_error *err);
void hth_inside_stop(struct hearth *h);

/* With h->lock held: one round of waiting until something came or `until` passed. */
int hth_pump_locked(struct hearth *h, uint64_t until);
/* With h->lock held: a connection there is, made anew if it was lost. */
int hth_connected_locked(struct hearth *h, uint64_t until, struct hearth_error *err);
void hth_event_locked(struct hearth *h, const struct hth_local_event *event, size_t len);
/* With h->lock held, on a connection nobody else uses yet: attach, and take up what was ours. */
int hth_attach_locked(struct hearth *h, int fd, uint64_t until, struct hearth_error *err);
int hth_restore_locked(struct hearth *h, int fd, uint64_t until, struct hearth_error *err);
/* One request on that connection; events that come meanwhile are heard. */
int hth_exchange_locked(
        struct hearth *h, int fd, struct hth_ask *ask, uint64_t until, struct hearth_error *err);

int hth_ask(struct hearth *h, struct hth_ask *ask, struct hearth_error *err);
/* To ask for bytes of a save or an object; `what`, and a longer wait_ms, are the caller's to set. */
struct hth_ask hth_ask_bytes(enum hth_local_type type, struct hth_local_map *m,
        struct hth_local_bytes *answer, int *out_fd);
int hth_post(
        struct hearth *h, struct hth_ask *ask, struct hth_call *call, struct hearth_error *err);
int hth_collect(struct hearth *h, struct hth_call *call, uint64_t wait_ms, const char *what,
        struct hearth_error *err);
void hth_forget(struct hearth *h, struct hth_call *call); /* its answer is not wanted any more */

/* Bytes of a file that holds these payload bytes and table records, wherever they are cut. */
static inline uint64_t hth_file_bytes(uint64_t bytes)
{
    return 2 * HTH_BLOCK + bytes + hth_table_bytes(bytes, 0);
}

/* ---- opening (check.c, join.c) -------------------------------------------------------------- */

struct hth_network hth_network_of(const struct hearth_opts *o);
/* A bootstrap of any age that can be called, or none. Errors: HEARTH_EINVAL, HEARTH_EUNSUPPORTED. */
int hth_bootstrap_whole(const struct hearth_bootstrap *bootstrap, struct hearth_error *err);
int hth_opts_take(struct hearth *h, const struct hearth_opts *opts, struct hearth_error *err);
void hth_opts_drop(struct hearth *h);
/* All rows from our own, each in its place and proved. */
int hth_meet(struct hearth *h, unsigned char own[HTH_GATHER], unsigned char *table,
        struct hearth_error *err);
int hth_join(struct hearth *h, struct hearth_error *err); /* gather, and hand it to the engine */

/* ---- slots and leases (slots.c) ------------------------------------------------------------- */

/* The mapping of a lent slot, at least `bytes` long; fd stays the caller's. touch: they
 * are about to be written. */
int hth_slot_get(struct hearth *h, int fd, uint64_t bytes, int touch, struct hth_slot_map **out,
        struct hearth_error *err);
void hth_slot_put(struct hearth *h, struct hth_slot_map *slot);
void hth_slots_fini(struct hearth *h);

/* An object here: *out_fd is the caller's, *out_number for hth_lease_put(). HEARTH_ENOENT: not here. */
int hth_lease_get(struct hearth *h, struct hth_save_id save, uint64_t object,
        struct hth_local_mapped *out, int *out_fd, uint64_t *out_number, struct hearth_error *err);
/* The two halves of it, for many at once: what to ask; the lease `id` that was answered on the
 * connection `incarnation`, with the object's descriptor, which stays the caller's. */
struct hth_ask hth_lease_ask(struct hth_local_map *m, struct hth_local_mapped *out, int *out_fd);
int hth_lease_enter(struct hearth *h, struct hth_save_id save, uint64_t object, uint64_t id,
        uint64_t incarnation, int fd, uint64_t *out_number, struct hearth_error *err);
void hth_lease_put(struct hearth *h, uint64_t number);

/* ---- layout (layout.c) ---------------------------------------------------------------------- */

struct hth_laid { /* one piece, checked and measured */
    const struct hearth_piece *piece;
    struct hearth_piece mine; /* when the caller's struct is of another age */
    uint64_t payload;         /* bytes */
    size_t header_len;
    unsigned char header[HTH_HEADER_MAX];
};

/* The i-th piece, checked. need_data: 0 where places are asked for. */
int hth_piece_at(struct hth_laid *out, const struct hearth_piece *pieces, size_t i, int need_data,
        struct hearth_error *err);
/* The i-th byte string, checked; *tmp where the struct is of another age. */
int hth_bytes_at(const struct hearth_bytes **out, struct hearth_bytes *tmp,
        const struct hearth_bytes *items, size_t i, struct hearth_error *err);
uint64_t hth_laid_bytes(const struct hth_laid *laid); /* of data and table record together */
/* The record of the item, at `offset` of the data. */
void hth_laid_item(struct hth_item *out, const struct hth_laid *laid, uint64_t offset);

/* ---- reading (recover.c, source.c, tables.c, index.c, read.c, part.c, box.c) ------------------ */

struct hth_window { /* bytes of a remote object: [off, off + len) of its data, whole chunks */
    void *map;
    uint64_t map_len;
    uint64_t off, len;
};

struct hth_entry {
    struct hth_item item;
    uint64_t hash;
    uint32_t source;        /* index */
    struct hth_entry *next; /* of the same bucket */
};

struct hth_source { /* one object of the checkpoint */
    const struct hth_object *object;
    struct hth_entry *entry; /* [table.items] in order of offset; NULL: not listed yet */
    size_t first;            /* in the index: entries of the sources before it */
    int tried;               /* its table was asked for */
    int local;               /* 1: mapped here */
    uint64_t lease;
    int fd;                     /* local: of the file; else -1 */
    uint64_t data_at, data_len; /* where the data section lies in the file */
    unsigned char *map;         /* local: the file; else NULL */
    uint64_t map_len;
    void *table_copy; /* remote, foreign: malloc'ed */
    struct hth_table table;
    struct hth_window window;
    struct hth_call ahead; /* a prefetch on its way; request 0: none */
    struct hth_local_bytes ahead_answer;
    uint64_t ahead_off, ahead_len;
};

struct hearth_checkpoint {
    struct hearth *h;
    uint32_t number; /* in this process: items say it */
    struct hth_save_id save;
    struct hearth_recovery info;
    struct hth_manifest *manifest;
    struct hth_source *source; /* [sources] this rank's first */
    uint32_t sources, own;
    uint32_t *by_name; /* [sources] index of a source; NULL: not sorted yet */
    uint32_t indexed;  /* sources whose items are found by key */
    size_t entries, own_entries;
    struct hth_entry **bucket; /* [buckets] */
    size_t buckets;
    uint32_t aheads; /* sources with a prefetch on its way */
    uint64_t ahead_bytes;
};

/* Index the items of this rank's objects, or of all. */
int hth_index(struct hearth_checkpoint *c, int all, struct hearth_error *err);
void hth_index_fini(struct hearth_checkpoint *c);
/* The next entry of a key after `last` (NULL: the first); NULL: no more. */
const struct hth_entry *hth_entry_find(const struct hearth_checkpoint *c, const void *key,
        size_t len, const struct hth_entry *last);
/* The entry of this number in the index, which has it. */
const struct hth_entry *hth_entry_at(const struct hearth_checkpoint *c, size_t index);
/* The source of this name, opened. HEARTH_ENOENT: the checkpoint has none. */
int hth_source_named(struct hearth_checkpoint *c, const char *name, struct hth_source **out,
        struct hearth_error *err);
/* The item that begins at `offset` of the object's data. */
int hth_entry_in(struct hearth_checkpoint *c, const char *object, uint64_t offset,
        const struct hth_entry **out, struct hearth_error *err);
/* Map the object or fetch its table. */
int hth_source_open(struct hearth_checkpoint *c, struct hth_source *s, struct hearth_error *err);
/* The halves of that, by the engine's answer; each takes fd. What fails may be opened again. */
int hth_source_mapped(struct hearth_checkpoint *c, struct hth_source *s,
        const struct hth_local_mapped *m, int fd, uint64_t lease, struct hearth_error *err);
int hth_source_table(struct hth_source *s, int fd, struct hearth_error *err);
/* Open as many of sources [from, to) as can be at first try, many at a time. Fails only where
 * another try would wait in vain too. */
int hth_tables(struct hearth_checkpoint *c, uint32_t from, uint32_t to, struct hearth_error *err);
/* The same for a foreign object, whose items say themselves what they are. */
int hth_source_open_foreign(
        struct hearth_checkpoint *c, struct hth_source *s, struct hearth_error *err);
void hth_source_close(struct hearth_checkpoint *c, struct hth_source *s);
/* Bytes [off, off + len) of the object's data, where they can be read: until the next call for
 * this source. Checked against the table where they came from elsewhere. */
int hth_source_at(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, uint64_t len,
        const unsigned char **out, struct hearth_error *err);
/* The same copied to dst[len], piece by piece. */
int hth_read_data(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, void *dst,
        uint64_t len, struct hearth_error *err);
/* Ask for what of [off, off + len) comes first, if there is room for more that is on its way. */
void hth_source_ahead(
        struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, uint64_t len);
int hth_ahead_room(const struct hearth_checkpoint *c);
int hth_range(struct hearth *h, struct hth_save_id save, uint64_t object, uint64_t off,
        uint64_t len, int *out_fd, struct hearth_error *err);
/* A descriptor the engine sent, mapped; at least `len` long. */
int hth_map_answer(int fd, uint64_t len, void **out, struct hearth_error *err);

int hth_ckpt_enter(const struct hearth_checkpoint *c, struct hearth_error *err);

/* Boxes: [ndim] offset and shape. 1: they meet, in *out. */
struct hth_box { /* [ndim] used */
    int64_t offset[HTH_DIMS_MAX], shape[HTH_DIMS_MAX];
};
int hth_box_meet(
        uint32_t ndim, const struct hth_box *a, const struct hth_box *b, struct hth_box *out);

/* What of a box is still to be had. */
struct hth_rest {
    uint32_t ndim;
    struct hth_box *box;
    size_t count, room;
};
int hth_rest_init(struct hth_rest *rest, uint32_t ndim, const struct hth_box *whole);
/* Take `cut` out of box i, which it lies in; what remains of it is appended, box i goes. */
int hth_rest_cut(struct hth_rest *rest, size_t i, const struct hth_box *cut);
void hth_rest_fini(struct hth_rest *rest);

/* A box counted in the item's local piece into dst. list: local bytes are only noted there. A byte
 * string is a vector of uint8. */
int hth_read_part(struct hearth_checkpoint *c, const struct hth_entry *entry,
        const struct hth_box *box, void *dst, const int64_t *dst_strides, struct hth_copies *list,
        struct hearth_error *err);
/* The range of the object's data that such a box lies in. 1: it is worth bringing as one. */
int hth_part_cover(
        const struct hth_entry *entry, const struct hth_box *box, uint64_t *off, uint64_t *len);
/* A caller's box of a tensor, checked. */
int hth_box_check(const struct hth_item *item, const int64_t *offset, const int64_t *shape,
        struct hth_box *out, struct hearth_error *err);

#endif
