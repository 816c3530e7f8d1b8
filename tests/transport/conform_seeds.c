/* SPDX-License-Identifier: Apache-2.0 */
/* One profile of the strict provider under many rows of chance: what comes late, out of order,
 * refused or lost is another each time, and of `worst` some of its demands too
 * (tests/support/strictfi). */
#include "conform.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define AT_ONCE 3 /* they wait, half of the time */
#define SESSION 5 /* each so manyth seed has a session, which takes longer */

static void seed_run(const struct conform_backend *b, unsigned seed)
{
    char text[16];

    snprintf(text, sizeof(text), "%u", seed);
    setenv("STRICTFI_SEED", text, 1);
    alarm(110);
    conform_pulls(b);
    conform_talk(b, 1000);
    conform_deaths(b, seed);
    if (seed % SESSION == 0)
        conform_session(b);
}

static pid_t seed_start(const struct conform_backend *b, unsigned seed)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a cell that is cut off leaves no process behind */
    seed_run(b, seed);
    _exit(0);
}

/* One that runs has ended. 1: not well. */
static int seed_wait(const unsigned from, const pid_t *pids)
{
    int status;
    pid_t pid = waitpid(-1, &status, 0);
    unsigned seed = from;

    CHECK(pid > 0);
    while (*pids++ != pid)
        seed++;
    if (status == 0)
        return 0;
    printf("seed %u failed: status 0x%x\n", seed, (unsigned)status);
    return 1;
}

int conform_seeds(const struct conform_backend *b, unsigned from, unsigned to)
{
    pid_t *pids = calloc(to - from + 1, sizeof(*pids));
    unsigned running = 0;
    int failed = 0;

    CHECK(pids != NULL);
    for (unsigned seed = from; seed <= to; seed++) {
        if (running == AT_ONCE) {
            failed += seed_wait(from, pids);
            running--;
        }
        pids[seed - from] = seed_start(b, seed);
        running++;
    }
    for (; running; running--)
        failed += seed_wait(from, pids);
    free(pids);
    return failed;
}
