/* SPDX-License-Identifier: Apache-2.0 */
/* Lies, made from honest messages: bits, lengths, counts and numbers that are almost right. */
#include "hostile.h"

#include "core/base/bytes.h"
#include "core/base/env.h"

#include <string.h>

uint64_t hostile_roll(uint64_t *dice, uint64_t sides)
{
    return hth_splitmix64(dice) % sides;
}

static uint64_t odd_number(uint64_t *dice)
{
    static const uint64_t odd[] = { 0, 1, 2, 0x7f, 0xff, 0x7fff, 0xffff, 0x10000, INT32_MAX,
        UINT32_MAX, UINT64_C(1) << 32, UINT64_C(1) << 40, UINT64_C(1) << 62,
        (UINT64_C(1) << 62) + 1, INT64_MAX, UINT64_MAX - 7, UINT64_MAX };

    return odd[hostile_roll(dice, sizeof(odd) / sizeof(odd[0]))];
}

static void mutate_number(uint64_t *dice, unsigned char *bytes, size_t len)
{
    size_t width = (size_t)1 << hostile_roll(dice, 4), at;
    uint64_t value = odd_number(dice);

    if (width > len)
        width = 1;
    at = hostile_roll(dice, len - width + 1);
    if (hostile_roll(dice, 2)) /* numbers are aligned */
        at -= at % width;
    if (hostile_roll(dice, 3) == 0) { /* one more or less than it was */
        value = 0;
        memcpy(&value, bytes + at, width);
        value += hostile_roll(dice, 2) ? 1 : UINT64_MAX;
    }
    memcpy(bytes + at, &value, width);
}

size_t hostile_mutate(uint64_t *dice, unsigned char *bytes, size_t len, size_t most)
{
    for (uint64_t times = 1 + hostile_roll(dice, 4); times; times--) {
        size_t n;

        switch (hostile_roll(dice, 8)) {
        case 0:
            len = hostile_roll(dice, len + 1);
            break;
        case 1:
            n = hostile_roll(dice, most - len + 1);
            for (size_t i = 0; i < n; i++)
                bytes[len + i] = (unsigned char)hostile_roll(dice, 256);
            len += n;
            break;
        case 2:
            n = hostile_roll(dice, len + 1);
            memmove(bytes, bytes + n, len - n);
            len -= n;
            break;
        case 3:
        case 4:
            if (len)
                bytes[hostile_roll(dice, len)] ^= (unsigned char)(1u << hostile_roll(dice, 8));
            break;
        default:
            if (len)
                mutate_number(dice, bytes, len);
        }
    }
    return len;
}

void corpus_add(
        struct hostile_corpus *c, uint64_t *dice, uint16_t type, const void *bytes, size_t len)
{
    const uint32_t places = sizeof(c->heard) / sizeof(c->heard[0]);
    struct heard *h = &c->heard[c->count < places ? c->count : hostile_roll(dice, places)];

    c->count += c->count < places;
    free(h->bytes);
    *h = (struct heard){ .type = type, .len = (uint32_t)len, .bytes = malloc(len + 1) };
    CHECK(h->bytes, "no memory");
    if (len)
        memcpy(h->bytes, bytes, len);
}

void corpus_clear(struct hostile_corpus *c)
{
    for (uint32_t i = 0; i < c->count; i++)
        free(c->heard[i].bytes);
    memset(c, 0, sizeof(*c));
}

size_t hostile_random(uint64_t *dice, unsigned char *out, size_t most, uint16_t *out_type)
{
    size_t len = hostile_roll(dice, hostile_roll(dice, 4) ? 200 : most + 1);

    *out_type =
            (uint16_t)(hostile_roll(dice, 8) ? hostile_roll(dice, 64) : hostile_roll(dice, 65536));
    for (size_t i = 0; i < len; i++)
        out[i] = (unsigned char)hostile_roll(dice, 256);
    return len;
}

size_t corpus_lie(const struct hostile_corpus *c, uint64_t *dice, unsigned char *out, size_t most,
        uint16_t *out_type)
{
    const struct heard *h = &c->heard[hostile_roll(dice, c->count)];
    uint64_t kind = hostile_roll(dice, 9);
    size_t len = h->len < most ? h->len : most;

    memcpy(out, h->bytes, len);
    *out_type = h->type;
    if (kind == 0) /* unchanged: some peer has sent it */
        return len;
    if (kind == 1)
        *out_type = c->heard[hostile_roll(dice, c->count)].type;
    return hostile_mutate(dice, out, len, most);
}
