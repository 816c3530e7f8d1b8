/* SPDX-License-Identifier: Apache-2.0 */
/* The table of libfabric's providers, and the error where one does not come up: on machines that
 * are made up of files. */
#include "check.h"
#include "made_up.h"

#include "core/base/network.h"
#include "transport/machine.h"
#include "transport/ofi/providers.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static void start(void)
{
    made_up_begin(root);
    made_up_node(root);
}

static void stop(void)
{
    made_up_end(root);
}

/* The sentence about the provider on the machine in `root`; "": none. */
static const char *said(const char *name, const char *bind, int built)
{
    static char text[512];
    struct hth_machine machine;
    struct hth_ofi_look look;

    hth_machine_look(root, &machine);
    hth_ofi_look_at(&machine, hth_ofi_provider_find(name), bind, &look);
    look.shapes = HTH_OFI_CONNECTED | HTH_OFI_RDM;
    look.built = built;
    cr_assert(eq(int, hth_ofi_provider_explain(name, &look, text, sizeof(text)), text[0] != 0));
    hth_machine_fini(&machine);
    return text;
}

static void must_name(const char *text, const char *part)
{
    cr_assert(ne(ptr, (void *)(uintptr_t)strstr(text, part), NULL), "says: %s", text);
}

Test(providers, each_name_has_one_row_with_all_that_is_said_of_it)
{
    static const char *const names[] = { "verbs", "verbs;ofi_rxm", "efa", "efa-direct", "cxi",
        "opx", "psm2", "psm3", "shm", "tcp", "tcp;ofi_rxm" };
    size_t rows = 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        cr_assert(
                ne(ptr, (void *)(uintptr_t)hth_ofi_provider_find(names[i]), NULL), "%s", names[i]);
    for (const struct hth_ofi_provider *p = hth_ofi_providers; p->name; p++, rows++) {
        cr_assert(eq(ptr, (void *)(uintptr_t)hth_ofi_provider_find(p->name), (void *)(uintptr_t)p));
        cr_assert(ne(ptr, (void *)(uintptr_t)p->fabric, NULL), "%s", p->name);
        cr_assert(eq(int, p->files != NULL, p->hardware != NULL), "%s", p->name);
    }
    cr_assert(eq(sz, rows, sizeof(names) / sizeof(names[0])));
    cr_assert(eq(ptr, (void *)(uintptr_t)hth_ofi_provider_find("sockets"), NULL));
}

Test(providers, what_obeys_strangers_may_not_listen_where_they_are)
{
    for (const struct hth_ofi_provider *p = hth_ofi_providers; p->name; p++) {
        struct hth_network network = {
            .bind = "10.0.0.1", .transport = "ofi", .provider = p->name, .has_key = 1, .strong = 1
        };

        cr_assert(eq(int, hth_listener_check(&network, NULL), p->obeys ? HEARTH_EINVAL : HEARTH_OK),
                "%s", p->name);
        network.strong = 0; /* none of them encrypts */
        must_fail(hth_listener_check(&network, NULL), HEARTH_EINVAL);
        network.trusted = 1;
        must(hth_listener_check(&network, NULL));
    }
}

Test(providers, the_library_starts_with_what_is_asked_for)
{
    static const char *const rows[][2] = { { "tcp", "tcp,net,verbs" },
        { "verbs;ofi_rxm", "tcp,net,verbs,ofi_rxm" }, { "efa-direct", "tcp,net,verbs,efa" },
        { "net/rdm", "tcp,net,verbs" }, { "shm/rdm", "tcp,net,verbs,shm" },
        { "cxi", "tcp,net,verbs,cxi" }, { "of_a_site", "tcp,net,verbs,of_a_site" },
        { "", "tcp,net,verbs" } };
    char out[128];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        hth_ofi_provider_filter(rows[i][0], NULL, out, sizeof(out));
        must_say(out, rows[i][1]);
    }
}

Test(providers, the_library_starts_with_what_may_be_opened_later_too)
{
    static const char *const also[] = { "verbs", "efa", "tcp", NULL };
    char out[128];

    hth_ofi_provider_filter("tcp", also, out, sizeof(out));
    must_say(out, "tcp,net,verbs,efa");
}

Test(providers, fork_and_huge_pages_are_settled_before_verbs_and_never_both_for_efa)
{
    const struct hth_ofi_provider *verbs = hth_ofi_provider_find("verbs");
    const struct hth_ofi_provider *efa = hth_ofi_provider_find("efa");

    must_say(verbs->setting[0].variable, "RDMAV_FORK_SAFE");
    must_say(verbs->setting[1].variable, "RDMAV_HUGEPAGES_SAFE");
    for (size_t i = 0; i < 3 && efa->setting[i].variable; i++)
        cr_assert(ne(int, strcmp(efa->setting[i].variable, "RDMAV_HUGEPAGES_SAFE"), 0));
}

Test(providers, nothing_is_said_where_all_is_there, .init = start, .fini = stop)
{
    must_say(said("verbs", "10.1.0.7", 1), "");
    must_say(said("verbs", NULL, 1), "");
    must_say(said("verbs;ofi_rxm", "10.1.0.7", 1), "");
    must_say(said("tcp", "127.0.0.1", 1), "");
    must_say(said("shm", NULL, 1), "");
}

Test(providers, one_that_the_library_has_not_names_the_way_to_another_library, .init = start,
        .fini = stop)
{
    must_name(said("verbs", NULL, 0), "this libfabric has no provider verbs");
    must_name(said("verbs", NULL, 0), "fi_info -p 'verbs' says which");
    must_name(said("verbs", NULL, 0), "HEARTH_FABRIC_LIBRARY");
    must_name(said("cxi", NULL, 0), "there is no /dev/cxi*"); /* which is why */
}

Test(providers, device_files_are_missed_by_their_names, .init = start, .fini = stop)
{
    must_name(said("cxi", NULL, 1), "there is no /dev/cxi*, which a Slingshot adapter");
    must_name(said("opx", NULL, 1), "there is no /dev/hfi1*, which an Omni-Path adapter");
    must_name(said("psm2", NULL, 1), "there is no /dev/hfi1*");
    made_up_file(root, "/dev/hfi1_0", "");
    must_say(said("psm2", NULL, 1), "");
}

Test(providers, a_device_file_of_another_user_is_said_to_be_so, .init = start, .fini = stop)
{
    uid_t self = geteuid();
    char path[128];

    snprintf(path, sizeof(path), "%s/dev/infiniband/uverbs0", root);
    cr_assert(zero(int, chmod(path, 0)));
    if (self == 0) { /* who may open any file */
        static const char *const on_the_way[] = { "", "/dev", "/dev/infiniband" };
        char folder[128];

        for (size_t i = 0; i < 3; i++) {
            snprintf(folder, sizeof(folder), "%s%s", root, on_the_way[i]);
            cr_assert(zero(int, chmod(folder, 0755)));
        }
        cr_assert(zero(int, seteuid(65534)));
    }
    must_name(said("verbs", NULL, 1), "this user may not open /dev/infiniband/uverbs*");
    cr_assert(zero(int, seteuid(self)));
}

Test(providers, a_small_memlock_limit_has_its_remedies, .init = start, .fini = stop)
{
    made_up_memlock(root, "8388608");
    must_name(said("verbs", "10.1.0.7", 1), "may lock 8192 KiB of memory, and verbs locks all");
    must_name(said("verbs", "10.1.0.7", 1), "ulimit -l");
    must_name(said("verbs", "10.1.0.7", 1), "LimitMEMLOCK=infinity");
    must_name(said("verbs", "10.1.0.7", 1), "Kubernetes");
    must_say(said("tcp", "10.0.0.7", 1), "");
    made_up_file(root, "/proc/self/status", "CapEff:\t0000000000004000"); /* IPC_LOCK */
    must_say(said("verbs", "10.1.0.7", 1), "");
    made_up_file(root, "/proc/self/uid_map", "         0       1000          1");
    must_name(said("verbs", "10.1.0.7", 1), "may lock 8192 KiB");
}

Test(providers, rdma_cm_wants_the_address_of_an_adapter, .init = start, .fini = stop)
{
    must_name(said("verbs", "10.0.0.7", 1),
            "the address 10.0.0.7 is of interface eth0, which is no RDMA adapter's");
    must_name(said("verbs", "10.0.0.7", 1), "one of these: ib0 10.1.0.7");
    made_up_file(root, "/addresses", "eth0 10.0.0.7");
    must_name(said("verbs", NULL, 1), "no interface of an RDMA adapter has an IP address");
    must_name(said("verbs", NULL, 1), "there are: ib0");
}

Test(providers, a_bond_over_adapters_is_theirs, .init = start, .fini = stop)
{
    made_up_file(root, "/sys/class/net/bond0/mtu", "9000");
    made_up_file(root, "/sys/class/net/bond0/lower_ib0/device/infiniband/mlx5_0/x", "");
    made_up_file(root, "/addresses", "bond0 10.2.0.7\neth0 10.0.0.7");
    must_say(said("verbs", "10.2.0.7", 1), "");
}

/* The adapter is the driver's. */
static void drive(const char *driver)
{
    char path[128], to[64];

    snprintf(path, sizeof(path), "%s/sys/class/infiniband/mlx5_0/device/driver", root);
    snprintf(to, sizeof(to), "../../../bus/pci/drivers/%s", driver);
    unlink(path);
    cr_assert(zero(int, symlink(to, path)));
}

Test(providers, adapters_of_efa_and_others_are_told_apart, .init = start, .fini = stop)
{
    drive("mlx5_core");
    must_say(said("verbs", "10.1.0.7", 1), "");
    must_name(said("efa", NULL, 1),
            "none of the adapters in /sys/class/infiniband is an Elastic Fabric Adapter");
    drive("efa");
    must_name(said("verbs", "10.1.0.7", 1), "is an InfiniBand or RoCE adapter");
    must_say(said("efa", NULL, 1), "");
    must_name(said("efa-direct", NULL, 0), "has no provider efa:");
}

Test(providers, slingshot_wants_what_the_launcher_says, .init = start, .fini = stop)
{
    made_up_file(root, "/dev/cxi0", "");
    unsetenv("SLINGSHOT_VNIS");
    must_name(said("cxi", NULL, 1), "SLINGSHOT_SVC_IDS");
    setenv("SLINGSHOT_VNIS", "1", 1);
    must_say(said("cxi", NULL, 1), "");
}

Test(providers, a_shape_that_is_not_there_yet_is_named)
{
    struct hth_ofi_look look = {
        .built = 1, .files = 1, .hardware = 1, .memlock_bytes = UINT64_MAX
    };
    char text[512];

    look.shapes = HTH_OFI_CONNECTED;
    cr_assert(eq(int, hth_ofi_provider_explain("efa", &look, text, sizeof(text)), 1));
    must_name(text, "the provider efa has no connected endpoints");
    look.shapes = HTH_OFI_RDM;
    cr_assert(eq(int, hth_ofi_provider_explain("tcp", &look, text, sizeof(text)), 1));
    must_name(text, "the provider tcp has no reliable datagram endpoints");
}
