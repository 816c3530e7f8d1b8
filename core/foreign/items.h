/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The items of an object without a table: a foreign one. Tensors come first, and the header of each
 * gives its length; the bytes after the last tensor have no length of their own, so they are one
 * item.
 */
#ifndef HEARTH_CORE_FOREIGN_ITEMS_H
#define HEARTH_CORE_FOREIGN_ITEMS_H

#include "core/format/table.h"
#include "core/torch/header.h"

/* An item as its own bytes describe it: no key, no place in a global tensor. */
struct hth_found {
    enum hth_item_kind kind;
    uint64_t offset;          /* of the item, from byte 4096 of the file */
    uint64_t length;          /* header and payload */
    uint64_t payload;         /* offset of the payload in the item; 0 for bytes */
    struct hth_header header; /* tensors */
};

struct hth_items {
    const unsigned char *at; /* [len], borrowed */
    uint64_t len;
    uint64_t pos;
    enum hth_signature signature;
};

/* Is this foreign object what its signature says? block: decoded; data[len]: its data section, or
 * the first bytes of it. Errors: HEARTH_ECORRUPT. */
int hth_object_check(
        const struct hth_block *block, const void *data, size_t len, struct hearth_error *err);

/* Walk data[len], a whole data section. Of an object that is not MLF_TENS all is one item. */
void hth_items_init(
        struct hth_items *it, enum hth_signature signature, const void *data, uint64_t len);

/* 0, or HEARTH_ENOENT at the end. Errors: HEARTH_ECORRUPT when a tensor's payload is cut off. */
int hth_items_next(struct hth_items *it, struct hth_found *out, struct hearth_error *err);

/* One tensor item whose length is known from elsewhere: bytes[len]; out->offset is 0.
 * Errors: HEARTH_ECORRUPT when it is not a tensor of exactly this length. */
int hth_found_tensor(
        struct hth_found *out, const void *bytes, uint64_t len, struct hearth_error *err);

#endif
