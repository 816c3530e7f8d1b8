/* SPDX-License-Identifier: Apache-2.0 */
/* The table of fabrics: what each one demands of a program, as its manual says it. */
#include "strictfi.h"

#include <stdlib.h>
#include <string.h>

#define BASIC    (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)
#define GIB      ((size_t)1 << 30)
#define IN_ORDER 0x1ffULL /* FI_ORDER_STRICT, a name that libfabric 2 warns of */

static const struct sfi_profile profiles[] = {
    { .name = "efa",
            .fabric = "efa",
            .type = FI_EP_RDM,
            .addr_format = FI_ADDR_EFA,
            .addr_len = 32,
            .mr_mode = BASIC,
            .mr_key_size = 4,
            .mr_cnt = 4096,
            .progress = FI_PROGRESS_MANUAL,
            .threading = FI_THREAD_SAFE,
            .resources = FI_RM_ENABLED,
            .msg_order = FI_ORDER_SAS,
            .max_msg = 4 * GIB,
            .max_rma = 4 * GIB,
            .inject = 32,
            .tx_size = 256,
            .rx_size = 1024,
            .iov_limit = 4,
            .cq_size = 1024,
            .late = 4,
            .shuffle = 1,
            .local_rma = 1,
            .dead_silent = 1 },
    { .name = "efa-direct",
            .fabric = "efa-direct",
            .type = FI_EP_RDM,
            .addr_format = FI_ADDR_EFA,
            .addr_len = 32,
            .mode = FI_CONTEXT2,
            .mr_mode = BASIC,
            .mr_key_size = 4,
            .mr_cnt = 4096,
            .progress = FI_PROGRESS_AUTO,
            .threading = FI_THREAD_SAFE,
            .resources = FI_RM_ENABLED,
            .max_msg = 8192,
            .max_rma = 1 << 20,
            .inject = 32,
            .tx_size = 256,
            .rx_size = 1024,
            .iov_limit = 2,
            .cq_size = 1024,
            .late = 6,
            .shuffle = 1,
            .av_reader = 1 },
    { .name = "cxi",
            .fabric = "cxi",
            .type = FI_EP_RDM,
            .addr_format = FI_ADDR_CXI,
            .addr_len = 4,
            .mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED,
            .mr_key_size = 4,
            .mr_cnt = 4096,
            .progress = FI_PROGRESS_MANUAL,
            .threading = FI_THREAD_SAFE,
            .resources = FI_RM_ENABLED,
            .msg_order = FI_ORDER_SAS,
            .max_msg = GIB,
            .max_rma = GIB,
            .inject = 192,
            .tx_size = 256,
            .rx_size = 512,
            .iov_limit = 1,
            .cq_size = 1024,
            .late = 2,
            .lost_wakes = 25,
            .wait_fd = 1,
            .shuffle = 1 },
    { .name = "opx",
            .fabric = "OPX-100",
            .type = FI_EP_RDM,
            .addr_format = FI_ADDR_OPX,
            .addr_len = 16,
            .mr_key_size = 8,
            .mr_cnt = 4096,
            .progress = FI_PROGRESS_MANUAL,
            .threading = FI_THREAD_DOMAIN,
            .resources = FI_RM_ENABLED,
            .msg_order = FI_ORDER_SAS,
            .max_msg = GIB,
            .max_rma = GIB,
            .inject = 64,
            .tx_size = 256,
            .rx_size = 512,
            .iov_limit = 1,
            .cq_size = 1024,
            .late = 2,
            .shuffle = 1,
            .dead_silent = 1 },
    { .name = "shm",
            .fabric = "shm",
            .type = FI_EP_RDM,
            .addr_format = FI_ADDR_STR,
            .addr_len = sizeof("fi_strict://01234567"),
            .mr_mode = FI_MR_VIRT_ADDR,
            .mr_key_size = 8,
            .mr_cnt = 4096,
            .progress = FI_PROGRESS_MANUAL,
            .threading = FI_THREAD_SAFE,
            .resources = FI_RM_ENABLED,
            .msg_order = FI_ORDER_SAS,
            .max_msg = 4 * GIB,
            .max_rma = 4 * GIB,
            .inject = 4096,
            .tx_size = 1024,
            .rx_size = 1024,
            .iov_limit = 4,
            .cq_size = 1024,
            .keyless = 1 },
    { .name = "verbs",
            .fabric = "IB-0xfe80000000000000",
            .type = FI_EP_MSG,
            .addr_format = FI_SOCKADDR_IN,
            .addr_len = 16,
            .data_mode = FI_RX_CQ_DATA,
            .mr_mode = BASIC,
            .mr_key_size = 4,
            .mr_cnt = 4096,
            .progress = FI_PROGRESS_AUTO,
            .threading = FI_THREAD_SAFE,
            .resources = FI_RM_ENABLED,
            .msg_order = FI_ORDER_SAS | FI_ORDER_RAR | FI_ORDER_RAS,
            .comp_order = IN_ORDER,
            .max_msg = GIB,
            .max_rma = GIB,
            .inject = 64,
            .tx_size = 384,
            .rx_size = 384,
            .iov_limit = 4,
            .cq_size = 256,
            .late = 2,
            .wait_fd = 1,
            .cq_abort = 1 },
    { .name = "worst",
            .fabric = "worst",
            .type = FI_EP_RDM,
            .addr_format = FI_ADDR_OPX,
            .addr_len = 48,
            .mode = FI_CONTEXT2,
            .mr_mode = BASIC | FI_MR_RAW | FI_MR_ENDPOINT,
            .mr_key_size = SFI_RAW_KEY,
            .mr_cnt = 256,
            .progress = FI_PROGRESS_MANUAL,
            .threading = FI_THREAD_SAFE,
            .resources = FI_RM_DISABLED,
            .max_msg = 8192,
            .max_rma = 1 << 16,
            .inject = 0,
            .tx_size = 8,
            .rx_size = 16,
            .iov_limit = 1,
            .cq_size = 16,
            .late = 12,
            .again = 30,
            .shuffle = 1,
            .av_reader = 1,
            .cq_abort = 1,
            .tx_abort = 1,
            .dead_silent = 1,
            .delivered = 1,
            .discards = 1 },
};

/*
 * The seed decides between demands that no fabric has together: regions bound to endpoints or
 * descriptors for local memory (1 and 3), virtual addresses or offsets (2 and 3).
 */
static const struct sfi_profile *profile_seeded(const struct sfi_profile *p)
{
    static struct sfi_profile seeded;
    uint64_t seed = sfi_setting("STRICTFI_SEED", 1);

    seeded = *p;
    if (strcmp(p->name, "worst") == 0) {
        seeded.mr_mode &= ~(seed & 1 ? FI_MR_ENDPOINT : FI_MR_LOCAL);
        if (seed & 2)
            seeded.mr_mode &= ~FI_MR_VIRT_ADDR;
    }
    return &seeded;
}

const struct sfi_profile *sfi_profile(void)
{
    static const struct sfi_profile *found;
    const char *name = getenv("STRICTFI_PROFILE");

    if (found || !name || !*name)
        return found;
    for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++)
        if (strcmp(profiles[i].name, name) == 0)
            return found = profile_seeded(&profiles[i]);
    sfi_sin("profile", "STRICTFI_PROFILE names no profile: %s", name);
}
