/* SPDX-License-Identifier: Apache-2.0 */
/* Which providers of the transport ucx need a network card, and which card is behind an
 * interface. */
#include "check.h"

#include "transport/transport.h"
#include "transport/ucx/rdma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t clock_ms(void *self)
{
    (void)self;
    return 1;
}

static int open_with(const char *provider, struct hearth_error *err)
{
    struct hth_transport_opts opts = {
        .bind = "127.0.0.1", .provider = provider, .trusted = 1, .clock = { .now_ms = clock_ms }
    };
    struct hth_transport_events events = { 0 };
    struct hth_transport *t = NULL;

    return hth_transport_open("ucx", getenv("HEARTH_TEST_LIB"), &opts, &events, &t, err);
}

/* The file, and all folders above it, below `root`. */
static void put(const char *root, const char *path, const char *text)
{
    char command[1024];

    snprintf(command, sizeof(command), "mkdir -p $(dirname %s/%s) && echo '%s' >%s/%s", root, path,
            text, root, path);
    cr_assert(eq(int, system(command), 0));
}

Test(ucx_rdma, cards_alone_make_a_provider_for_cards)
{
    static const struct {
        const char *provider;
        int is;
    } row[] = { { "rc", 1 }, { "rc_mlx5", 1 }, { "rc_mlx5,dc_mlx5", 1 }, { "dc", 1 },
        { "rc_verbs,rc", 1 }, { "tcp", 0 }, { "posix", 0 }, { "rc,tcp", 0 }, { "ud", 0 },
        { "rc,", 0 }, { ",rc", 0 }, { "", 0 }, { "rc_mlx", 0 }, { "rc_mlx55", 0 } };

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        cr_assert(eq(int, hth_ucx_is_rdma(row[i].provider), row[i].is), "%s", row[i].provider);
}

Test(ucx_rdma, the_card_is_found_by_the_interface)
{
    char root[] = "/tmp/hearth-sys-XXXXXX", out[HTH_UCX_DEVICE], command[64];

    cr_assert(ne(ptr, mkdtemp(root), NULL));
    put(root, "class/net/ib1/device/infiniband/mlx5_3/node_type", "1: CA");
    put(root, "class/net/ib1/dev_port", "1");
    put(root, "class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth2");
    put(root, "class/infiniband/mlx5_1/ports/2/gid_attrs/ndevs/0", "eth3");
    put(root, "class/infiniband/mlx5_1/ports/2/gid_attrs/ndevs/1", "eth3.17");
    cr_assert(eq(int, hth_ucx_rdma_device(root, "ib1", out), 1));
    cr_assert(eq(int, strcmp(out, "mlx5_3:2"), 0));
    cr_assert(eq(int, hth_ucx_rdma_device(root, "eth2", out), 1));
    cr_assert(eq(int, strcmp(out, "mlx5_0:1"), 0));
    cr_assert(eq(int, hth_ucx_rdma_device(root, "eth3.17", out), 1));
    cr_assert(eq(int, strcmp(out, "mlx5_1:2"), 0));
    cr_assert(eq(int, hth_ucx_rdma_device(root, "eth", out), 0));
    cr_assert(eq(int, hth_ucx_rdma_device("/nowhere", "eth2", out), 0));
    snprintf(command, sizeof(command), "rm -r %s", root);
    cr_assert(eq(int, system(command), 0));
}

Test(ucx_rdma, where_there_is_no_card_the_refusal_says_what_to_do)
{
    struct hearth_error err = { 0 };
    int rc = open_with("rc_mlx5,dc_mlx5", &err);

    if (rc == HEARTH_ENOENT)
        cr_skip_test("%s", err.text);
    cr_assert(eq(int, rc, HEARTH_EINVAL));
    cr_assert(ne(ptr, strstr(err.text, "rc_mlx5,dc_mlx5"), NULL), "%s", err.text);
    cr_assert(ne(ptr, strstr(err.text, "interface lo"), NULL), "%s", err.text);
    cr_assert(ne(ptr, strstr(err.text, "rdma link"), NULL), "%s", err.text);
    must_fail(open_with("rc,tcp", &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "known are tcp, and for network cards"), NULL), "%s",
            err.text);
}

Test(ucx_rdma, shared_memory_is_refused_with_what_to_take)
{
    struct hearth_error err = { 0 };
    int rc = open_with("posix", &err);

    if (rc == HEARTH_ENOENT)
        cr_skip_test("%s", err.text);
    cr_assert(eq(int, rc, HEARTH_EINVAL));
    cr_assert(ne(ptr, strstr(err.text, "take transport ofi with provider shm"), NULL), "%s",
            err.text);
}
