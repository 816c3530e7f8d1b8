/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of the job root's mount: registering and copying them costs a hundredth when they are
 * huge. */
#include "pages.h"

#include "core/base/map.h"
#include "core/base/open.h"
#include "core/base/root.h"
#include "store_tmpfs.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

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
static void mount_find(const char *under, const char *root, struct hth_pages *out)
{
    char path[PATH_MAX], line[1024], mount[256], kind[32], words[512];
    FILE *f;

    snprintf(path, sizeof(path), "%s/proc/self/mounts", under);
    f = hth_open_kernel_text(path);
    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%*s %255s %31s %511s", mount, kind, words) != 3 ||
                !mount_has(mount, root) || strlen(mount) < strlen(out->mount))
            continue;
        memcpy(out->mount, mount, sizeof(mount));
        memcpy(out->kind, kind, sizeof(kind));
        memcpy(out->options, words, sizeof(words));
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
    f = hth_open_kernel_text(path);
    if (f && !fgets(line, sizeof(line), f))
        line[0] = '\0';
    if (f)
        fclose(f);
    at = strchr(line, '[');
    return at && (at[1] == 'f' || at[1] == 'd') ? at[1] : 0;
}

/* Whether the kernel makes one huge page of a file of that size with one small page in it (Linux
 * 6.1), whatever the mount's huge= says: 1, 0, or -1 where it cannot be seen. */
static int pages_collapse(const char *root)
{
    int dir = -1, can = -1;
    int fd = hth_root_open(root, O_PATH, &dir, NULL)
                     ? -1
                     : hth_open_below(dir, ".", O_TMPFILE | O_RDWR, 0600);
    void *at = NULL;

    if (fd >= 0 && !ftruncate(fd, HTH_SLOT_ROUND) && pwrite(fd, "", 1, 0) == 1)
        at = hth_map_shared(fd, HTH_SLOT_ROUND, PROT_READ | PROT_WRITE);
    if (at) {
        if (!madvise(at, HTH_SLOT_ROUND, MADV_COLLAPSE))
            can = 1;
        else if (errno == EINVAL)
            can = 0;
        munmap(at, HTH_SLOT_ROUND);
    }
    if (fd >= 0)
        close(fd);
    if (dir >= 0)
        close(dir);
    return can;
}

static void pages_say_kernel(int kernel, struct hth_pages *out)
{
    out->are_huge = kernel == 'f';
    snprintf(out->text, sizeof(out->text),
            out->are_huge ? "the kernel has force for all mounts (" SHMEM ")"
                          : "the kernel has deny for all mounts (" SHMEM "): pages are small, and "
                            "locking them for an adapter takes a hundred times as long; echo never "
                            "> " SHMEM " leaves it to the mount's huge=");
}

/* A mount that gives none by itself. */
static void pages_say_small(struct hth_pages *out)
{
    out->advised = strcmp(out->huge, "advise") == 0;
    out->are_huge = out->collapses > 0 || out->advised;
    if (out->collapses > 0)
        snprintf(out->text, sizeof(out->text),
                "%s is mounted with huge=%s; this kernel makes slots huge all the same, raw objects "
                "only with mount -o remount,huge=within_size %s",
                out->mount, out->huge, out->mount);
    else if (out->advised)
        snprintf(out->text, sizeof(out->text),
                "%s is mounted with huge=advise: slots ask for huge pages, raw objects get them "
                "only with mount -o remount,huge=within_size %s",
                out->mount, out->mount);
    else
        snprintf(out->text, sizeof(out->text),
                "%s is mounted with huge=%s: its pages are small, and locking them "
                "for an adapter takes a hundred times as long; mount -o "
                "remount,huge=within_size %s",
                out->mount, out->huge, out->mount);
}

static void pages_say(const char *under, const char *root, int tries, struct hth_pages *out)
{
    int kernel = huge_of_kernel(under);

    if (strcmp(out->kind, "hugetlbfs") == 0) {
        out->are_huge = 1;
        snprintf(out->text, sizeof(out->text), "%s is hugetlbfs: all its pages are huge",
                out->mount);
    } else if (strcmp(out->kind, "tmpfs") != 0) {
        snprintf(out->text, sizeof(out->text),
                "%s is %s: Hearth requires a tmpfs, mounted with huge=within_size", out->mount,
                out->kind);
    } else if (kernel) {
        pages_say_kernel(kernel, out);
    } else if (strcmp(out->huge, "never") != 0 && strcmp(out->huge, "advise") != 0) {
        out->are_huge = 1;
        snprintf(out->text, sizeof(out->text), "%s is mounted with huge=%s", out->mount, out->huge);
    } else {
        out->collapses = tries && !under[0] ? pages_collapse(root) : 0;
        pages_say_small(out);
    }
}

void hth_pages_look(const char *under, const char *root, int tries, struct hth_pages *out)
{
    char real[PATH_MAX];

    memset(out, 0, sizeof(*out));
    if (!root) {
        snprintf(out->text, sizeof(out->text),
                "no root is named: give --root or HEARTH_ROOT to see its mount");
        return;
    }
    mount_find(under, !under[0] && realpath(root, real) ? real : root, out);
    if (!out->mount[0]) {
        snprintf(out->text, sizeof(out->text), "the mount of %.300s is not found", root);
        return;
    }
    huge_of_options(out->options, out->huge, sizeof(out->huge));
    pages_say(under, root, tries, out);
}
