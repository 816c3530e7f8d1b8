/* SPDX-License-Identifier: Apache-2.0 */
/* The structs and functions that the parts of the store on tmpfs share; README.md has their
 * order. */
/* For this folder alone. */
#ifndef CORE_TMPFS_H
#define CORE_TMPFS_H

#include "room.h"
#include "store_tmpfs.h"
#include <sys/stat.h>

#define FILE_NAME_BYTES 256 /* of a directory entry, with its terminator */
#define NEW_FILE        "new"
#define NEW_RAW         "new-"              /* and a number */
#define HTH_SLOT_MAX    (UINT64_C(1) << 56) /* bytes: above any machine, below overflow */
#define TMP_SUFFIX      ".tmp"

/* FREE, HELD and GIVEN lie in the pool. GIVEN: free once its last lease has ended and no other
 * process has it open. CONDEMNED: freed with its last lease. LOST: the system refused to move
 * its file; it stays mapped and is never used again. */
enum tmpfs_state {
    TMPFS_FREE,
    TMPFS_HELD,
    TMPFS_RECEIVED,
    TMPFS_SEALED,
    TMPFS_GIVEN,
    TMPFS_CONDEMNED,
    TMPFS_LOST
};

struct tmpfs_dir {
    struct tmpfs_dir *next;
    struct hth_save_id save; /* epoch 0: foreign */
    int fd;
    ino_t ino;
    int published;     /* it is step-<N>_ckpt, in the job's directory */
    int was_published; /* so it goes back there when what replaced it is removed */
    int adopted;       /* it was there before us, with whatever lies in it */
    char name[FILE_NAME_BYTES];
};

#define TAKER_NONE   UINT32_MAX
#define TAKER_ENGINE (UINT32_MAX - 1) /* which has all slots mapped and touched anyway */

/* A rank that borrowed the slot did not hand it back. SHARES: the rank has our open file. ALONE: it
 * has another. */
enum tmpfs_orphan { ORPHAN_NOT, ORPHAN_SHARES, ORPHAN_ALONE };

/* A file, or a name in a directory, as it was. */
struct tmpfs_stamp {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime, ctime;
};

struct tmpfs_was {
    struct tmpfs_stamp name, file; /* of a file that is no link they are one */
    unsigned char head[16];        /* the block's length and signature */
};

struct tmpfs_slot {
    struct hth_slot pub; /* first */
    struct tmpfs_slot *next;
    enum tmpfs_state state;
    uint64_t made;    /* bytes from the front that are backed by memory */
    uint64_t touched; /* ... that our mapping has pages for */
    uint32_t taker;   /* the rank that had it last and so has mapped its pages, or TAKER_... */
    uint64_t rested;  /* the generation in which mapped() returned it, as memory was short */
    int lent;         /* some rank has had our open file, and may have it mapped */
    int foreign;
    enum tmpfs_orphan orphan;
    int unmap;               /* mapped() is to return it, so that ranks unmap it */
    int busy;                /* a piece of its memory is given to a worker */
    int asked;               /* a take() failed because it was not made yet */
    int broken, told;        /* its file was removed or cut; and the engine knows */
    blkcnt_t blocks;         /* of its file, once it is made; 0: not looked at since */
    int link;                /* foreign: reached by a link into its writer's buffers */
    struct tmpfs_was was;    /* foreign: when it was found */
    int matched;             /* by the reserve() that runs */
    struct tmpfs_dir *dir;   /* where its name is, unless in the pool */
    struct hth_save_id half; /* FREE: `name` of that save was being received in it; none: nothing */
    char name[FILE_NAME_BYTES];
};

#define HTH_SPARES    16                   /* most that are kept */
#define HTH_SPARE_MAX (UINT64_C(64) << 20) /* bytes: no record is larger */

struct tmpfs_spare {
    uint64_t number; /* of its name */
    uint64_t pages;
};

struct hth_tmpfs {
    struct hth_store base;            /* first */
    struct hth_store_tmpfs_opts opts; /* root and job: ours, in path and job */
    char *path;                       /* <root>/<job>, for sentences */
    char job[HTH_NAME_MAX + 1];
    int root_fd, job_fd, own_fd, pool_fd, evidence_fd, lock_fd;
    /* account.c's own */
    int account_fd; /* -1: there is none */
    unsigned account_entry;
    uint64_t account_dev, account_cgroup, account_said;
    uint64_t id;
    uint64_t starts; /* engines this memory has seen; upper half of new generations */
    int reserved;
    int makes_way;   /* the last request drops free slots of other sizes */
    unsigned unmaps; /* slots with `unmap` set, at most */
    int expecting;   /* ranks are unmapping slots: none is made in their place */
    int on_tmpfs;
    int no_populate, no_collapse; /* the kernel refused once, or will */
    int rests;                    /* slots were unmapped at the last look */
    int advised;                  /* huge pages are asked for: the mount's huge=advise */
    int gives_huge;               /* the mount's are huge by themselves */
    struct tmpfs_piece *piece;    /* with workers; slot_back.c's */
    struct tmpfs_slot *slots;
    struct tmpfs_dir *dirs;
    struct tmpfs_raw *raws;         /* open ones */
    struct tmpfs_release *releases; /* with a worker */
    uint64_t raws_made;
    uint64_t uncharged; /* adopted bytes that are charged to a cgroup which cannot be seen */
    /* neighbour.c's own */
    int64_t neighbour_s; /* when it was last looked for; 0: never */
    char neighbour[200];
    /* spare.c's own */
    struct tmpfs_spare spare[HTH_SPARES]; /* [spares] */
    unsigned spares;
    uint64_t spares_made;  /* the highest number of one */
    uint64_t record_pages; /* of the largest record that was seen */
};

static inline struct hth_tmpfs *hth_tmpfs_of(struct hth_store *s)
{
    return (struct hth_tmpfs *)s;
}

static inline struct tmpfs_slot *hth_tmpfs_slot(struct hth_slot *slot)
{
    return (struct tmpfs_slot *)slot;
}

/* tmpfs_sys.c: as the system calls; -1 and errno. */
int hth_sys_mkdir(struct hth_tmpfs *t, int dir, const char *name);
int hth_sys_create(struct hth_tmpfs *t, int dir, const char *name);
int hth_sys_truncate(struct hth_tmpfs *t, int fd, uint64_t len);
int hth_sys_allocate(struct hth_tmpfs *t, int fd, uint64_t off, uint64_t len);
int hth_sys_write(struct hth_tmpfs *t, int fd, const void *bytes, size_t len, uint64_t off);
/* As renameat2(2). The C library's returns EINVAL where the kernel returns ENOSYS. */
int hth_sys_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int hth_sys_rename_new(
        struct hth_tmpfs *t, int from_dir, const char *from, int to_dir, const char *to);
int hth_sys_rename(struct hth_tmpfs *t, int from_dir, const char *from, int to_dir, const char *to);
void *hth_sys_map(struct hth_tmpfs *t, int fd, uint64_t len, int writable);
void hth_sys_unmap(void *base, uint64_t len);
void *hth_sys_zalloc(struct hth_tmpfs *t, size_t bytes);
/* Open relative to `dir`, never through a link. */
int hth_sys_open_dir(int dir, const char *name);
int hth_sys_open_file(int dir, const char *name, int flags);
int hth_sys_exchange(int a_dir, const char *a, int b_dir, const char *b);
/* A sentence from errno: "<path>: <doing> <name>: <why>". Returns the code. */
int hth_sys_fail(
        const struct hth_tmpfs *t, struct hearth_error *err, const char *doing, const char *name);
/* Each entry but `.` and `..`; the caller's fd stays open and its position is its own. */
int hth_sys_each(int dir, void (*entry)(void *arg, const char *name), void *arg);

/* Is the file open by another open file description than fd's? 1, 0, or -1: the kernel does not
 * report it. */
int hth_sys_open_elsewhere(int fd);
/* Maps this file of `len` bytes at `base`; -1: it is not known what is mapped there. */
int hth_sys_map_over(void *base, int fd, uint64_t len);

/* account.c: the bytes that engines of this machine have promised and not made yet. say: records
 * ours. others: subtracts theirs from the free bytes. Between lock and unlock no other engine looks
 * and promises. */
void hth_account_open(struct hth_tmpfs *t);
void hth_account_close(struct hth_tmpfs *t);
void hth_account_lock(struct hth_tmpfs *t);
void hth_account_unlock(struct hth_tmpfs *t);
void hth_account_say(struct hth_tmpfs *t, uint64_t bytes);
void hth_account_others(struct hth_tmpfs *t, struct hth_room *room);

/* spare.c: records, and small raw objects, in memory that was taken at open. write: as the
 * system calls. */
void hth_spares_open(struct hth_tmpfs *t);
int hth_spare_write(struct hth_tmpfs *t, int dir, const char *name, const void *bytes, size_t len);
/* A file of `len` bytes whose memory is there, open, by this name in .hearth/; -1: there is
 * none. */
int hth_spare_lend(struct hth_tmpfs *t, uint64_t len, const char *name);
void hth_spare_remove(struct hth_tmpfs *t, const char *name); /* from .hearth/ */
int hth_spare_names(const char *name);                        /* 1: the name of a spare */

/* small_file.c: whole files, renamed in place of what is there. */
int hth_small_put(struct hth_tmpfs *t, int dir, const char *name, const void *bytes, size_t len,
        struct hearth_error *err);
int hth_small_get(struct hth_tmpfs *t, int dir, const char *name, void **out, size_t *out_len,
        struct hearth_error *err);

/* slot.c */
/* A free slot without memory behind it yet; and away with one, file and all. */
int hth_slot_new(
        struct hth_tmpfs *t, uint64_t capacity, struct tmpfs_slot **out, struct hearth_error *err);
void hth_slot_drop(struct hth_tmpfs *t, struct tmpfs_slot *slot);
/* It cannot be backed with memory: log that, and drop it; or, where a transport has it, leave it
 * LOST. */
void hth_slot_lost(struct hth_tmpfs *t, struct tmpfs_slot *slot, const struct hearth_error *err);
/* A slot around an open file that is there, whose fd it takes on success; mapped. */
int hth_slot_adopt(struct hth_tmpfs *t, int fd, const struct stat *st, int foreign,
        struct tmpfs_slot **out, struct hearth_error *err);
/* Unmap, close, forget. The file stays. */
void hth_slot_forget(struct hth_tmpfs *t, struct tmpfs_slot *slot);
/* As hth_slot_drop(), and a worker gives its memory back. */
void hth_slot_give_back(struct hth_tmpfs *t, struct tmpfs_slot *slot);
void hth_slot_name(uint64_t id, char out[FILE_NAME_BYTES]);
/* It is one of the pool's, in whatever state. */
int hth_slot_counts(const struct tmpfs_slot *s);
void hth_slot_lease(struct hth_store *s, struct hth_slot *slot);
int hth_slot_reader(
        struct hth_store *s, const struct hth_slot *slot, int *out_fd, struct hearth_error *err);
void hth_slot_unlease(struct hth_store *s, struct hth_slot *slot);
/* The slot is FREE, or GIVEN while it is leased or open in another process. */
void hth_slot_settle(struct hth_tmpfs *t, struct tmpfs_slot *slot);
/* The same of all that wait for other processes. */
void hth_slots_settle(struct hth_tmpfs *t);

/* reserve.c */
int hth_pool_reserve(
        struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err);
int hth_pool_foresee(
        struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err);
int hth_pool_enough(
        struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err);
/* Do slots of `bytes` more fit, once `freed` bytes of slots are gone? If so, they are in the
 * machine's account: the caller makes them. HEARTH_ENOSPC. */
int hth_pool_promise(struct hth_tmpfs *t, uint64_t bytes, uint64_t freed, struct hearth_error *err);
uint64_t hth_pool_made(const struct hth_tmpfs *t); /* bytes behind our slots */

/* Free slots beside those that are in use. */
int hth_pool_room(struct hth_store *s, struct hth_store_room *out);
int hth_pool_want(struct hth_store *s, const uint64_t *bytes, size_t count, enum hth_want how,
        struct hearth_error *err);

int hth_pool_rest(struct hth_store *s);
void hth_pool_keep_only(struct hth_store *s, const uint64_t *bytes, size_t count);
struct hth_slot *hth_pool_surplus(struct hth_store *s);
struct hth_slot *hth_pool_mapped(struct hth_store *s);

/* broken.c: HEARTH_ECORRUPT and why, if another program removed or cut the slot's file; and the
 * next such slot that the engine has not received yet. */
int hth_broken_look(struct hth_tmpfs *t, struct tmpfs_slot *slot, struct hearth_error *err);
struct hth_slot *hth_broken_next(struct hth_store *s, struct hearth_error *why);

/* pool.c */
int hth_pool_take(
        struct hth_store *s, uint64_t bytes, struct hth_slot **out, struct hearth_error *err);
int hth_pool_resume(struct hth_store *s, uint64_t bytes, struct hth_save_id save, const char *name,
        struct hth_slot **out);
int hth_pool_lend(struct hth_store *s, uint64_t bytes, uint32_t rank, struct hth_slot **out,
        struct hearth_error *err);
int hth_pool_claim(struct hth_store *s, uint64_t slot, uint64_t generation, uint32_t rank,
        struct hth_slot **out, struct hearth_error *err);
void hth_pool_give(struct hth_store *s, struct hth_slot *slot);
void hth_pool_abandon(struct hth_store *s, struct hth_slot *slot);
void hth_pool_condemn(struct hth_store *s, struct hth_slot *slot, const char *why);
uint64_t hth_pool_work(struct hth_store *s, unsigned slots);
int hth_pool_soon(struct hth_store *s, uint64_t bytes);
int hth_pool_ready(struct hth_store *s, uint64_t bytes);
int hth_pool_cold(struct hth_store *s, uint64_t bytes, uint32_t rank);
void hth_pool_expect(struct hth_store *s, int on);

/* slot_back.c: pages under slots. close: the workers have stopped. */
int hth_back_open(struct hth_tmpfs *t, struct hearth_error *err);
void hth_back_close(struct hth_tmpfs *t);
uint64_t hth_back_missing(const struct hth_tmpfs *t);
/* 1: work() is to touch pages of this slot, which is made. */
int hth_back_is_cold(const struct hth_tmpfs *t, const struct tmpfs_slot *slot);
int hth_back_all(struct hth_tmpfs *t, struct tmpfs_slot *slot, struct hearth_error *err);
/* One bounded piece; 0: nothing left to do for this slot. Negative: it cannot be backed. */
int hth_back_piece(struct hth_tmpfs *t, struct tmpfs_slot *slot, struct hearth_error *err);
/* The same for all slots, with the workers; whenever one of them has ended, again. */
void hth_back_submit(struct hth_tmpfs *t, unsigned slots);
/* No worker has a part of it any more; waits for what has begun, one piece at most. */
void hth_back_claim(struct hth_tmpfs *t, struct tmpfs_slot *slot);

/* save_dir.c */
struct tmpfs_dir *hth_dir_find(struct hth_tmpfs *t, struct hth_save_id save);
int hth_dir_get(struct hth_tmpfs *t, struct hth_save_id save, struct tmpfs_dir **out,
        struct hearth_error *err);
/* Take an open directory into the list. */
int hth_dir_add(struct hth_tmpfs *t, int fd, ino_t ino, const char *name, struct tmpfs_dir **out,
        struct hearth_error *err);
void hth_dir_forget(struct hth_tmpfs *t, struct tmpfs_dir *dir);
void hth_dir_drop_foreign(struct hth_tmpfs *t, struct tmpfs_dir *dir);
int hth_dir_record(struct hth_tmpfs *t, const struct tmpfs_dir *dir, struct hearth_error *err);
/* `<save>.dir`: 0, or negative when there is none that can be read. */
int hth_dir_record_get(
        struct hth_tmpfs *t, struct hth_save_id save, ino_t *out_ino, int *out_was_published);
int hth_dir_receive(struct hth_store *s, struct hth_slot *slot, struct hth_save_id save,
        const char *name, struct hearth_error *err);
int hth_dir_seal(struct hth_store *s, struct hth_slot *slot, struct hth_save_id save,
        const char *name, struct hearth_error *err);
int hth_dir_vacant(struct hth_store *s, struct hth_save_id save, struct hearth_error *err);
int hth_dir_publish(struct hth_store *s, struct hth_save_id save, struct hearth_error *err);
void hth_dir_remove(struct hth_store *s, struct hth_save_id save);

/* A live slot of this directory has this name in it. */
int hth_dir_names_slot(const struct hth_tmpfs *t, const struct tmpfs_dir *dir, const char *name);

/* raw_file.c */
int hth_raw_make(struct hth_store *s, struct hth_save_id save, const char *name, uint64_t len,
        struct hth_raw **out, struct hearth_error *err);
int hth_raw_back(struct hth_store *s, struct hth_raw *raw, uint64_t off, uint64_t len,
        struct hearth_error *err);
int hth_raw_seal(struct hth_store *s, struct hth_raw *raw, struct hearth_error *err);
int hth_raw_open(struct hth_store *s, struct hth_save_id save, const char *name,
        struct hth_raw **out, struct hearth_error *err);
void hth_raw_close(struct hth_store *s, struct hth_raw *raw);
void hth_raws_end(struct hth_tmpfs *t);              /* close all; the workers have stopped */
uint64_t hth_raw_missing(const struct hth_tmpfs *t); /* bytes made and not yet backed */

/* release.c: unmap base[len], which may be NULL, and close fd, which may be -1: large ones on a
 * worker. */
void hth_release(struct hth_tmpfs *t, void *base, uint64_t len, int fd);
void hth_release_name(struct hth_tmpfs *t, int dir, const char *name); /* unlink a file likewise */
void hth_releases_end(struct hth_tmpfs *t); /* those with a worker; the workers have stopped */

/* adopt.c */
int hth_adopt_scan(struct hth_store *s, void (*found)(void *arg, const struct hth_store_found *f),
        void *arg, struct hearth_error *err);
int hth_adopt_theirs(struct hth_store *s, void (*found)(void *arg, const struct hth_store_found *f),
        void *arg, struct hearth_error *err);

/* theirs.c: files of foreign containers. open: the file, or what its link into the buffers stands
 * for; -1 and errno, ESTALE: a newer link has that buffer. bind: as it is now; -1: it is gone or
 * cut. forget: all of them, the memory of each with its last lease. */
int hth_theirs_open(
        const struct hth_tmpfs *t, const struct tmpfs_dir *dir, const char *name, int *out_link);
int hth_theirs_bind(struct tmpfs_slot *slot, const struct stat *file);
int hth_theirs_same(struct hth_store *s, const struct hth_slot *slot, struct hearth_error *err);
void hth_theirs_forget(struct hth_tmpfs *t);

/* kind.c: a file of a slot's size; the block at the front of a file, if it is one of our job's;
 * a slot of this save, else a raw object. */
int hth_kind_sized(const struct stat *st);
int hth_kind_block(const struct hth_tmpfs *t, int fd, uint64_t size, struct hth_block *out);
int hth_kind_is_slot(struct hth_tmpfs *t, struct hth_save_id save, int dir, const char *name,
        const struct stat *st);
/* A slot, opened to be written: with the mode that it was made with. As the system call. */
int hth_kind_open(struct hth_tmpfs *t, int dir, const char *name, const struct stat *st);

/* store_lock.c: lock the open `.hearth/lock`. */
int hth_lock_take(int fd, const char *path, struct hearth_error *err);

#endif
