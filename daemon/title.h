/* SPDX-License-Identifier: Apache-2.0 */
/* The text by which ps shows a process that hearthd forks. */
/* For this folder alone. */
#ifndef HEARTH_DAEMON_TITLE_H
#define HEARTH_DAEMON_TITLE_H

/* Uses the memory of the arguments (argv[argc]), which no code reads there any more. name: at most
 * 15 bytes. */
void title_set(const char *name, const char *does, const char *job, int argc, char *const *argv);

#endif
