/* SPDX-License-Identifier: Apache-2.0 */
/* One file of the log. Its caller's lock guards it. */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_LOG_FILE_H
#define HEARTH_ENGINE_LOG_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct log_file {
    const char *path; /* as an operator names it; NULL: `log` in `dir` */
    int dir;          /* -1: not known yet */
    int fd;           /* -1: it could not be opened */
    off_t size;
    off_t made;        /* up to there pages are made ahead; 0: not known to be */
    uint64_t lost;     /* lines, ever */
    uint64_t lost_now; /* since a line was written last */
    int opened;        /* 0: the newest of them was lost because the file could not be opened */
    int why;           /* its errno */
};

/* 0, or -1 and errno; EINVAL: something other than a regular file with one name lies there. */
int log_file_open(struct log_file *f);
/* Writes bytes[len] whole: 0. Else nothing of it stays, and an errno; the caller counts it. */
int log_file_put(struct log_file *f, const char *bytes, size_t len);
void log_file_close(struct log_file *f);

#endif
