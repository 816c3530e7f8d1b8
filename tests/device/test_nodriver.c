/* SPDX-License-Identifier: Apache-2.0 */
/* A process that has loaded no driver of GPUs. */
#include "check.h"

#include "client/device/driver.h"
#include <dlfcn.h>

Test(nodriver, is_none_and_none_is_loaded)
{
    const struct hth_driver *driver = (void *)1;
    struct hearth_error err;

    must(hth_driver_find(&driver, &err), err);
    cr_expect(eq(ptr, driver, NULL));
    cr_expect(eq(ptr, dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY), NULL));
}
