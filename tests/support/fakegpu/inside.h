/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the driver share. The driver's lock is held in every call; the lock of streams
 * guards all objects, and is held for moments. */
#ifndef FAKEGPU_INSIDE_H
#define FAKEGPU_INSIDE_H

#include "client/device/cuda_calls.h"
#include "fakegpu.h"
#include <pthread.h>

#define FGPU_API __attribute__((visibility("default")))

/* ---- profile.c ---- */

struct fgpu_profile {
    const char *name;
    int version;
    int version_code; /* what asking for the version returns */
    int no_device;
    int batch;              /* 0: none, 1: with the index of a bad copy, 2: both */
    uint64_t register_most; /* a call for as many bytes, or more, fails; 0: no limit */
    int register_code;
    int read_only;  /* READ_ONLY is supported */
    int host_pages; /* the device uses the processor's page tables */
};

extern const char *const fgpu_usual_profile; /* of the library */

const struct fgpu_profile *fgpu_profile(void);
int fgpu_devices(void);
uint64_t fgpu_setting(const char *name, uint64_t other);

/* ---- calls.c ---- */

/* What a call needs: nothing, a context that may be broken, one that is not. */
enum { FGPU_NOTHING, FGPU_ANY_CONTEXT, FGPU_CONTEXT };

/* Around each call: counts it, refuses it, or takes the driver's lock. */
int fgpu_begin(const char *name, int needs);
void fgpu_end(void);
void fgpu_pause(void); /* gives the driver's lock back, in a call that waits */
void fgpu_resume(void);
void fgpu_started(void); /* the driver is initialised */
int fgpu_is_started(void);
void fgpu_sin(const char *rule, const char *format, ...) __attribute__((format(printf, 2, 3)));
int fgpu_is_child(void); /* of a fork */

#define FGPU_CALL(name, needs, expression) \
    do {                                   \
        int rc_ = fgpu_begin(name, needs); \
                                           \
        if (rc_)                           \
            return rc_;                    \
        rc_ = (expression);                \
        fgpu_end();                        \
        return rc_;                        \
    } while (0)

/* ---- context.c ---- */

struct fgpu_context {
    int device, primary, active;
    _Atomic int broken;       /* the code that all calls return */
    struct fgpu_stream *null; /* the default stream */
    struct fgpu_context *next;
};

struct fgpu_context *fgpu_context_now(void);
struct fgpu_context *fgpu_primary(int device); /* whatever its state */
struct fgpu_context *fgpu_contexts(void);
int fgpu_push(void *context);
int fgpu_pop(void **out);

/* ---- memory.c ---- */

struct fgpu_memory {
    uint64_t at;
    size_t bytes;
    unsigned char *backing; /* the same bytes, for the driver alone */
    struct fgpu_context *context;
    enum fakegpu_kind kind;
    struct fgpu_memory *next;
};

/* NULL: no memory of a device. */
struct fgpu_memory *fgpu_memory_at(uint64_t at);
/* The driver's pointer to these bytes; NULL: not all are of one allocation. */
unsigned char *fgpu_bytes(uint64_t at, size_t bytes, struct fgpu_memory **out);

/* ---- register.c ---- */

int fgpu_register(void *base, size_t bytes, unsigned flags);
int fgpu_unregister(void *base);
/* 1: in one registration; 0: in none; -1: neither. *out_read_only: it may not be written into. */
int fgpu_registered(uint64_t at, size_t bytes, int *out_read_only);

/* ---- stream.c ---- */

struct fgpu_box {
    unsigned char *dst;
    const unsigned char *src;
    size_t width, rows, planes, dst_row, dst_plane, src_row, src_plane;
};

/* Bytes of the host that an operation reads or writes lie between these. */
struct fgpu_range {
    uint64_t from, to;
};

struct fgpu_stream;
struct fgpu_event;

extern pthread_mutex_t fgpu_lock;

int fgpu_stream_new(struct fgpu_context *context, struct fgpu_stream **out);
int fgpu_stream_end(void *stream);
/* `stream` NULL: the default stream of the current context. 400: another context is current. */
int fgpu_stream_of(void *stream, struct fgpu_stream **out);
struct fgpu_context *fgpu_stream_context(const struct fgpu_stream *stream);
/* The boxes become the stream's. `pattern`: destinations of the host hold it until then; `wait`:
 * returns when it is done. */
int fgpu_stream_copy(struct fgpu_stream *s, struct fgpu_box *boxes, size_t count,
        struct fgpu_range host, int pattern, int wait);
int fgpu_stream_fill(struct fgpu_stream *s, unsigned char *at, int value, size_t bytes);
int fgpu_stream_wait(struct fgpu_stream *s);
int fgpu_stream_busy(struct fgpu_range host); /* an operation that is not done has to do with it */
int fgpu_capture_of(const struct fgpu_stream *s);
int fgpu_capture_set(struct fgpu_stream *s, int status); /* returns the status before */
int fgpu_captures(const struct fgpu_context *context);   /* a stream of it does */
/* Invalidates global captures of other threads, and returns 900 if there was one, otherwise 0. */
int fgpu_capture_disturb(void);
int fgpu_capture_mode(int *mode); /* swaps it with the thread's */
/* Of a thread's modes the first in which its calls disturb no captures of others; cuda.c, hip.c. */
extern const int fgpu_capture_apart;

int fgpu_event_new(void **out);
int fgpu_event_end(void *event);
int fgpu_event_record(void *event, void *stream);
int fgpu_event_query(void *event);
int fgpu_stream_after(void *stream, void *event);
void fgpu_streams_rest_locked(int device); /* waits until none of its streams is in an operation */
void fgpu_streams_drop_locked(void);       /* what streams of broken contexts have not begun */

/* ---- copy.c ---- */

struct fgpu_piece {
    uint64_t host, device;
    size_t width, rows, planes, host_row, host_plane, device_row, device_plane;
    int to_device;
};

int fgpu_copy(void *stream, const struct fgpu_piece *pieces, size_t count, size_t *out_bad);

#endif
