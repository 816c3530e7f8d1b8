/* SPDX-License-Identifier: Apache-2.0 */
/* What a test does in the trainer's place, without the driver's calls. */
#include "inside.h"

#include <stdlib.h>

static struct fgpu_stream *trainer_stream(void *stream)
{
    struct fgpu_stream *s;

    if (fgpu_stream_of(stream, &s))
        abort();
    return s;
}

FGPU_API void *fakegpu_stream(void)
{
    struct fgpu_stream *s;

    if (!fgpu_context_now() || fgpu_stream_new(fgpu_context_now(), &s))
        abort();
    return s;
}

FGPU_API void fakegpu_fill(void *stream, uint64_t at, int value, size_t bytes)
{
    unsigned char *p = fgpu_bytes(at, bytes, NULL);

    if (!p || fgpu_stream_fill(trainer_stream(stream), p, value, bytes))
        abort();
}

FGPU_API void fakegpu_move(void *stream, uint64_t to, uint64_t from, size_t bytes)
{
    struct fgpu_box *box = calloc(1, sizeof(*box));
    struct fgpu_range none = { UINT64_MAX, 0 };

    if (!box)
        abort();
    *box = (struct fgpu_box){ .dst = fgpu_bytes(to, bytes, NULL),
        .src = fgpu_bytes(from, bytes, NULL),
        .width = bytes,
        .rows = 1,
        .planes = 1 };
    if (!box->dst || !box->src || fgpu_stream_copy(trainer_stream(stream), box, 1, none, 0, 0))
        abort();
}

FGPU_API void fakegpu_wait(void *stream)
{
    fgpu_stream_wait(trainer_stream(stream));
}

FGPU_API int fakegpu_capture(void *stream, int on)
{
    return fgpu_capture_set(trainer_stream(stream), on);
}
