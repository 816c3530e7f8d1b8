/* SPDX-License-Identifier: Apache-2.0 */
/* Copies in the fewest dimensions. */
#include "client/device/fold.h"

static void planes_to_rows(struct hth_device_copy *c)
{
    c->rows = c->planes;
    c->host_row = c->host_plane;
    c->device_row = c->device_plane;
    c->planes = 1;
}

static void rows_swap(struct hth_device_copy *c)
{
    struct hth_device_copy was = *c;

    c->rows = was.planes;
    c->host_row = was.host_plane;
    c->device_row = was.device_plane;
    c->planes = was.rows;
    c->host_plane = was.host_row;
    c->device_plane = was.device_row;
}

/* Drivers refuse steps shorter than a row and steps above a limit. */
static int rows_fit(const struct hth_device_copy *c, uint64_t most)
{
    return c->host_row >= c->width && c->device_row >= c->width && c->host_row <= most &&
           c->device_row <= most;
}

void hth_copy_fold(struct hth_device_copy *copy, uint64_t most, int *out_rows)
{
    struct hth_device_copy swapped;

    *out_rows = 1;
    if (!copy->width || !copy->rows || !copy->planes) {
        copy->width = 0;
        copy->rows = copy->planes = 1;
        return;
    }
    if (copy->rows == 1)
        planes_to_rows(copy);
    if (copy->rows > 1 && copy->host_row == copy->width && copy->device_row == copy->width) {
        copy->width *= copy->rows;
        planes_to_rows(copy);
        if (copy->rows > 1 && copy->host_row == copy->width && copy->device_row == copy->width) {
            copy->width *= copy->rows;
            copy->rows = 1;
        }
    }
    if (copy->planes > 1 && copy->host_plane == copy->rows * copy->host_row &&
            copy->device_plane == copy->rows * copy->device_row) {
        copy->rows *= copy->planes;
        copy->planes = 1;
    }
    if (copy->rows == 1 || rows_fit(copy, most))
        return;
    swapped = *copy;
    rows_swap(&swapped);
    if (copy->planes > 1 && rows_fit(&swapped, most))
        *copy = swapped;
    else
        *out_rows = 0;
}

struct hth_device_copy hth_copy_plane(const struct hth_device_copy *copy, uint64_t plane)
{
    struct hth_device_copy out = *copy;

    out.host = (char *)copy->host + plane * copy->host_plane;
    out.device = copy->device + plane * copy->device_plane;
    out.planes = 1;
    return out;
}

struct hth_device_copy hth_copy_row(const struct hth_device_copy *copy, uint64_t row)
{
    struct hth_device_copy out = *copy;

    out.host = (char *)copy->host + row * copy->host_row;
    out.device = copy->device + row * copy->device_row;
    out.rows = out.planes = 1;
    return out;
}
