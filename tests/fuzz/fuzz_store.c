/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `.hearth/store` of a job's directory, with its checksum made good: a store opens on it, with the
 * id that stands there, or says that it does not.
 */
#include "core/base/bytes.h"
#include "core/base/crc.h"
#include "core/store/store_tmpfs.h"
#include "tmp_root.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *root;
static int record = -1;

static void root_remove(void)
{
    tmp_root_remove(root);
}

static int store_on_it(struct hth_store **out, struct hearth_error *err)
{
    const struct hth_store_tmpfs_opts opts = {
        .root = root, .job = "job", .allow_non_tmpfs = 1, .no_prefault = 1
    };

    return hth_store_tmpfs_open(&opts, out, err);
}

/* A store that is its first: then its record is there to be written over. */
static void root_make(void)
{
    struct hth_store *s;
    char path[300];

    root = tmp_root(64u << 20);
    if (!root || atexit(root_remove) || store_on_it(&s, NULL))
        abort();
    s->ops->close(s);
    snprintf(path, sizeof(path), "%s/job/.hearth/store", root);
    if ((record = open(path, O_RDWR | O_CLOEXEC)) < 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = malloc(size + 1);
    struct hearth_error err = { 0 };
    struct hth_store *s;

    if (record < 0)
        root_make();
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    if (size > 16)
        hth_put32(copy + 12, hth_crc32c(copy + 16, size - 16));
    if (ftruncate(record, 0) || pwrite(record, copy, size, 0) != (ssize_t)size)
        abort();
    if (!store_on_it(&s, &err)) {
        if (size != 96 || memcmp(copy, "HTHSTORE", 8) != 0 || s->ops->id(s) != hth_get64(copy + 16))
            abort();
        s->ops->close(s);
    } else if (err.code != HEARTH_ECORRUPT && err.code != HEARTH_EUNSUPPORTED) {
        abort();
    }
    free(copy);
    return 0;
}
