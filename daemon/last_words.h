/* SPDX-License-Identifier: Apache-2.0 */
/* The last lines that an engine's process writes when a fault ends it: in the log, where an
 * operator looks. */
#ifndef HEARTH_DAEMON_LAST_WORDS_H
#define HEARTH_DAEMON_LAST_WORDS_H

/*
 * If another program cuts a mapped file, the process does not end: what is missing reads as zeros
 * (core/base/guard.h). After this call any other signal that ends the process for a fault of its
 * own (SEGV, BUS, ABRT, FPE, ILL) leaves its name and the calls it stood in in `log` of the folder,
 * and ends it as before. With take_output, what libraries print (an assertion of UCX, glibc's
 * "corrupted") goes there too, instead of descriptors 1 and 2. A part that cannot be set up is left
 * as it was. records_fd: borrowed for the call.
 */
void hth_last_words(int records_fd, int take_output);

#endif
