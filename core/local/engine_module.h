/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine on a thread of the caller's process: what `hearth-engine.so` shows to the client
 * library, which opens it (RTLD_LOCAL) for HEARTH_START_IN_PROCESS. argv is hearthd's command
 * line; the engine listens on the job's socket as hearthd does, so the ranks see no difference.
 */
#ifndef HEARTH_CORE_LOCAL_ENGINE_MODULE_H
#define HEARTH_CORE_LOCAL_ENGINE_MODULE_H

#include <hearth/error.h>
#include <stdint.h>

#define HTH_ENGINE_MODULE_ABI    1u
#define HTH_ENGINE_MODULE_SYMBOL "hth_engine_module"
#define HTH_ENGINE_MODULE_FILE   "hearth-engine.so"

struct hth_engine_module {
    uint32_t abi; /* HTH_ENGINE_MODULE_ABI */
    /* Returns once the socket listens. argv: copied. Errors: HEARTH_ELOCKED when another engine
     * has the job, and all that hearthd may say at start. Blocks all signals in its threads. */
    int (*start)(int argc, const char *const *argv, void **out_engine, struct hearth_error *err);
    void (*stop)(void *engine); /* returns when its threads have ended */
};

#endif
