/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster.h"

const struct scenario scenarios_damage[] = { { 0 } };
