/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work of a moment, shared out: the caller's thread and those of a crew take parts of it until none
 * is left, and the caller goes on when the last one is done. The caller does not wait for a thread
 * that has not begun: if the machine has no time for the crew, the caller does all parts by itself.
 * Memory is the caller's own for as long as the call takes, so nothing of a connection outlives it.
 */
/* For this folder alone. */
#ifndef HEARTH_TRANSPORT_TCP_CREW_H
#define HEARTH_TRANSPORT_TCP_CREW_H

#define HTH_TCP_CREW 4u /* threads beside the caller's */

struct hth_tcp_crew;

/* Threads for a machine with so many processors: none below four. */
unsigned hth_tcp_crew_size(unsigned processors);

/* The threads start with the first work. NULL: no memory, or `threads` is 0. NULL is a valid crew
 * without threads. */
struct hth_tcp_crew *hth_tcp_crew_new(unsigned threads);

/* Calls run(arg, part, who) for each part of 0..parts-1, on any free thread. who: 0 is the caller's
 * thread, 1..HTH_TCP_CREW the others; each runs one part at a time. parts < 65536. Called by one
 * thread. */
void hth_tcp_crew_run(struct hth_tcp_crew *crew, unsigned parts,
        void (*run)(void *arg, unsigned part, unsigned who), void *arg);

void hth_tcp_crew_free(struct hth_tcp_crew *crew); /* NULL: nothing */

#endif
