/* SPDX-License-Identifier: Apache-2.0 */
/* A byte for the type, then a message between owner and holder. What decodes lies within the
 * message and within its bounds, and words of a peer are printable. */
#include "replication/transfer/batch.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void wire_want(int good)
{
    if (!good)
        abort();
}

static void wire_batch(uint16_t type, const unsigned char *body, size_t len)
{
    struct hth_slices in;
    struct hth_slice_said said;

    if (hth_slices_decode(&in, type, body, len))
        return;
    while (hth_slices_next(&in, &said)) {
        wire_want(said.w.off >= HTH_BLOCK && said.w.len && said.w.len <= HTH_SLICE_MAX);
        wire_want(!said.bytes || (said.bytes >= body && said.bytes + said.w.len <= body + len));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const unsigned char *body = data + 1, *crc;
    struct hth_wire m;

    if (size && (data[0] == HTH_MSG_SLICES_WANT || data[0] == HTH_MSG_SLICES)) {
        wire_batch(data[0], body, size - 1);
        return 0;
    }
    if (!size || hth_wire_decode(&m, data[0], body, size - 1))
        return 0;
    wire_want((data[0] >= HTH_MSG_OFFER && data[0] <= HTH_MSG_BAD) || data[0] == HTH_MSG_SUM_WANT ||
              data[0] == HTH_MSG_SUM || data[0] == HTH_MSG_WRITING);
    wire_want(!hth_save_none(m.save));
    wire_want(data[0] < HTH_MSG_SUM_WANT || data[0] == HTH_MSG_WRITING ||
              (m.off >= HTH_BLOCK && m.len && m.len <= HTH_SLICE_MAX && m.off + m.len > m.off));
    wire_want(m.grant.desc_len <= HTH_DESC_MAX && m.follows <= 1);
    if (data[0] == HTH_MSG_WRITING) {
        wire_want(m.object.kind == HTH_OBJECT_SHARD && m.object.id == m.id && !m.crc);
        wire_want(m.count || !m.grant.desc_len);
        return 0;
    }
    wire_want(m.count <= HTH_WIRE_CHUNKS);
    crc = m.crc;
    wire_want(!m.count || (crc >= body && crc + (size_t)4 * m.count == data + size));
    wire_want(m.first <= UINT32_MAX - m.count && strlen(m.text) <= HTH_WIRE_TEXT);
    for (const char *c = m.text; *c; c++)
        wire_want(*c >= ' ' && *c <= '~');
    wire_want(data[0] != HTH_MSG_NAK || m.code);
    wire_want(
            data[0] != HTH_MSG_OFFER || (m.object.kind == HTH_OBJECT_SHARD && m.object.id == m.id));
    return 0;
}
