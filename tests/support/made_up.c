/* SPDX-License-Identifier: Apache-2.0 */
#include "made_up.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void made_up_refused(const char *what)
{
    perror(what);
    abort();
}

void made_up_begin(char root[64])
{
    snprintf(root, 64, "/dev/shm/hearth-root-XXXXXX");
    if (!mkdtemp(root))
        made_up_refused(root);
}

void made_up_end(const char *root)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", root);
    if (system(command))
        made_up_refused(root);
}

void made_up_file(const char *root, const char *path, const char *line)
{
    char full[PATH_MAX];
    FILE *f;

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
            slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    f = fopen(full, "w");
    if (!f)
        made_up_refused(full);
    fprintf(f, "%s\n", line);
    fclose(f);
}

void made_up_memlock(const char *root, const char *limit)
{
    char line[256];

    snprintf(line, sizeof(line),
            "Limit                     Soft Limit           Hard Limit           Units\n"
            "Max locked memory         %-20s unlimited            bytes",
            limit);
    made_up_file(root, "/proc/self/limits", line);
}

void made_up_node(const char *root)
{
    static const char *const files[][2] = {
        { "/sys/class/net/lo/mtu", "65536" },
        { "/sys/class/net/lo/operstate", "unknown" },
        { "/sys/class/net/lo/type", "772" },
        { "/sys/class/net/eth0/mtu", "9000" },
        { "/sys/class/net/eth0/operstate", "up" },
        { "/sys/class/net/eth0/speed", "25000" },
        { "/sys/class/net/eth0/type", "1" },
        { "/sys/class/net/eth0/device/numa_node", "1" },
        { "/sys/class/net/ib0/mtu", "4092" },
        { "/sys/class/net/ib0/operstate", "up" },
        { "/sys/class/net/ib0/speed", "400000" },
        { "/sys/class/net/ib0/dev_port", "0x0" },
        { "/sys/class/net/ib0/device/numa_node", "0" },
        { "/sys/class/net/ib0/device/infiniband/mlx5_0/ports/1/state", "4: ACTIVE" },
        { "/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE" },
        { "/sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)" },
        { "/sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand" },
        { "/sys/class/infiniband/mlx5_0/device/numa_node", "0" },
        { "/sys/class/infiniband/mlx5_0/device/net/ib0/mtu", "4092" },
        { "/dev/infiniband/uverbs0", "" },
        { "/proc/self/status", "CapEff:\t0000000000000000" },
        { "/proc/self/uid_map", "         0          0 4294967295" },
        { "/proc/sys/net/ipv4/tcp_congestion_control", "bbr" },
        { "/addresses", "lo 127.0.0.1\nlo ::1\neth0 10.0.0.7\nib0 10.1.0.7" },
    };

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        made_up_file(root, files[i][0], files[i][1]);
    made_up_memlock(root, "unlimited");
}
