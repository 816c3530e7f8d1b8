/* SPDX-License-Identifier: Apache-2.0 */
/* The table behind hearth_opts_from_env(), for `hearth ls --env`. */
#ifndef HEARTH_CLIENT_ENV_H
#define HEARTH_CLIENT_ENV_H

#include <stddef.h>

enum hth_env_kind {
    HTH_ENV_TEXT = 1,
    HTH_ENV_U32,
    HTH_ENV_U64,
    HTH_ENV_BOOL,
    HTH_ENV_START,   /* auto, never, in_process */
    HTH_ENV_NETWORK, /* hostile, trusted */
    HTH_ENV_LIST,    /* names with commas between */
};

struct hth_env_row {
    const char *name; /* of the variable */
    enum hth_env_kind kind;
    size_t at; /* in struct hearth_opts */
    const char *standard, *help;
};

const struct hth_env_row *hth_env_rows(size_t *out_count);

#endif
