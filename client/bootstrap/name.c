/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of the meeting place, and the result of trying each. */
#include "name.h"

#include "client/base/clock.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* 1: asking again does not help. */
static int name_is_hopeless(int e)
{
    return e == EAI_BADFLAGS || e == EAI_FAMILY || e == EAI_SERVICE || e == EAI_SOCKTYPE ||
           e == EAI_MEMORY;
}

int hth_name_ask(
        const struct hth_tcp *t, uint64_t until, struct addrinfo **out, struct hearth_error *err)
{
    static const struct timespec nap = { .tv_nsec = 200000000 };
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    uint64_t from = hth_mono_ms();
    int e;

    while ((e = getaddrinfo(t->host, t->port, &hints, out)) && !name_is_hopeless(e) &&
            hth_mono_ms() + 200 < until)
        nanosleep(&nap, NULL);
    if (!e)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, e == EAI_SYSTEM ? errno : 0,
            "the meeting place %s has no address: %s, asked for %llu ms: give the host name or "
            "address of rank 0's node",
            t->host, e == EAI_SYSTEM ? strerror(errno) : gai_strerror(e),
            (unsigned long long)(hth_mono_ms() - from));
}

void hth_name_note(char *text, size_t len, const struct addrinfo *at, const char *what)
{
    char host[64], note[160];
    size_t used = strlen(text);
    int n;

    if (getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof(host), NULL, 0, NI_NUMERICHOST))
        snprintf(host, sizeof(host), "an address of family %d", at->ai_family);
    n = snprintf(note, sizeof(note), "%s%s: %s", used ? ", " : "", host, what);
    if (n > 0 && (size_t)n < sizeof(note) && used + (size_t)n < len)
        memcpy(text + used, note, (size_t)n + 1);
}
