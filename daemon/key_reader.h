/* SPDX-License-Identifier: Apache-2.0 */
/* A process beside the engine's that opens one file for it: the key file, by its name, as often as
 * the engine asks. */
/* For this folder alone. */
#ifndef HEARTH_DAEMON_KEY_READER_H
#define HEARTH_DAEMON_KEY_READER_H

#include <stdint.h>
#include <sys/types.h>

struct key_reader {
    int sock; /* this process's end; the reader ends with it */
    pid_t pid;
    uint64_t turn;
};

/* Called before there are threads and secrets, since the reader is a fork. The reader uses the
 * memory of its arguments (argv[argc]) for its own title: no code reads them there any more. `path`
 * is needed until return. 0 or an errno. */
int key_reader_start(
        const char *path, const char *job, int argc, char *const *argv, struct key_reader *out);
/* The file as it is now; the caller closes. -1 and errno: of open(2); EPIPE: the reader has
 * ended; ETIMEDOUT: no answer in 1 s. */
int key_reader_open(struct key_reader *r);

#endif
