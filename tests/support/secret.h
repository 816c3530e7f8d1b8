/* SPDX-License-Identifier: Apache-2.0 */
/* A job key that the test itself does not have in its memory, and a search of that memory for
 * it. */
#ifndef TESTS_SECRET_H
#define TESTS_SECRET_H

/* Writes a fresh key to the file, mode 0600. 0: done. */
int secret_write(const char *path);

/* How often it lies in this process's memory now, its stacks included. */
int secret_copies(void);

#endif
