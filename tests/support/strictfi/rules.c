/* SPDX-License-Identifier: Apache-2.0 */
/* A broken rule ends the process with a sentence; chance comes from a seed. */
#include "strictfi.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

void sfi_sin(const char *rule, const char *format, ...)
{
    char text[512];
    int n = snprintf(text, sizeof(text), "STRICTFI %s: ", rule);
    va_list args;

    va_start(args, format);
    vsnprintf(text + n, sizeof(text) - (size_t)n - 2, format, args);
    va_end(args);
    strcat(text, ".\n");
    n = (int)write(STDERR_FILENO, text, strlen(text));
    signal(SIGABRT, SIG_DFL); /* other providers' libraries have handlers that print, and exit */
    abort();
}

int sfi_forgiven(const char *rule)
{
    const char *list = getenv("STRICTFI_FORGIVE");
    size_t len = strlen(rule);

    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == len && strncmp(at, rule, len) == 0)
            return 1;
    return 0;
}

uint64_t sfi_setting(const char *name, uint64_t other)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 0) : other;
}

/* xorshift64*; guarded by the lock of all. */
uint32_t sfi_random(uint32_t below)
{
    static uint64_t state;

    if (!state)
        state = sfi_setting("STRICTFI_SEED", 1) * 0x9e3779b97f4a7c15u | 1;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return below ? (uint32_t)((state * 0x2545f4914f6cdd1du) >> 33) % below : 0;
}

uint64_t sfi_unique(void)
{
    uint64_t value = 0;

    while (!value)
        if (getrandom(&value, sizeof(value), 0) != sizeof(value))
            sfi_sin("setup", "the system gives no random bytes");
    return value;
}

uint64_t sfi_now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}
