/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a job's directory takes, whether it lies in saves or not. */
#include "command.h"
#include "saved.h"

#include <jansson.h>

TestSuite(taken, .init = make_root, .fini = remove_root);

/* By ls of the job. */
static long long taken_bytes(void)
{
    long long bytes;
    json_t *got;

    cr_assert(zero(int, hearth("ls", "--root", root, JOB, "--json")), "%s", err_text);
    got = json_loads(out, 0, NULL);
    bytes = json_integer_value(json_object_get(got, "taken_bytes"));
    json_decref(got);
    return bytes;
}

Test(taken, ls_shows_what_a_directory_takes_saves_or_not)
{
    static char bytes[3 << 20];
    struct hth_store *s = make_store();
    long long before = taken_bytes();
    int fd;

    cr_assert(ge(long, (long)before, FIRST_BYTES));
    fd = open(in_job(".hearth/pool/slot-of-an-older-job"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(ge(int, fd, 0));
    cr_assert(eq(long, write(fd, bytes, sizeof(bytes)), (long)sizeof(bytes)));
    close(fd);
    cr_assert(eq(long, (long)taken_bytes(), (long)(before + (3 << 20))));
    cr_assert(zero(int, hearth("ls", "--root", root)), "%s", err_text);
    cr_assert(eq(int, has(out, "TAKES"), 1), "%s", out);
    s->ops->close(s);
}
