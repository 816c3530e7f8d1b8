/* SPDX-License-Identifier: Apache-2.0 */
/* While the ranks gather, rank 0 needs a descriptor for each of them. */
#include "files.h"

#include "core/base/fail.h"
#include "core/base/open.h"

#define BESIDE 64u /* for connections of strangers, and for the caller's other threads */

static unsigned files_open(void)
{
    DIR *d = hth_open_kernel_list("/proc/self/fd");
    unsigned n = 0;

    if (!d)
        return 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

int hth_files_raise(struct hth_files *f, unsigned count, struct hearth_error *err)
{
    rlim_t needed = (rlim_t)files_open() + count;

    *f = (struct hth_files){ 0 };
    if (getrlimit(RLIMIT_NOFILE, &f->was) || f->was.rlim_cur >= needed + BESIDE)
        return HEARTH_OK;
    f->is = f->was;
    f->is.rlim_cur = f->was.rlim_max < needed + BESIDE ? f->was.rlim_max : needed + BESIDE;
    f->raised = f->is.rlim_cur > f->was.rlim_cur && !setrlimit(RLIMIT_NOFILE, &f->is);
    if ((f->raised ? f->is.rlim_cur : f->was.rlim_cur) >= needed)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, 0,
            "rank 0 needs %llu file descriptors while the ranks gather and may have %llu: raise "
            "the hard limit where rank 0 runs (ulimit -Hn, LimitNOFILE=), or use PMIx or an "
            "all-gather of your own",
            (unsigned long long)needed, (unsigned long long)f->was.rlim_max);
}

void hth_files_restore(const struct hth_files *f)
{
    struct rlimit now;

    if (f->raised && !getrlimit(RLIMIT_NOFILE, &now) && now.rlim_cur == f->is.rlim_cur)
        setrlimit(RLIMIT_NOFILE, &f->was);
}
