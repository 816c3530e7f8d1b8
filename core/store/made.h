/* SPDX-License-Identifier: Apache-2.0 */
/* Which entries of a job's directory Hearth made: by their names below `.hearth/`, in a save's
 * directory also by what they hold. Every other entry is foreign, whichever program or user put it
 * there. */
/* For this folder alone. */
#ifndef CORE_MADE_H
#define CORE_MADE_H

#include "core/format/manifest.h"

enum hth_made {
    HTH_MADE_NOT,
    HTH_MADE_FILE,     /* a record, a log, memory that is kept, what is on its way to its name */
    HTH_MADE_POOL,     /* the directory of slots */
    HTH_MADE_EVIDENCE, /* the directory of condemned ones */
    HTH_MADE_SAVE      /* the directory of a save that is not published */
};

/* An entry of `.hearth/`. */
enum hth_made hth_made_record(const char *name);
int hth_made_slot(const char *name);     /* a file of the pool */
int hth_made_evidence(const char *name); /* a file among the evidence */

/* A directory that holds a save. */
struct hth_made_save {
    const char *job; /* borrowed */
    struct hth_save_id id;
    int hidden; /* it lies in .hearth/ */
    int named; /* .hearth/ says that this directory is the save's; else it is a copy, or the record is gone */
    int listed;
    struct hth_manifest manifest; /* where listed */
};

/* Whose is the directory `dir`, an entry `name` of `.hearth/` or, for NULL, of the job's?
 * `records` is `.hearth/`. 1: a save of the job, and *out; end it with hth_made_fini(). 0: not
 * one. */
int hth_made_of(int records, int dir, const char *name, const char *job, struct hth_made_save *out);
void hth_made_fini(struct hth_made_save *save);

/* A regular file of the save's directory, open as `fd` (-1: it cannot be opened). 1: it has the
 * block of an object of this job, or the manifest lists its name. Where there is no manifest,
 * and in `.hearth/`, each name that an object may have is the save's. */
int hth_made_object(const struct hth_made_save *save, int fd, const char *name);

#endif
