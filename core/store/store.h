/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's memory as the engine sees it. There are two implementations: store_tmpfs.c, with files
 * in <root>/<job>/, and the simulator's, in plain memory. The engine's thread makes all calls but
 * raw_back.
 *
 *   slot:  FREE ──take──► HELD ──receive──► <name>.tmp in the save's directory ──┐
 *            ▲              └──────────────────seal──────────────────────────────┴─► SEALED
 *            └────────────────────────────────give◄──────────────────────────────────────┘
 *
 * A slot's memory stays where it is through all of this: same inode, same pages, same mapping. It
 * is never shrunk, punched or truncated. A leased slot that is given back becomes FREE when its
 * last lease ends. Manifests are small ordinary files; raw objects are files of their own:
 *
 *   raw_make ──► raw_back, all of it ──► bytes written ──► raw_seal ──► raw_close
 *                                                          raw_open ──► bytes read ──► raw_close
 */
#ifndef HEARTH_CORE_STORE_STORE_H
#define HEARTH_CORE_STORE_STORE_H

#include "core/format/block.h"
#include <limits.h>

/* Written by the store; others read. */
struct hth_slot {
    uint64_t id;         /* of the slot, for ever (its file name in the pool) */
    uint64_t generation; /* counts its uses */
    unsigned char *base; /* [capacity], readable and writable */
    uint64_t capacity;   /* bytes, block and table included */
    int fd;              /* to lend to a rank that writes; -1 in plain memory */
    uint32_t leases;     /* readers, grants; hth_store_lease() */
    void *user;          /* the engine's: registration with the transport */
};

/* An open raw object; written by the store, others read. */
struct hth_raw {
    unsigned char *base; /* [len]; writable until it is sealed. NULL: len is 0 */
    uint64_t len;
    int fd; /* to lend for reading, once sealed; -1 in plain memory */
};

struct hth_store;

/* How the memory of a store is used. UINT64_MAX: there is no such limit, or it is not known. */
struct hth_store_room {
    uint64_t slots, free; /* bytes of all slots, and of those that are free */
    uint64_t spare;       /* of slots that could be made beside them now */
    uint64_t max;         /* that all slots may have together */
    uint64_t size, left;  /* of the file system; free there */
    uint64_t cgroup_max;  /* of the cgroup that leaves least room, its limit ... */
    uint64_t cgroup_used; /* ... and what is charged to it, without page cache that can go */
};

/* What scan() reports. */
struct hth_store_found {
    struct hth_save_id save; /* of the block for objects; of the name for directories */
    const char *dir;         /* the directory's name */
    const char *name;        /* of the file */
    int tmp;                 /* a slot that was being received: name is without `.tmp` */
    struct hth_slot *slot;   /* NULL: a raw object or a manifest */
    int link;                /* foreign: the file is a link into its writer's buffers */
    int unfinished; /* nothing but: the foreign container `dir` has an `unfinished` marker */
};

#define HTH_WORK_ALL UINT_MAX

/* Whose slots a want() counts or takes. */
enum hth_want {
    HTH_WANT_OR_READERS, /* reserved slots that only readers still hold count as free */
    HTH_WANT_BESIDE,     /* beside readers, too */
    HTH_WANT_FIRST /* the same, and free slots of other sizes are dropped where room is short */
};

struct hth_store_ops {
    /* Reserves room for slots of these sizes (block and table included; capacity is 17/16 of it,
     * rounded up to 2 MiB). The store makes what is missing, in the background where it can.
     * Errors: HEARTH_ENOSPC with the three limits and what to do; then it has made nothing. */
    int (*reserve)(
            struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err);

    /* The same for saves that have not been announced: the store makes what fits in the background,
     * and take() goes on making what it does not find. No slot is dropped for them. Errors: as
     * above. */
    int (*foresee)(
            struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err);

    /* Would reserve() or foresee() of these sizes succeed? Makes nothing. Errors: as above. NULL:
     * they always would. */
    int (*enough)(
            struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err);

    /* Errors: HEARTH_EIO. NULL: it is not known. */
    int (*room)(struct hth_store *s, struct hth_store_room *out);

    /* Ensures free slots of these sizes beside those in use, for what is about to be taken; the
     * store makes what is missing in the background. Where reserve() was never called and room is
     * short, it drops free slots of other sizes, as few as it must. NULL: take() makes what it
     * lacks. Errors: HEARTH_ENOSPC as above; HEARTH_EBUSY: the slots fit once readers have ended,
     * or once ranks have unmapped the slots that mapped() returns. */
    int (*want)(struct hth_store *s, const uint64_t *bytes, size_t count, enum hth_want how,
            struct hearth_error *err);

    /* Gives back free slots beyond those of these sizes; a worker frees the memory behind them.
     * Slots that ranks have mapped stay, and so do those whose `user` is not NULL. NULL: all
     * stay. */
    void (*keep_only)(struct hth_store *s, const uint64_t *bytes, size_t count);

    /* After HEARTH_ENOSPC of reserve() or want(), or after keep_only(): the next free slot that
     * stays only because it is registered (`user` is not NULL). Its memory can be freed once the
     * caller has deregistered it. NULL: none. The op is NULL for a store that has no such slots. */
    struct hth_slot *(*surplus)(struct hth_store *s);

    /* The next slot that is not dropped because a rank has it mapped, each slot once; NULL: none.
     * Once the ranks have unmapped it, it is free or is dropped. The op is NULL where no rank maps
     * slots. */
    struct hth_slot *(*mapped)(struct hth_store *s);

    /* Takes the best-fitting free slot of at least `bytes`. Where reserve() was never called and
     * there is room, the store makes a new one: with workers in the background, and take() returns
     * HEARTH_EBUSY until it is made. Errors: HEARTH_EBUSY: no free slot in what was reserved, or it
     * is being made (soon()); HEARTH_ENOSPC. */
    int (*take)(
            struct hth_store *s, uint64_t bytes, struct hth_slot **out, struct hearth_error *err);

    /* The free slot of at least `bytes` that was `<name>.tmp` of `save` when it was given back, by
     * this engine or at its start, and was not used since. It is taken as it is: nothing in it is
     * verified. Errors: HEARTH_ENOENT, without a sentence. */
    int (*resume)(struct hth_store *s, uint64_t bytes, struct hth_save_id save, const char *name,
            struct hth_slot **out);

    /* take() for a rank, which writes into a mapping of its own: where slots fit equally well, the
     * one that it had last, since touching a new one costs more than the copy. */
    int (*lend)(struct hth_store *s, uint64_t bytes, uint32_t rank, struct hth_slot **out,
            struct hearth_error *err);

    /* Takes the slot of that number, which a rank wrote into under an engine before this one, as it
     * is, if it lies in the pool and has not been used since. Errors: HEARTH_ENOENT. */
    int (*claim)(struct hth_store *s, uint64_t slot, uint64_t generation, uint32_t rank,
            struct hth_slot **out, struct hearth_error *err);

    /* Show a taken slot as `<name>.tmp` of `save`, whose directory is made where needed. */
    int (*receive)(struct hth_store *s, struct hth_slot *slot, struct hth_save_id save,
            const char *name, struct hearth_error *err);

    /* Gives the slot its final name, never over another. Errors: HEARTH_EEXIST; HEARTH_EIO;
     * HEARTH_ECORRUPT: another program has removed its file or cut it short. */
    int (*seal)(struct hth_store *s, struct hth_slot *slot, struct hth_save_id save,
            const char *name, struct hearth_error *err);

    /* Gives the slot back to the pool, from any state but FREE. */
    void (*give)(struct hth_store *s, struct hth_slot *slot);

    /* The same for a slot that was lent to a rank which is gone and did not hand it back. The store
     * hands it out again only once that rank's process can no longer write to it. */
    void (*abandon)(struct hth_store *s, struct hth_slot *slot);

    /* From 1 until 0: ranks of an engine before this one come back, and unmap slots that they do
     * not need. Free slots that other processes have mapped count as there, and the store makes
     * none in their place. The op is NULL where no other process maps slots. */
    void (*expect)(struct hth_store *s, int on);

    /* Puts the slot aside as evidence (bounded; beyond that, as give). `why` goes into the file's
     * name. */
    void (*condemn)(struct hth_store *s, struct hth_slot *slot, const char *why);

    /* The next slot whose file another program has removed or cut short, each slot once; `why` has
     * which and how. NULL: none. The caller condemns it, and another is made in its place. A slot
     * that is being written is not returned before it was sealed or given back. The op is NULL
     * where no other program reaches the files. */
    struct hth_slot *(*broken)(struct hth_store *s, struct hearth_error *why);

    void (*lease)(struct hth_store *s, struct hth_slot *slot);
    void (*unlease)(struct hth_store *s, struct hth_slot *slot);
    /* A descriptor for a rank that reads: the rank cannot write or cut the file through it. The
     * caller closes it; -1 in plain memory. Errors: HEARTH_EIO, HEARTH_ECORRUPT as seal. */
    int (*reader)(struct hth_store *s, const struct hth_slot *slot, int *out_fd,
            struct hearth_error *err);

    /* A raw object to be written, not visible until raw_seal(): quick, whatever its size. Room is
     * checked.
     * Errors: HEARTH_ENOSPC naming the object and what to do, HEARTH_EEXIST, HEARTH_EINVAL. */
    int (*raw_make)(struct hth_store *s, struct hth_save_id save, const char *name, uint64_t len,
            struct hth_raw **out, struct hearth_error *err);
    /* Memory behind bytes [off, off + len): before they are written, each once. Any thread; takes
     * as long as it takes. Errors: HEARTH_ENOSPC as above. */
    int (*raw_back)(struct hth_store *s, struct hth_raw *raw, uint64_t off, uint64_t len,
            struct hearth_error *err);
    /* Its final name, in place of what a raw object was there; not written to any more.
     * Errors: HEARTH_ENOENT the save was removed meanwhile, HEARTH_EEXIST, HEARTH_EIO. */
    int (*raw_seal)(struct hth_store *s, struct hth_raw *raw, struct hearth_error *err);
    /* A sealed one, to be read; its bytes are not verified. Errors: HEARTH_ENOENT. */
    int (*raw_open)(struct hth_store *s, struct hth_save_id save, const char *name,
            struct hth_raw **out, struct hearth_error *err);
    /* NULL: nothing. An object that was not sealed is removed; the memory of a sealed one whose
     * file was removed is freed by its last close. */
    void (*raw_close)(struct hth_store *s, struct hth_raw *raw);

    /* Can this save, which begins, be published? Errors: HEARTH_EEXIST: another program's
     * container has the step's name; both are named. NULL: it always can. */
    int (*vacant)(struct hth_store *s, struct hth_save_id save, struct hearth_error *err);

    /* COMPLETE: the directory becomes step-<N>_ckpt, in exchange with an older save of that
     * step. */
    int (*publish)(struct hth_store *s, struct hth_save_id save, struct hearth_error *err);

    /* Remove a save's directory with its raw objects and manifest; its slots were given back
     * before. Exchanges back first if it was published over an older save of its step. */
    void (*remove)(struct hth_store *s, struct hth_save_id save);

    /* Records in .hearth/: `epoch`, `keep`, `<save>.manifest`. Atomic. get: malloc'ed,
     * HEARTH_ENOENT. */
    int (*record_put)(struct hth_store *s, const char *name, const void *bytes, size_t len,
            struct hearth_error *err);
    int (*record_get)(struct hth_store *s, const char *name, void **out, size_t *out_len,
            struct hearth_error *err);
    void (*record_remove)(struct hth_store *s, const char *name);

    /* Reports everything that is there after a start: saves' directories, their slots (mapped,
     * without a lease) and files. It adopts free slots of the pool silently. It may call `found`
     * with a directory of a foreign container too (save.epoch 0): with its files as slots that are
     * only readable, or without a slot, because its writer has not finished it. Broken entries are
     * skipped and logged. */
    int (*scan)(struct hth_store *s, void (*found)(void *arg, const struct hth_store_found *f),
            void *arg, struct hearth_error *err);

    /* Looks anew at foreign containers alone. The store forgets their files that it found before,
     * and frees the memory of each with its last lease; the caller has ended what was registered.
     * NULL: there never are any. */
    int (*theirs)(struct hth_store *s, void (*found)(void *arg, const struct hth_store_found *f),
            void *arg, struct hearth_error *err);

    /* Is a foreign file still what it was when it was found? The caller asks after it has read the
     * bytes. Other slots: yes. Errors: HEARTH_ELOST, which file and what has changed. NULL: no file
     * can change. */
    int (*same)(struct hth_store *s, const struct hth_slot *slot, struct hearth_error *err);

    /* Does a bounded piece of background work (prefault), or gives some to the workers. Returns the
     * time of the next piece; HTH_NEVER: there is none. The caller calls it again when a worker has
     * ended. With workers, at most `slots` slots are made side by side, first those that take()
     * lacked; HTH_WORK_ALL: no such limit, and work that only makes later calls faster is done
     * too. */
    uint64_t (*work)(struct hth_store *s, unsigned slots);

    /* If memory is short, the store removes pages of slots that no process writes into from this
     * process's mapping, and mapped() returns those slots that ranks have mapped. The pages stay in
     * memory, and come back when they are touched. Slots that a transport has pinned are left
     * alone. NULL: the store maps none. */
    int (*rest)(struct hth_store *s); /* 1: memory is short, and the caller asks again soon */

    /* 1: no free slot of so many bytes is ready, and the workers are making one: until then
     * take() fails. */
    int (*soon)(struct hth_store *s, uint64_t bytes);

    /* 1: take() would find a free slot of so many bytes, and have nothing to make. */
    int (*ready)(struct hth_store *s, uint64_t bytes);

    /* 1: the slot of so many bytes that lend() would find was never written, and work() has not
     * touched all its pages: the rank's first copy into it would clear them. NULL: never. */
    int (*cold)(struct hth_store *s, uint64_t bytes, uint32_t rank);

    uint64_t (*id)(
            struct hth_store *s); /* random, kept in .hearth/store: same id = the memory survived */
    void (*close)(struct hth_store *s); /* unmap; files stay */
};

struct hth_store {
    const struct hth_store_ops *ops;
};

#endif
