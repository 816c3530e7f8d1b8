/* SPDX-License-Identifier: Apache-2.0 */
/* The pages that slots lie on: what the mount gives and the kernel allows. */
#ifndef HEARTH_CORE_STORE_PAGES_H
#define HEARTH_CORE_STORE_PAGES_H

struct hth_pages {
    char mount[256]; /* empty: no root was named */
    char kind[32];   /* "tmpfs" */
    char huge[32];   /* "within_size"; "never" where nothing says another thing */
    int are_huge;
    char text[640];
};

/* root: the job's, or NULL. Below `under`, which stands for "/". */
void hth_pages_look(const char *under, const char *root, struct hth_pages *out);

#endif
