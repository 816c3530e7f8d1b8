/* SPDX-License-Identifier: Apache-2.0 */
/* The process confines itself to the files that it needs, by Landlock. This limits the damage if an
 * attacker makes an engine run his code, or open a name of his. */
/* For this folder alone. */
#ifndef HEARTH_DAEMON_CONFINE_H
#define HEARTH_DAEMON_CONFINE_H

#include "engine/driver/config.h"

/* Before another thread is there. With transport = tcp this thread is confined on return, so
 * each that it starts is as well; with auto the engine does it when tcp is settled
 * (engine/driver/confined.h), by config->confining, which is set here and says why not where
 * nothing is done. The process loads first all that it needs of the rest of the file system. For
 * good: from then on neither it nor its children open another file or run a program. */
void daemon_confine(struct hth_config *config, int argc, char *const *argv);

#endif
