/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of the job root's mount: registering and copying them costs a hundredth when they are huge. */
#include "pages.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHMEM "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

/* Is `root` the mount's own or below it? */
static int mount_has(const char *mount, const char *root)
{
    size_t n = strlen(mount);

    if (n == 1)
        return 1;
    return strncmp(mount, root, n) == 0 && (root[n] == '/' || root[n] == '\0');
}

/* The last of the longest wins: a mount may lie over another. */
static void mount_find(
        const char *under, const char *root, struct hth_pages *out, char options[512])
{
    char path[PATH_MAX], line[1024], mount[256], kind[32], words[512];
    FILE *f;

    snprintf(path, sizeof(path), "%s/proc/self/mounts", under);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%*s %255s %31s %511s", mount, kind, words) != 3 ||
                !mount_has(mount, root) || strlen(mount) < strlen(out->mount))
            continue;
        memcpy(out->mount, mount, sizeof(mount));
        memcpy(out->kind, kind, sizeof(kind));
        memcpy(options, words, sizeof(words));
    }
    if (f)
        fclose(f);
}

/* "rw,huge=advise,size=1g": advise. */
static void huge_of_options(const char *options, char *out, size_t len)
{
    const char *at = strstr(options, "huge=");

    snprintf(out, len, "never");
    if (at && (at == options || at[-1] == ','))
        snprintf(out, len, "%.*s", (int)strcspn(at + 5, ","), at + 5);
}

/* The kernel's own word for all mounts: 'f' force, 'd' deny, 0 neither. */
static int huge_of_kernel(const char *under)
{
    char path[PATH_MAX], line[128] = "";
    const char *at;
    FILE *f;

    snprintf(path, sizeof(path), "%s" SHMEM, under);
    f = fopen(path, "re");
    if (f && !fgets(line, sizeof(line), f))
        line[0] = '\0';
    if (f)
        fclose(f);
    at = strchr(line, '[');
    return at && (at[1] == 'f' || at[1] == 'd') ? at[1] : 0;
}

static void pages_say(const char *under, struct hth_pages *out)
{
    int kernel = huge_of_kernel(under);

    if (strcmp(out->kind, "hugetlbfs") == 0) {
        out->are_huge = 1;
        snprintf(out->text, sizeof(out->text), "%s is hugetlbfs: all its pages are huge",
                out->mount);
    } else if (strcmp(out->kind, "tmpfs") != 0) {
        snprintf(out->text, sizeof(out->text),
                "%s is %s: Hearth wants a tmpfs, mounted with huge=within_size", out->mount,
                out->kind);
    } else if (kernel) {
        out->are_huge = kernel == 'f';
        snprintf(out->text, sizeof(out->text), "the kernel says %s for all mounts (" SHMEM ")",
                kernel == 'f' ? "force" : "deny");
    } else {
        out->are_huge = strcmp(out->huge, "never") != 0 && strcmp(out->huge, "advise") != 0;
        snprintf(out->text, sizeof(out->text),
                out->are_huge ? "%s is mounted with huge=%s"
                              : "%s is mounted with huge=%s: its pages are small, and locking them "
                                "for an adapter takes a hundred times as long; mount -o "
                                "remount,huge=within_size",
                out->mount, out->huge);
    }
}

void hth_pages_look(const char *under, const char *root, struct hth_pages *out)
{
    char options[512] = "", real[PATH_MAX];

    memset(out, 0, sizeof(*out));
    if (!root) {
        snprintf(out->text, sizeof(out->text),
                "no root is named: give --root or HEARTH_ROOT to see its mount");
        return;
    }
    mount_find(under, !under[0] && realpath(root, real) ? real : root, out, options);
    if (!out->mount[0]) {
        snprintf(out->text, sizeof(out->text), "the mount of %.300s is not found", root);
        return;
    }
    huge_of_options(options, out->huge, sizeof(out->huge));
    pages_say(under, out);
}
