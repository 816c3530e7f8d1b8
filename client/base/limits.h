/* SPDX-License-Identifier: Apache-2.0 */
/* The most that a caller may ask for, and the least that a struct of a caller's must have. */
#ifndef HEARTH_CLIENT_LIMITS_H
#define HEARTH_CLIENT_LIMITS_H

#include <hearth/bootstrap.h>
#include <stddef.h>

#define HTH_KEY_MAX         1024u /* bytes of an item's key */
#define HTH_OBJECTS_MAX     64u   /* objects of one rank in one save */

/* Up to the last field of the first version. */
#define HTH_BOOTSTRAP_LEAST (offsetof(struct hearth_bootstrap, self) + sizeof(void *))

#endif
