/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door: libfabric loads lib*-fi.so of FI_PROVIDER_PATH and calls fi_prov_ini(). With
 * STRICTFI_AS the provider carries another's name, and a version that wins over the real one's.
 */
#include "strictfi.h"

#include <stdlib.h>

struct fi_provider *fi_prov_ini(void);

static void provider_cleanup(void)
{
    sfi_auto_stop();
    sfi_regions_free();
    sfi_eps_free();
}

/* The core keeps state of its own in it. */
static struct fi_provider provider = {
    .version = FI_VERSION(999, 0),
    .getinfo = sfi_getinfo,
    .fabric = sfi_fabric_open,
    .cleanup = provider_cleanup,
};

FI_EXT_INI
{
    const char *as = getenv("STRICTFI_AS");

    sfi_lock_survives_fork();
    provider.name = as && *as ? as : "strict";
    provider.fi_version = fi_version(); /* another one, and the core passes it over */
    return &provider;
}
