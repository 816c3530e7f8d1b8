/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a build of hearthd speaks, reads and writes, as it prints it for a trial, and whether it may
 * replace a running engine. A line each:
 *
 *     version 0.1.0
 *     protocol 6 9            between engines, oldest and newest
 *     format 1 2 table        a row of core/format/versions.h
 */
#ifndef HEARTH_ENGINE_BUILD_H
#define HEARTH_ENGINE_BUILD_H

#include "core/format/versions.h"

#include <stddef.h>

#define HTH_BUILD_VERSION 32u
#define HTH_BUILD_TEXT    2048u

struct hth_build {
    char version[HTH_BUILD_VERSION]; /* "0.1.0" */
    struct hth_build_range {
        uint32_t oldest, newest; /* newest 0: the build has none of these */
    } protocol, format[HTH_FORMATS];
};

/* The versions in use with the processes that an engine talks to. */
struct hth_build_peers {
    uint32_t protocol; /* the oldest on a connection with a member; 0: there is none */
    uint32_t local;    /* the oldest of a rank's library; 0: there is none */
};

void hth_build_this(struct hth_build *out);
void hth_build_print(const struct hth_build *build, char out[HTH_BUILD_TEXT]);
/* Errors: HEARTH_EPROTO; a program that prints a reason instead of versions is quoted. */
int hth_build_parse(struct hth_build *out, const char *text, struct hearth_error *err);

/* Whether `next` may replace an engine of the build `now`. Errors: HEARTH_EUNSUPPORTED, in a
 * sentence with both versions: it is older, or it lacks a version that is in use. */
int hth_build_check(const struct hth_build *next, const struct hth_build *now,
        const struct hth_build_peers *peers, struct hearth_error *err);

#endif
