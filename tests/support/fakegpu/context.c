/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, and each thread's stack of them. */
#include "inside.h"

#include <stdlib.h>

#define DEEP    16
#define DEVICES 4

static struct fgpu_context primary[DEVICES] = {
    { .device = 0, .primary = 1 },
    { .device = 1, .primary = 1 },
    { .device = 2, .primary = 1 },
    { .device = 3, .primary = 1 },
};
static struct fgpu_context *more;

static _Thread_local struct fgpu_context *stack[DEEP];
static _Thread_local int depth;

struct fgpu_context *fgpu_context_now(void)
{
    return depth ? stack[depth - 1] : NULL;
}

struct fgpu_context *fgpu_primary(int device)
{
    return &primary[device];
}

struct fgpu_context *fgpu_contexts(void)
{
    return more;
}

int fgpu_push(void *context)
{
    if (!context)
        return CU_INVALID_CONTEXT;
    if (depth == DEEP) {
        fgpu_sin("context", "%d contexts are pushed and not popped", DEEP);
        return CU_INVALID_CONTEXT;
    }
    stack[depth++] = context;
    return CU_OK;
}

int fgpu_pop(void **out)
{
    if (!depth)
        return CU_INVALID_CONTEXT;
    *out = stack[--depth];
    return CU_OK;
}

FGPU_API void *fakegpu_context(int device)
{
    struct fgpu_context *c = fgpu_primary(device);

    pthread_mutex_lock(&fgpu_lock);
    c->active = 1;
    pthread_mutex_unlock(&fgpu_lock);
    return c;
}

FGPU_API void *fakegpu_context_more(int device)
{
    struct fgpu_context *c = calloc(1, sizeof(*c));

    if (!c)
        abort();
    c->device = device;
    c->active = 1;
    pthread_mutex_lock(&fgpu_lock);
    c->next = more;
    more = c;
    pthread_mutex_unlock(&fgpu_lock);
    return c;
}

FGPU_API void fakegpu_primary_end(int device)
{
    pthread_mutex_lock(&fgpu_lock);
    fgpu_primary(device)->active = 0;
    pthread_mutex_unlock(&fgpu_lock);
}

FGPU_API void fakegpu_current(void *context)
{
    depth = 0;
    if (context)
        fgpu_push(context);
}

FGPU_API void fakegpu_break(int device, int code)
{
    pthread_mutex_lock(&fgpu_lock);
    fgpu_streams_rest_locked(device);
    fgpu_primary(device)->broken = code;
    for (struct fgpu_context *c = more; c; c = c->next)
        if (c->device == device)
            c->broken = code;
    fgpu_streams_drop_locked();
    pthread_mutex_unlock(&fgpu_lock);
}
