/* SPDX-License-Identifier: Apache-2.0 */
/* All that the reader of `.metadata` gives out, in the form of the JSON files of tests/data. */
#ifndef METADATA_JSON_H
#define METADATA_JSON_H

#include <hearth/metadata.h>
#include <jansson.h>

/* Walks every call of the reader; aborts where two of them contradict each other. */
json_t *metadata_json(struct hearth_metadata *md);

#endif
