/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's memory as the engine sees it. Two make it: store_tmpfs.c (files in
 * <root>/<job>/) and the simulator's, in plain memory. All calls but raw_back: the engine's
 * thread.
 *
 *   slot:  FREE ──take──► HELD ──receive──► <name>.tmp in the save's directory ──┐
 *            ▲              └──────────────────seal──────────────────────────────┴─► SEALED
 *            └────────────────────────────────give◄──────────────────────────────────────┘
 *
 * A slot's memory stays where it is through all of this: same inode, same pages, same mapping.
 * It is never shrunk, punched or truncated. A leased slot that is given back becomes FREE when
 * its last lease ends. Manifests are small ordinary files; raw objects are files of their own:
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
    HTH_WANT_FIRST       /* the same, and free slots of other sizes make way where room is short */
};

struct hth_store_ops {
    /* Room for slots of these sizes (block and table included; capacity is 17/16 of it, rounded
     * up to 2 MiB). Makes what is missing, in the background where it can. Errors: HEARTH_ENOSPC
     * with the three limits and what to do; then nothing was made. */
    int (*reserve)(
            struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err);

    /* The same for saves that have not been announced: what fits is made in the background, and
     * take() goes on making what it does not find. No slot makes way. Errors: as above. */
    int (*foresee)(
            struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err);

    /* Would it be reserved or foreseen? Nothing is made. Errors: as above. NULL: it always
     * would. */
    int (*enough)(
            struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err);

    /* Free slots of these sizes beside those that are in use, for what is about to be taken;
     * what is missing is made in the background. Where reserve() was never called and room is
     * short, free slots of other sizes make way, as few as have to. NULL: take() makes what it
     * lacks. Errors: HEARTH_ENOSPC as above; HEARTH_EBUSY where it fits when readers have ended,
     * or when ranks have unmapped what mapped() names. */
    int (*want)(struct hth_store *s, const uint64_t *bytes, size_t count, enum hth_want how,
            struct hearth_error *err);

    /* Free slots beyond those of these sizes are given back, the memory behind them by a worker;
     * not those that ranks have mapped, nor those whose `user` is not NULL. NULL: they stay. */
    void (*keep_only)(struct hth_store *s, const uint64_t *bytes, size_t count);

    /* After HEARTH_ENOSPC of reserve() or want(), or after keep_only(): the next free slot that
     * stays only because it is registered (`user` is not NULL): deregister it, and its memory can
     * be freed. NULL: none. The op is NULL for a store that has no such slots. */
    struct hth_slot *(*surplus)(struct hth_store *s);

    /* The next slot that makes no way because a rank has it mapped, each one once; NULL: none.
     * It is free, or makes way, when the ranks have unmapped it. The op is NULL where nobody
     * maps any. */
    struct hth_slot *(*mapped)(struct hth_store *s);

    /* Best-fitting free slot of at least `bytes`. Where reserve() was never called and there is
     * room, a new one is made: by the workers where there are any, and until then HEARTH_EBUSY.
     * Errors: HEARTH_EBUSY no free slot in what was reserved, or it is being made (soon());
     * HEARTH_ENOSPC. */
    int (*take)(
            struct hth_store *s, uint64_t bytes, struct hth_slot **out, struct hearth_error *err);

    /* The free slot of at least `bytes` that was `<name>.tmp` of `save` when it was given back, by
     * this engine or at its start, and was not used since: taken as it is, and nothing in it is
     * verified. Errors: HEARTH_ENOENT, without a sentence. */
    int (*resume)(struct hth_store *s, uint64_t bytes, struct hth_save_id save, const char *name,
            struct hth_slot **out);

    /* take() for a rank, which writes into a mapping of its own: where slots fit equally well, the
     * one that it had last, since touching a new one costs more than the copy. */
    int (*lend)(struct hth_store *s, uint64_t bytes, uint32_t rank, struct hth_slot **out,
            struct hearth_error *err);

    /* The slot of that number, written into under an engine before this one: taken as it is, if it
     * lies in the pool and has not been used since. Errors: HEARTH_ENOENT. */
    int (*claim)(struct hth_store *s, uint64_t slot, uint64_t generation, uint32_t rank,
            struct hth_slot **out, struct hearth_error *err);

    /* Show a taken slot as `<name>.tmp` of `save`, whose directory is made where needed. */
    int (*receive)(struct hth_store *s, struct hth_slot *slot, struct hth_save_id save,
            const char *name, struct hearth_error *err);

    /* Its final name, never over another. Errors: HEARTH_EEXIST, HEARTH_EIO, HEARTH_ECORRUPT:
     * somebody has removed its file or cut it short. */
    int (*seal)(struct hth_store *s, struct hth_slot *slot, struct hth_save_id save,
            const char *name, struct hearth_error *err);

    /* Back to the pool, from any state but FREE. */
    void (*give)(struct hth_store *s, struct hth_slot *slot);

    /* The same of one that was lent to a rank which is gone and did not hand it back. Nobody has
     * it again before that rank's process cannot write it any more. */
    void (*abandon)(struct hth_store *s, struct hth_slot *slot);

    /* 1, until 0: ranks of an engine before this one come back and unmap slots that they do not
     * need. Free slots that other processes have mapped count as there, and none is made in
     * their place. The op is NULL where nobody maps any. */
    void (*expect)(struct hth_store *s, int on);

    /* Put aside as evidence (bounded; beyond that, give). `why` goes into the file's name. */
    void (*condemn)(struct hth_store *s, struct hth_slot *slot, const char *why);

    /* The next slot whose file somebody has removed or cut short, told once, and which; NULL: none.
     * Its owner condemns it, and another is made in its place. Slots that are being written come
     * when they were given back. The op is NULL where nobody can. */
    struct hth_slot *(*broken)(struct hth_store *s, struct hearth_error *why);

    void (*lease)(struct hth_store *s, struct hth_slot *slot);
    void (*unlease)(struct hth_store *s, struct hth_slot *slot);
    /* A descriptor for a rank that reads: nothing can be written or cut through it. The caller
     * closes it; -1 in plain memory. Errors: HEARTH_EIO, HEARTH_ECORRUPT as seal. */
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

    /* Everything that is there, after a start: saves' directories, their slots (mapped, leased to
     * nobody) and files. Free slots of the pool are adopted silently. `found` may be called with
     * a directory of a foreign container too (save.epoch 0): with its files as slots that are only
     * readable, or, without a slot, because its writer has not finished it. What is broken is
     * skipped and logged. */
    int (*scan)(struct hth_store *s, void (*found)(void *arg, const struct hth_store_found *f),
            void *arg, struct hearth_error *err);

    /* Foreign containers alone, looked at anew. Files of theirs that were found before are
     * forgotten, the memory of each with its last lease; the caller has ended what was registered.
     * NULL: there never are any. */
    int (*theirs)(struct hth_store *s, void (*found)(void *arg, const struct hth_store_found *f),
            void *arg, struct hearth_error *err);

    /* Is a foreign file what it was when it was found? Asked after its bytes were read. Of other
     * slots: yes. Errors: HEARTH_ELOST, which file and what has changed. NULL: none can change. */
    int (*same)(struct hth_store *s, const struct hth_slot *slot, struct hearth_error *err);

    /* The next moment of background work (prefault), HTH_NEVER: none; and do a bounded piece of it,
     * or give some to the workers. To be called again when one of them has ended. With workers no
     * more than `slots` are made side by side, first those that a take() was refused; HTH_WORK_ALL:
     * and the rest is done too that only makes things faster. */
    uint64_t (*work)(struct hth_store *s, unsigned slots);

    /* Where memory is short, pages of slots that nothing is written into leave this process's
     * mapping, and mapped() names those that ranks have mapped. The pages stay in memory, and come
     * back when they are touched. Not while a transport has pinned them. NULL: it maps none. */
    int (*rest)(struct hth_store *s); /* 1: it is short, and soon to be asked again */

    /* 1: no free slot of so many bytes is ready, and the workers are making one: until then
     * take() fails. */
    int (*soon)(struct hth_store *s, uint64_t bytes);

    /* 1: take() would find a free slot of so many bytes, and have nothing to make. */
    int (*ready)(struct hth_store *s, uint64_t bytes);

    uint64_t (*id)(
            struct hth_store *s); /* random, kept in .hearth/store: same id = the memory survived */
    void (*close)(struct hth_store *s); /* unmap; files stay */
};

struct hth_store {
    const struct hth_store_ops *ops;
};

#endif
