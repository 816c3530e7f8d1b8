/* SPDX-License-Identifier: Apache-2.0 */
/* A process beside the engine's that becomes the next engine, where the program is upgraded. */
/* For this folder alone. */
#ifndef HEARTH_DAEMON_SUCCESSOR_H
#define HEARTH_DAEMON_SUCCESSOR_H

#include "engine/driver/config.h"

struct succession; /* of this process, for as long as it lives */

/* Called before there are threads and secrets, and before the process confines itself. argv stays
 * as it is. config->successor is set; NULL: the process could not be started, and this engine
 * cannot be upgraded. */
void successor_prepare(struct hth_config *config, int argc, char *const *argv);

/* The engine is closed: the next one has its lock, its socket and, if it was started with one, the
 * descriptor of the key. 1: it serves. 0: it has ended, or was ended because it did not serve in
 * time; there is no other try. */
int successor_take_over(const struct hth_config *config);

/* hearthd is in the foreground, and whatever has started it waits for it. Until the next engine
 * ends, to which signals that arrive at stop_fd are passed on. Its exit status. */
int successor_await_end(int stop_fd);

/* This process is the next engine: the descriptors that it was given come into config. 0: it is
 * not. */
int successor_is(struct hth_config *config);
void successor_serves(void); /* ... and it is open: the engine before it may end */

#endif
