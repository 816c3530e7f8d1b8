/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings that hearth_opts_from_env() leaves for hearth_open() to log. */
#ifndef HEARTH_CLIENT_ENV_H
#define HEARTH_CLIENT_ENV_H

#define HTH_STRAYS     8u /* that are logged; more are only counted */
#define HTH_STRAY_TEXT 160

/* The variables HEARTH_... that nothing reads: how many, and a sentence each with the nearest
 * that is read. Once in a process, after its first hearth_opts_from_env(); else 0. */
unsigned hth_strays(char out[HTH_STRAYS][HTH_STRAY_TEXT]);

#endif
