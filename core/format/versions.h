/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The versions of each format that this build reads. It writes the newest. A file of another
 * version is not damaged: it is refused by name, with both versions, and left as it is.
 *
 * To change a format: raise `newest` in its row, write the new field, and read it where the
 * decoder's version has it. `oldest` of the same row is the oldest version that is still read. The
 * store's row rises with any record in it, so that an engine that would misread one does not start.
 * tests/core/test_golden.c knows the bytes of each row's version.
 */
#ifndef HEARTH_CORE_FORMAT_VERSIONS_H
#define HEARTH_CORE_FORMAT_VERSIONS_H

#include "core/base/fail.h"

#include <stdint.h>

/*           row, oldest, newest, what it is called */
#define HTH_VERSIONS(X)                   \
    X(BLOCK, 1, 1, "block")               \
    X(TABLE, 1, 2, "table")               \
    X(MANIFEST, 2, 3, "manifest")         \
    X(EPOCH, 2, 3, "epoch record")        \
    X(KEEP, 2, 4, "keep record")          \
    X(PLANS, 3, 4, "record of plans")     \
    X(RUNNING, 1, 2, "running record")    \
    X(HEAD, 2, 2, "head of the log")      \
    X(LIFE, 1, 1, "count of starts")      \
    X(HANDED, 1, 3, "commit record")      \
    X(FABRIC, 1, 1, "fabric record")      \
    X(STORE, 5, 7, "store")               \
    X(GREETING, 2, 10, "rank's greeting") \
    X(LOCAL, 13, 17, "local protocol")

enum hth_format {
#define HTH_VERSIONS_ROW(row, oldest, newest, what) HTH_FORMAT_##row,
    HTH_VERSIONS(HTH_VERSIONS_ROW)
#undef HTH_VERSIONS_ROW
            HTH_FORMATS
};

struct hth_versions {
    const char *what;
    uint32_t oldest, newest;
};

/* Our row, and the version in it that encoders write. Decoders named `..._as()` take a row as an
 * argument, for a caller that has another one. */
const struct hth_versions *hth_versions_of(enum hth_format format);
uint32_t hth_version_written(enum hth_format format);

/* Errors: HEARTH_EUNSUPPORTED, in a sentence: both versions, and what to do. */
int hth_version_check(
        const struct hth_versions *versions, uint32_t found, struct hearth_error *err);

#endif
