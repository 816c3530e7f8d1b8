/* SPDX-License-Identifier: Apache-2.0 */
/* Copies in the fewest dimensions. That they are the same bytes is seen in test_copies.c. */
#include "check.h"

#include "client/device/fold.h"

#define MOST 0x7fffffffu

static struct hth_device_copy folded(struct hth_device_copy c, int *rows)
{
    hth_copy_fold(&c, MOST, rows);
    return c;
}

static void shape_is(struct hth_device_copy c, uint64_t width, uint64_t rows, uint64_t planes)
{
    cr_expect(eq(u64, c.width, width));
    cr_expect(eq(u64, c.rows, rows));
    cr_expect(eq(u64, c.planes, planes));
}

static struct hth_device_copy steps(
        uint64_t host_row, uint64_t host_plane, uint64_t device_row, uint64_t device_plane)
{
    return (struct hth_device_copy){
        .width = 10,
        .rows = 4,
        .planes = 3,
        .host_row = host_row,
        .host_plane = host_plane,
        .device_row = device_row,
        .device_plane = device_plane,
    };
}

Test(fold, what_is_contiguous_on_both_sides_is_one_run)
{
    int rows;

    shape_is(folded(steps(10, 40, 10, 40), &rows), 120, 1, 1);
    cr_expect(eq(int, rows, 1));
}

Test(fold, contiguous_planes_become_rows)
{
    struct hth_device_copy c;
    int rows;

    c = folded(steps(10, 50, 10, 40), &rows);
    shape_is(c, 40, 3, 1);
    cr_expect(eq(u64, c.host_row, 50));
    cr_expect(eq(u64, c.device_row, 40));
    cr_expect(eq(int, rows, 1));
}

Test(fold, rows_of_one_step_through_all_planes_are_rows)
{
    int rows;

    shape_is(folded(steps(12, 48, 10, 40), &rows), 10, 12, 1);
    cr_expect(eq(int, rows, 1));
    shape_is(folded(steps(12, 50, 10, 40), &rows), 10, 4, 3);
    cr_expect(eq(int, rows, 1));
}

Test(fold, rows_that_a_driver_cannot_do_change_places_with_planes)
{
    struct hth_device_copy c;
    int rows;

    c = folded(steps(UINT64_C(1) << 32, 10, UINT64_C(1) << 32, 20), &rows);
    shape_is(c, 10, 3, 4);
    cr_expect(eq(u64, c.host_row, 10));
    cr_expect(eq(u64, c.device_plane, UINT64_C(1) << 32));
    cr_expect(eq(int, rows, 1));
}

Test(fold, rows_are_copied_alone_where_no_order_is_possible)
{
    int rows;

    shape_is(folded(steps(UINT64_C(1) << 32, 10, UINT64_C(1) << 32, 5), &rows), 10, 4, 3);
    cr_expect(eq(int, rows, 0));
    shape_is(folded(steps(10, 5, 0, 0), &rows), 10, 4, 3);
    cr_expect(eq(int, rows, 0));
}

Test(fold, steps_of_what_there_is_once_count_nothing)
{
    struct hth_device_copy c = steps(1, 2, 3, 4);
    int rows;

    c.rows = c.planes = 1;
    shape_is(folded(c, &rows), 10, 1, 1);
    c = steps(1, 20, 3, 30);
    c.rows = 1;
    shape_is(folded(c, &rows), 10, 3, 1);
    cr_expect(eq(int, rows, 1));
    c.width = 0;
    shape_is(folded(c, &rows), 0, 1, 1);
}
