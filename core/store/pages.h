/* SPDX-License-Identifier: Apache-2.0 */
/* The pages that slots lie on: what the mount gives and the kernel allows. */
#ifndef HEARTH_CORE_STORE_PAGES_H
#define HEARTH_CORE_STORE_PAGES_H

struct hth_pages {
    char mount[256];   /* empty: no root was named */
    char kind[32];     /* "tmpfs" */
    char options[512]; /* of the mount: "rw,huge=within_size,size=9g" */
    char huge[32];     /* "within_size"; "never" where nothing says another thing */
    int are_huge;      /* those of slots */
    int collapses;     /* not by the mount: the kernel makes them so when told; -1: not known */
    int advised;       /* not by the mount: of memory that asks for it */
    char text[1024];
};

/* root: the job's, or NULL. Below `under`, which stands for "/". tries: where the
 * mount gives none, a file of 2 MiB is made in it to see what the kernel does. */
void hth_pages_look(const char *under, const char *root, int tries, struct hth_pages *out);

#endif
