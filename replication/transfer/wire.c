/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages between owner and holder, little-endian, each of exactly its length:
 *
 *   OFFER    save 32 | object 128 | u32 END follows | u32 zero
 *   READY    save 32 | u64 object | u32 first | u32 count | grant | u32 crc[count]
 *   END      save 32 | object 128 | grant
 *   PULLED   save 32 | u64 object | digest 32
 *   WANT     save 32 | u64 object | u64 off | u64 len
 *   NAK      save 32 | u64 object | i32 code | u32 of | text to the end
 *   RELEASE  save 32 | u64 object
 *   BAD      save 32 | u64 object | u64 chunk
 *   WRITING  save 32 | object 128 | u32 chunks | u32 zero | grant; 0 chunks: none, it is given up
 *   SUM_WANT save 32 | u64 object | u64 off | u64 len
 *   SUM      save 32 | u64 object | u64 off | u64 len | u64 chunk | u32 crc | u32 zero
 *
 *   grant    u32 length | u32 zero | length bytes          object: as in the manifest
 */
#include "wire.h"

#include "core/format/record.h"
#include <stdio.h>

static void wire_grant_write(struct hth_writer *w, const struct hth_grant *g)
{
    hth_write32(w, g->desc_len);
    hth_write32(w, 0);
    hth_write(w, g->desc, g->desc_len);
}

static void wire_grant_read(struct hth_reader *r, struct hth_grant *g)
{
    const unsigned char *desc;

    g->desc_len = hth_read32(r);
    hth_read_zeros(r, 4);
    if (g->desc_len > HTH_DESC_MAX)
        r->bad = 1;
    desc = r->bad ? NULL : hth_read(r, g->desc_len);
    if (desc)
        memcpy(g->desc, desc, g->desc_len);
}

static void wire_object_write(struct hth_writer *w, const struct hth_object *o)
{
    unsigned char bytes[HTH_MANIFEST_OBJECT];

    hth_object_encode(o, bytes);
    hth_write(w, bytes, sizeof(bytes));
}

/* Foreign objects are asked for, never offered. */
static void wire_object_read(struct hth_reader *r, uint16_t type, struct hth_wire *out)
{
    const unsigned char *bytes = hth_read(r, HTH_MANIFEST_OBJECT);

    if (!bytes || hth_object_decode(&out->object, bytes, NULL) ||
            (out->object.kind != HTH_OBJECT_SHARD &&
                    (out->object.kind != HTH_OBJECT_FOREIGN || type != HTH_MSG_END)))
        r->bad = 1;
    out->id = out->object.id;
}

/* Returns the bytes written to out[HTH_BODY_MAX]. */
static size_t wire_encode(const struct hth_wire *m, uint16_t type, unsigned char *out)
{
    struct hth_writer w = { .at = out, .cap = HTH_BODY_MAX };

    hth_write_save(&w, m->save);
    if (type == HTH_MSG_OFFER || type == HTH_MSG_END || type == HTH_MSG_WRITING)
        wire_object_write(&w, &m->object);
    else
        hth_write64(&w, m->id);
    if (type == HTH_MSG_OFFER) {
        hth_write32(&w, m->follows);
        hth_write32(&w, 0);
    } else if (type == HTH_MSG_END) {
        wire_grant_write(&w, &m->grant);
    } else if (type == HTH_MSG_WRITING) {
        hth_write32(&w, m->count);
        hth_write32(&w, 0);
        wire_grant_write(&w, &m->grant);
    } else if (type == HTH_MSG_READY) {
        hth_write32(&w, m->first);
        hth_write32(&w, m->count);
        wire_grant_write(&w, &m->grant);
        hth_write(&w, m->crc, sizeof(uint32_t) * m->count);
    } else if (type == HTH_MSG_PULLED) {
        hth_write(&w, m->digest, HTH_DIGEST);
    } else if (type == HTH_MSG_SUM) {
        hth_write64(&w, m->off);
        hth_write64(&w, m->len);
        hth_write64(&w, m->chunk);
        hth_write32(&w, m->sum);
        hth_write32(&w, 0);
    } else if (type == HTH_MSG_WANT || type == HTH_MSG_SUM_WANT) {
        hth_write64(&w, m->off);
        hth_write64(&w, m->len);
    } else if (type == HTH_MSG_BAD) {
        hth_write64(&w, m->chunk);
    } else if (type == HTH_MSG_NAK) {
        hth_write32(&w, (uint32_t)m->code);
        hth_write32(&w, m->of);
        hth_write(&w, m->text, strnlen(m->text, HTH_WIRE_TEXT));
    }
    return w.len;
}

static void wire_ready_read(struct hth_reader *r, struct hth_wire *out)
{
    out->first = hth_read32(r);
    out->count = hth_read32(r);
    wire_grant_read(r, &out->grant);
    if (out->count > HTH_WIRE_CHUNKS || out->count > UINT32_MAX - out->first)
        r->bad = 1;
    out->crc = r->bad ? NULL : hth_read(r, sizeof(uint32_t) * out->count);
}

/* The text of a peer goes into this node's log, so only printable characters are kept. */
static void wire_nak_read(struct hth_reader *r, struct hth_wire *out)
{
    uint32_t code = hth_read32(r), of = hth_read32(r);
    const unsigned char *text;
    size_t n = r->bad ? 0 : r->len - r->pos;

    if (of > HTH_NAK_WRITING || code == 0 || n > HTH_WIRE_TEXT)
        r->bad = 1;
    out->code = (int32_t)code;
    out->of = r->bad ? HTH_NAK_OFFER : (enum hth_nak)of;
    text = hth_read(r, n);
    for (size_t i = 0; text && i < n; i++)
        out->text[i] = text[i] >= ' ' && text[i] <= '~' ? (char)text[i] : '?';
}

static void wire_slice_read(struct hth_reader *r, uint16_t type, struct hth_wire *out)
{
    out->off = hth_read64(r);
    out->len = hth_read64(r);
    if (out->off < HTH_BLOCK || !out->len || out->len > HTH_SLICE_MAX ||
            out->off > UINT64_MAX - out->len)
        r->bad = 1;
    if (type != HTH_MSG_SUM)
        return;
    out->chunk = hth_read64(r);
    out->sum = hth_read32(r);
    hth_read_zeros(r, 4);
}

int hth_wire_decode(struct hth_wire *out, uint16_t type, const unsigned char *body, size_t len)
{
    struct hth_reader r = { .at = body, .len = len };
    const unsigned char *digest;

    *out = (struct hth_wire){ 0 };
    out->save = hth_read_save(&r);
    if (type == HTH_MSG_OFFER || type == HTH_MSG_END || type == HTH_MSG_WRITING)
        wire_object_read(&r, type, out);
    else
        out->id = hth_read64(&r);
    if (type == HTH_MSG_OFFER) {
        out->follows = hth_read32(&r);
        hth_read_zeros(&r, 4);
        r.bad |= out->follows > 1;
    } else if (type == HTH_MSG_END) {
        wire_grant_read(&r, &out->grant);
    } else if (type == HTH_MSG_WRITING) {
        out->count = hth_read32(&r);
        hth_read_zeros(&r, 4);
        wire_grant_read(&r, &out->grant);
        r.bad |= !out->count && out->grant.desc_len;
    } else if (type == HTH_MSG_READY) {
        wire_ready_read(&r, out);
    } else if (type == HTH_MSG_PULLED) {
        if ((digest = hth_read(&r, HTH_DIGEST)))
            memcpy(out->digest, digest, HTH_DIGEST);
    } else if (type == HTH_MSG_WANT) {
        out->off = hth_read64(&r);
        out->len = hth_read64(&r);
    } else if (type == HTH_MSG_SUM || type == HTH_MSG_SUM_WANT) {
        wire_slice_read(&r, type, out);
    } else if (type == HTH_MSG_BAD) {
        out->chunk = hth_read64(&r);
    } else if (type == HTH_MSG_NAK) {
        wire_nak_read(&r, out);
    } else if (type != HTH_MSG_RELEASE) {
        return HEARTH_EPROTO;
    }
    return r.bad || r.pos != len || hth_save_none(out->save) ? HEARTH_EPROTO : HEARTH_OK;
}

/* ---- Saying
 * ------------------------------------------------------------------------------------- */

void hth_wire_say(struct hth_ctx *ctx, uint32_t node, uint16_t type, const struct hth_wire *wire)
{
    unsigned char body[HTH_BODY_MAX];
    int rc = hth_session_send(ctx->session, node, type, body, wire_encode(wire, type, body));

    if (rc) /* the sender repeats it if it has no effect */
        hth_say(&ctx->log, HEARTH_LOG_DEBUG, "transfer-lost", "node %" PRIu32 ": %s", node,
                hearth_strerror(rc));
}

void hth_wire_nak(struct hth_ctx *ctx, uint32_t node, struct hth_save_id save, uint64_t object,
        enum hth_nak of, int code, const char *text)
{
    struct hth_wire w = { .save = save, .id = object, .of = of, .code = code };

    snprintf(w.text, sizeof(w.text), "%s", text);
    hth_wire_say(ctx, node, HTH_MSG_NAK, &w);
}
