/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hearthd processes of this machine, found by their command lines: the contents of an engine's
 * files are right only in its own process namespace, and only while the engine holds the lock.
 */
#ifndef HEARTH_TESTS_ENGINES_H
#define HEARTH_TESTS_ENGINES_H

#include <sys/types.h>

/* Engines whose --root is dir or lies below it, of that --node (NULL: any), but for those that are
 * dead already: how many, the first ones, oldest first, in pid[max]. */
int engines_find(const char *dir, const char *node, pid_t *pid, int max);

/* Sends all of them a signal; returns how many there were. SIGKILL and SIGTERM: returns only when
 * they have ended, all their threads, and with them locks and sockets; SIGSTOP: only when all their
 * threads stand still. -1: an engine has not within 10 s. */
int engines_signal(const char *dir, const char *node, int sig);

/* How many of them stand still, all their threads. An engine that stops itself reports it a moment
 * before, and a SIGCONT in between would be lost. */
int engines_stopped(const char *dir, const char *node);

/* Waits until they have done all that they can do now, however busy the machine is: all their
 * threads sleep at each of several looks. -1: not in 10 s, or there are none. */
int engines_settle(const char *dir, const char *node);

#endif
