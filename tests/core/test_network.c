/* SPDX-License-Identifier: Apache-2.0 */
/* Which listeners may stand where, by table: no machine here has the fabrics that may. */
#include "check.h"

#include "core/base/network.h"

Test(network, an_address_is_known_by_who_reaches_it)
{
    static const struct {
        const char *text;
        enum hth_reach reach;
    } rows[] = {
        { "127.0.0.1", HTH_REACH_LOOPBACK },
        { "127.77.0.3", HTH_REACH_LOOPBACK },
        { "::1", HTH_REACH_LOOPBACK },
        { "0.0.0.0", HTH_REACH_WILDCARD },
        { "::", HTH_REACH_WILDCARD },
        { "128.0.0.1", HTH_REACH_OTHERS },
        { "10.0.0.1", HTH_REACH_OTHERS },
        { "::2", HTH_REACH_OTHERS },
        { "fe80::1", HTH_REACH_OTHERS },
        { "::ffff:127.0.0.1", HTH_REACH_OTHERS },
        { "127.1", HTH_REACH_NONE },
        { "localhost", HTH_REACH_NONE },
        { "", HTH_REACH_NONE },
        { "10.0.0.1,10.1.0.1", HTH_REACH_OTHERS },
        { "10.0.0.1,10.1.0.1,10.2.0.1,10.3.0.1", HTH_REACH_OTHERS },
        { "127.0.0.1,127.0.0.2", HTH_REACH_LOOPBACK },
        { "fd00::1,fd01::1", HTH_REACH_OTHERS },
        { "10.0.0.1,10.1.0.1,10.2.0.1,10.3.0.1,10.4.0.1", HTH_REACH_NONE },
        { "10.0.0.1,10.0.0.1", HTH_REACH_NONE },
        { "fd00::1,fd00:0::1", HTH_REACH_NONE },
        { "10.0.0.1,fd00::1", HTH_REACH_NONE },
        { "10.0.0.1,127.0.0.1", HTH_REACH_NONE },
        { "127.0.0.1,10.0.0.1", HTH_REACH_NONE },
        { "10.0.0.1,0.0.0.0", HTH_REACH_NONE },
        { "0.0.0.0,::", HTH_REACH_NONE },
        { "10.0.0.1,", HTH_REACH_NONE },
        { ",10.0.0.1", HTH_REACH_NONE },
        { "10.0.0.1,,10.1.0.1", HTH_REACH_NONE },
        { "10.0.0.1, 10.1.0.1", HTH_REACH_NONE },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_assert(eq(int, hth_address_reach(rows[i].text), rows[i].reach), "%s", rows[i].text);
}

Test(network, lists_are_the_same_if_their_addresses_are_in_the_same_order)
{
    cr_expect(hth_binds_equal("10.0.0.1", "10.0.0.1"));
    cr_expect(hth_binds_equal("fd00::1,fd01::1", "fd00:0::1,fd01:0::1"));
    cr_expect(!hth_binds_equal("10.0.0.1", "10.0.0.2"));
    cr_expect(!hth_binds_equal("10.0.0.1", "10.0.0.1,10.1.0.1"));
    cr_expect(!hth_binds_equal("10.0.0.1,10.1.0.1", "10.0.0.1"));
    cr_expect(!hth_binds_equal("10.0.0.1,10.1.0.1", "10.1.0.1,10.0.0.1"));
}

/* `says`: a part of the refusal; NULL: it may be. left_out: sentences where it may. */
static const struct {
    struct hth_network network;
    const char *says;
    unsigned left_out;
} rows[] = {
    { { NULL, "ofi", NULL, 0, 0, 0 }, "loopback is reached by every user", 0 },
    { { "127.0.0.1", "ucx", "", 0, 0, 0 }, "127.0.0.1 is reached by every user", 0 },
    { { "127.0.0.1", "ucx", "tcp", 1, 0, 0 }, "UCX's provider tcp obeys", 0 },
    { { "127.0.0.1", "ucx", "rc_mlx5", 1, 0, 1 }, "UCX's provider rc_mlx5 obeys", 0 },
    { { "127.0.0.1", "ofi", NULL, 1, 0, 1 }, "libfabric's provider tcp obeys", 0 },
    { { "127.0.0.1", "ofi", "shm", 1, 0, 0 }, "/dev/shm", 0 },
    { { "10.0.0.1", "ofi", "shm", 1, 0, 1 }, "/dev/shm", 0 },
    { { "127.0.0.1", "ofi", "tcp", 1, 1, 0 }, NULL, 1 },
    { { "127.0.0.1", "ofi", "shm", 1, 1, 0 }, NULL, 1 },
    { { "::1", "ofi", "tcp", 0, 1, 0 }, NULL, 1 },
    { { "127.0.0.1", "ofi", "verbs", 0, 0, 0 }, NULL, 0 },
    { { "127.0.0.1", "tcp", NULL, 0, 0, 0 }, NULL, 0 },
    { { "127.0.0.1", "tcp", NULL, 1, 0, 0 }, NULL, 0 },
    { { "127.0.0.1", "auto", NULL, 0, 0, 0 }, NULL, 0 },
    { { "127.0.0.1", "ofi", "efa", 0, 0, 0 }, "no job key", 0 },
    { { "127.0.0.1", "ofi", "efa-direct", 0, 0, 1 }, "no job key", 0 },
    { { NULL, "ofi", "cxi", 0, 0, 1 }, "provider cxi goes by no IP address", 0 },
    { { "127.0.0.1", "ofi", "opx", 0, 0, 0 }, "no job key", 0 },
    { { "::1", "ofi", "psm2", 0, 0, 0 }, "provider psm2 goes by no IP address", 0 },
    { { "127.0.0.1", "ofi", "opx", 1, 0, 1 }, "obeys whoever", 0 },
    { { "127.0.0.1", "ofi", "efa", 1, 0, 0 }, "HEARTH_INTEGRITY=strong", 0 },
    { { "10.0.0.1", "ofi", NULL, 0, 0, 0 }, "no job key", 0 },
    { { "10.0.0.1", "ofi", "verbs", 0, 0, 0 }, "no job key", 0 },
    { { "10.0.0.1", "ofi", NULL, 1, 0, 0 }, "libfabric's provider tcp obeys", 0 },
    { { "10.0.0.1", "ofi", "net", 1, 0, 0 }, "libfabric's provider net obeys", 0 },
    { { "10.0.0.1", "ofi", "sockets", 1, 0, 0 }, "obeys whoever", 0 },
    { { "10.0.0.1", "ofi", "tcp;ofi_rxm", 1, 0, 0 }, "obeys whoever", 0 },
    { { "10.0.0.1", "ofi", "verbsy", 1, 0, 0 }, "obeys whoever", 0 },
    { { "10.0.0.1", "ofi", "psm3", 1, 0, 0 }, "obeys whoever", 0 },
    { { "10.0.0.1", "ucx", NULL, 1, 0, 0 }, "UCX's provider tcp obeys", 0 },
    { { "10.0.0.1", "ucx", "posix", 1, 0, 0 }, "UCX's provider posix obeys", 0 },
    { { "10.0.0.1", "ucx", "verbs", 1, 0, 0 }, "obeys whoever", 0 },
    { { "10.0.0.1", "ofi", "verbs", 1, 0, 0 }, "libfabric's provider verbs does not encrypt", 0 },
    { { "10.0.0.1", "ofi", "verbs;ofi_rxm", 1, 0, 0 }, "set integrity = strong", 0 },
    { { "10.0.0.1", "ofi", "efa", 1, 0, 0 }, "HEARTH_INTEGRITY=strong", 0 },
    { { "10.0.0.1", "ofi", "verbs", 0, 0, 1 }, "no job key", 0 },
    { { "10.0.0.1", "ofi", "tcp", 1, 0, 1 }, "obeys whoever", 0 },
    { { "10.0.0.1", "ucx", "verbs", 1, 0, 1 }, "obeys whoever", 0 },
    { { "10.0.0.1", "ofi", "verbs", 1, 0, 1 }, NULL, 1 },
    { { "10.0.0.1", "ofi", "verbs;ofi_rxm", 1, 0, 1 }, NULL, 1 },
    { { "10.0.0.1", "ofi", "efa", 1, 0, 1 }, NULL, 1 },
    { { "10.0.0.1", "ofi", "cxi", 1, 0, 1 }, NULL, 1 },
    { { "10.0.0.1", "tcp", NULL, 0, 0, 0 }, "no job key", 0 },
    { { "10.0.0.1", "tcp", NULL, 1, 0, 0 }, NULL, 0 },
    { { "10.0.0.1", "tcp", "tcp", 1, 1, 0 }, NULL, 1 },
    { { "10.0.0.1", "tcp", NULL, 0, 1, 0 }, NULL, 3 },
    { { "10.0.0.1", "ofi", "verbs", 0, 1, 0 }, NULL, 2 },
    { { "10.0.0.1", "ofi", "verbs", 1, 1, 0 }, NULL, 1 },
    { { "10.0.0.1", "tcp", NULL, 1, 0, 1 }, NULL, 0 },
    { { "10.0.0.1", "ofi", NULL, 1, 1, 0 }, NULL, 2 },
    { { "fd00::1", "ucx", NULL, 0, 1, 0 }, NULL, 3 },
};

Test(network, a_listener_needs_a_key_off_loopback_and_one_that_checks_keys_everywhere)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hearth_error err = { 0 };
        int rc = hth_network_check(&rows[i].network, &err);

        cr_assert(eq(int, rc, rows[i].says ? HEARTH_EINVAL : HEARTH_OK), "row %zu", i);
        if (!rc)
            continue;
        cr_assert(ne(ptr, strstr(err.text, rows[i].says), NULL), "row %zu: %s", i, err.text);
        cr_assert(ne(ptr, strstr(err.text, "HEARTH_NETWORK=trusted"), NULL), "row %zu: %s", i,
                err.text);
    }
}

Test(network, what_is_left_out_is_a_sentence_each)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[HTH_LEFT_OUT][HTH_LEFT_OUT_TEXT];

        if (rows[i].says)
            continue;
        cr_assert(eq(u32, hth_network_left_out(&rows[i].network, text), rows[i].left_out),
                "row %zu", i);
        for (unsigned k = 0; k < rows[i].left_out; k++)
            cr_assert(strstr(text[k], rows[i].network.bind) || strstr(text[k], "the fabric"), "%s",
                    text[k]);
    }
}

Test(network, what_a_digest_finds_is_not_said_to_be_changed)
{
    struct hth_network n = { "10.0.0.1", "ofi", "verbs", 1, 1, 0 };
    char text[HTH_LEFT_OUT][HTH_LEFT_OUT_TEXT];

    cr_assert(eq(u32, hth_network_left_out(&n, text), 1));
    cr_assert(ne(ptr, strstr(text[0], "can read and change them"), NULL), "%s", text[0]);
    n.strong = 1;
    cr_assert(eq(u32, hth_network_left_out(&n, text), 1));
    cr_assert(ne(ptr, strstr(text[0], "a change is found"), NULL), "%s", text[0]);
}

Test(network, what_is_left_out_of_a_fabric_without_ip_names_no_address)
{
    struct hth_network n = { NULL, "ofi", "opx", 0, 1, 0 };
    char text[HTH_LEFT_OUT][HTH_LEFT_OUT_TEXT];

    cr_assert(eq(u32, hth_network_left_out(&n, text), 3));
    for (unsigned k = 0; k < 3; k++)
        cr_assert(ne(ptr, strstr(text[k], "the fabric"), NULL), "%s", text[k]);
}

Test(network, a_long_name_of_a_provider_is_cut)
{
    char text[HTH_LEFT_OUT][HTH_LEFT_OUT_TEXT], name[500];
    struct hth_network n = { "fd00:aaaa:aaaa:aaaa:aaaa:aaaa:aaaa:aaaa", "ofi", name, 0, 1, 0 };

    memset(name, 'p', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    cr_assert(eq(u32, hth_network_left_out(&n, text), 3));
    for (unsigned k = 0; k < 3; k++)
        cr_assert(lt(sz, strlen(text[k]), HTH_LEFT_OUT_TEXT - 1), "%s", text[k]);
}

Test(network, a_list_that_is_none_is_refused_as_such)
{
    const struct hth_network n = {
        .bind = "127.0.0.1,10.0.0.1", .transport = "tcp", .provider = ""
    };
    struct hearth_error err = { 0 };

    must_fail(hth_network_check(&n, &err), HEARTH_EINVAL);
    cr_expect(
            ne(ptr, strstr(err.text, "'127.0.0.1,10.0.0.1' is no address"), NULL), "%s", err.text);
}
