/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data that thousands of engines in one process have alike, kept once: bytes by digest, the decoded
 * form of equal bytes, and the members of an epoch. A program that is linked with these wraps
 * (tests/sim/sim.cmake) calls engines that do not notice them. A pull into bytes that are there
 * already copies them onto themselves, so nothing may be damaged on the way. For one thread.
 */
#ifndef HEARTH_TESTS_ALIKE_H
#define HEARTH_TESTS_ALIKE_H

void alike_on(
        void); /* until then the wraps do nothing; records of stores in memory are shared too */
/* While it is 1 whoever runs makes and keeps its own, as in a process by itself: what that costs
 * can be measured. */
void alike_alone(int one);

#endif
