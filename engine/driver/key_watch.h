/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job key of an engine, and its file, which is looked at every 2 s. An operator who changes the
 * file need not find the engines of a job, nor log in to their machines if the file is on all of
 * them. A signal would reach one engine at a time, and SIGHUP is what a session that ends sends.
 */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_KEY_WATCH_H
#define HEARTH_ENGINE_KEY_WATCH_H

#include "core/base/auth.h"
#include "core/base/env.h"

struct hth_key_watch;

/* opener: copied; NULL: the file is opened by its name. Errors: as of hth_key_open(). */
int hth_key_watch_open(const char *path, const struct hth_key_opener *opener,
        struct hth_key_watch **out, struct hearth_error *err);
const struct hth_key *hth_key_watched(const struct hth_key_watch *w); /* NULL: there is none */
/* 1: the keys or their order have changed. A file that cannot be read, or has no key, changes
 * nothing. It is read again at each look until it can be read; each cause is logged once, and then
 * once a minute. */
int hth_key_watch_look(struct hth_key_watch *w, uint64_t now_ms, const struct hth_log *log);
void hth_key_watch_close(struct hth_key_watch *w); /* NULL: nothing */

#endif
