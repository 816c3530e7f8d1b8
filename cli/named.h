/* SPDX-License-Identifier: Apache-2.0 */
/* A container's own `.metadata`. */
/* For this folder alone. */
#ifndef HEARTH_CLI_NAMED_H
#define HEARTH_CLI_NAMED_H

#include "cli.h"
#include <hearth/metadata.h>

struct named {
    void *bytes;
    struct hearth_metadata *md;
};

struct named_item {
    uint64_t at, len; /* as offsets of the file count */
    struct hearth_text name;
    int tensor;
};

/* `path` is for sentences, here and below. Errors: HEARTH_ENOENT: there is none here;
 * HEARTH_ECORRUPT: it is torn; those of read_small(). */
int named_open(struct named *n, int container, const char *path, struct hearth_error *err);
void named_close(struct named *n); /* one of zeros, too */
/* In order of their places; malloc'ed, names live as long as n. */
int named_items(const struct named *n, const char *file, struct named_item **out, size_t *out_count,
        struct hearth_error *err);

struct job_names { /* the entries of a job's directory, sorted */
    char **names;  /* [count]; NULL: they cannot be listed */
    size_t count;
};
/* `dir` is for sentences. */
struct job_names job_names_list(int job, const char *dir);
void job_names_free(struct job_names *n);
/* 1: a writer has left a marker `<name>...unfinished` beside the container, and it is still there;
 * why says so. */
int named_marker(const struct job_names *n, int job, const char *name, char why[400]);
int named_is_plain(
        int fd, const char *path); /* 1: a `.distcp` of torch's own writer, with no block */
int named_is_quick(int container); /* its `.metadata` is read in a moment, or there is none */

struct named_sum {
    size_t items, files, here; /* that it names; files that are on this node */
};
/* Do the files that are here have room for all that it puts there? Errors: as named_open();
 * HEARTH_ECORRUPT naming the file that does not, HEARTH_EIO the one that cannot be looked at. */
int named_check(
        const struct place *p, const char *path, struct named_sum *out, struct hearth_error *err);

#endif
