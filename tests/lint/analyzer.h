/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tidy.py in front of each file: tells clang's analyzer what it cannot see across
 * files, that hth_fail() and hth_while() return the code they were given. */
#include "core/base/fail.h"

#define hth_fail(err, code, ...)  (hth_fail(err, code, __VA_ARGS__), (code))
#define hth_while(err, code, ...) (hth_while(err, code, __VA_ARGS__), (code))
