/* SPDX-License-Identifier: Apache-2.0 */
/* The table of drivers, and the settings from the environment. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)

static const struct fgpu_profile profiles[] = {
    { .name = "recent", .version = 13000, .batch = 2, .read_only = 1 },
    { .name = "12.8", .version = 12080, .batch = 1, .read_only = 1 },
    { .name = "12.0", .version = 12000 },
    { .name = "r580",
            .version = 13000,
            .batch = 2,
            .read_only = 1,
            .register_most = 512 * GIB,
            .register_code = CU_OUT_OF_MEMORY },
    { .name = "kernel-6.12",
            .version = 12080,
            .batch = 1,
            .read_only = 1,
            .register_most = 2 * GIB + 1,
            .register_code = CU_INVALID_VALUE },
    { .name = "gh200", .version = 13000, .batch = 2, .read_only = 1, .host_pages = 1 },
    { .name = "old", .version = 10020 },
    { .name = "stub", .version_code = CU_STUB_LIBRARY },
    { .name = "none", .version = 13000, .batch = 2, .no_device = 1 },
    { .name = "hip", .version = 60342131 },
    { .name = "hip-none", .version = 60342131, .no_device = 1 },
};

static const struct fgpu_profile *chosen;
static int devices;

static void profile_choose(const char *name, int number)
{
    for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++)
        if (strcmp(profiles[i].name, name) == 0) {
            chosen = &profiles[i];
            devices = chosen->no_device ? 0 : number > 4 ? 4 : number;
            return;
        }
    fgpu_sin("profile", "there is no profile %s", name);
    abort();
}

uint64_t fgpu_setting(const char *name, uint64_t other)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 0) : other;
}

static void profile_from_environment(void)
{
    const char *name = getenv("FAKEGPU_PROFILE");

    if (!chosen)
        profile_choose(
                name && *name ? name : fgpu_usual_profile, (int)fgpu_setting("FAKEGPU_DEVICES", 1));
}

static pthread_once_t profile_once = PTHREAD_ONCE_INIT;

const struct fgpu_profile *fgpu_profile(void)
{
    pthread_once(&profile_once, profile_from_environment);
    return chosen;
}

int fgpu_devices(void)
{
    return fgpu_profile() ? devices : 0;
}

FGPU_API void fakegpu_start(const char *profile, int number)
{
    fgpu_profile();
    profile_choose(profile ? profile : chosen->name, number);
    fgpu_started();
}

FGPU_API const char *fakegpu_profile(void)
{
    return fgpu_profile()->name;
}
