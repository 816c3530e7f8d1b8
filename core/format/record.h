/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common parts of this folder's records: `magic version ... digest`, texts padded with zeros, a
 * save in 32 bytes. Each byte of a record has one meaning, so the decoder refuses all that the
 * encoder does not write.
 */
#ifndef HEARTH_CORE_FORMAT_RECORD_H
#define HEARTH_CORE_FORMAT_RECORD_H

#include "core/base/bytes.h"
#include "core/base/id.h"
#include "versions.h"

#define HTH_SAVE_BYTES 32 /* u64 epoch, nonce, step, u32 attempt, u32 zero */

void hth_write_save(struct hth_writer *w, struct hth_save_id save);
struct hth_save_id hth_read_save(struct hth_reader *r); /* the zero is not zero: r->bad */

/* A text of at most n bytes, padded with zeros to n. */
void hth_write_text(struct hth_writer *w, const char *text, size_t n);
/* out[n + 1]. A byte after the first zero is not zero: r->bad. */
void hth_read_text(struct hth_reader *r, char *out, size_t n);

void hth_write_zeros(struct hth_writer *w, size_t n);
void hth_read_zeros(struct hth_reader *r, size_t n); /* one is not zero: r->bad */

/* The digest of all that w holds, put behind it. */
void hth_write_digest(struct hth_writer *w);

/* Magic and version; *out_version is one that `versions` has. Errors: HEARTH_ECORRUPT,
 * HEARTH_EUNSUPPORTED; the row's name is in the sentence. */
int hth_read_head(struct hth_reader *r, const char magic[8], const struct hth_versions *versions,
        uint32_t *out_version, struct hearth_error *err);

/* A record from its magic to the digest that is its end, in each version: a record whose digest
 * does not hold is damaged, whatever its version says. out_version: may be NULL. Errors: as
 * hth_read_head(). */
int hth_read_record(struct hth_reader *r, const char magic[8], const struct hth_versions *versions,
        uint32_t *out_version, struct hearth_error *err);

/* HEARTH_ECORRUPT, for what the digest covers and the encoder does not write. */
int hth_record_odd(
        const struct hth_reader *r, const struct hth_versions *versions, struct hearth_error *err);

#endif
