/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of names and bytes of foreign containers, and how a node reports them. */
#include "check.h"

#include "core/foreign/foreign.h"
#include "loader/plan/plan.h"
#include "loader/restore/restore_state.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void limit(void)
{
    alarm(60);
}

TestSuite(foreign, .init = limit);

Test(foreign, the_owner_stands_in_the_name)
{
    static const struct {
        const char *name;
        uint32_t owner;
    } t[] = {
        { "__3__0_src7.distcp", 7 },
        { "__3__0_src0.distcp", 0 },
        { "__0_src_src12", 12 },
        { "__5_0.distcp", 5 },
        { "__16383_1.distcp", 16383 },
        { "__3__0.distcp", HTH_OWNER_NONE },
        { "__x_0.distcp", HTH_OWNER_NONE },
        { "__4294967296_0.distcp", HTH_OWNER_NONE },
        { "_src", HTH_OWNER_NONE },
        { ".metadata", HTH_OWNER_NONE },
        { "common.pt", HTH_OWNER_NONE },
    };

    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
        cr_assert(eq(u32, hth_foreign_owner(t[i].name), t[i].owner), "%s", t[i].name);
}

Test(foreign, files_of_a_container_have_ids_of_their_own_under_their_rank)
{
    struct hth_object a = hth_foreign_object("__0__0_src3.distcp", 10);
    struct hth_object b = hth_foreign_object("__0__1_src3.distcp", 10);

    cr_assert(eq(u64, a.id >> 32, 3));
    cr_assert(eq(u64, b.id >> 32, 3));
    cr_assert(ne(u64, a.id, b.id));
    cr_assert(eq(u64, a.data_len, 10));
    cr_assert(eq(u64, hth_object_file_bytes(&a), 10));
    cr_assert(eq(int, (int)a.kind, HTH_OBJECT_FOREIGN));
}

Test(foreign, names_are_found_in_a_pickle_whatever_stands_around_them)
{
    /* The last text is 50 bytes long, which reads as the letter 2. */
    static const char pickle[] = "\x80\x04\x8c\x12"
                                 "__0__0_src0.distcp\x94X\x0c\0\0\0__1_0.distcp.distcp"
                                 "\x8c\x06x.dist\x8c\x32"
                                 "__99999999__99999999_src0123456789012345678.distcp\x94.";
    char name[HTH_NAME_MAX + 1];
    size_t pos = 0, len = sizeof(pickle) - 1;

    cr_assert(eq(int, hth_foreign_name_next(pickle, len, &pos, name), 1));
    must_say(name, "__0__0_src0.distcp");
    cr_assert(eq(int, hth_foreign_name_next(pickle, len, &pos, name), 1));
    must_say(name, "__1_0.distcp");
    cr_assert(eq(int, hth_foreign_name_next(pickle, len, &pos, name), 1));
    must_say(name, "__1_0.distcp.distcp");
    cr_assert(eq(int, hth_foreign_name_next(pickle, len, &pos, name), 1));
    must_say(name, "__99999999__99999999_src0123456789012345678.distcp");
    cr_assert(eq(int, hth_foreign_name_next(pickle, len, &pos, name), 0));
    pos = 0;
    cr_assert(eq(int, hth_foreign_name_next(".distcp", 7, &pos, name), 0));
    pos = 0;
    cr_assert(eq(int, hth_foreign_name_next("", 0, &pos, name), 0));
}

Test(foreign, an_object_has_a_block_and_a_plain_file_has_none)
{
    unsigned char bytes[HTH_BLOCK + 100] = { 60 };
    struct hth_foreign_data d;
    struct hearth_error err;

    must(hth_foreign_data(&d, "PK\3\4zip", 7, NULL));
    cr_assert(eq(u64, d.at, 0));
    cr_assert(eq(u64, d.len, 7));
    cr_assert(eq(int, (int)d.signature, HTH_SIG_NONE));
    memcpy(bytes + 8, "MLF_TENS", 8);
    must(hth_foreign_data(&d, bytes, sizeof(bytes), NULL));
    cr_assert(eq(u64, d.at, HTH_BLOCK));
    cr_assert(eq(u64, d.len, 60)); /* the file may be longer */
    cr_assert(eq(int, (int)d.signature, HTH_SIG_TENSORS));
    must_fail(hth_foreign_data(&d, bytes, HTH_BLOCK + 59, &err), HEARTH_ECORRUPT);
    must_fail(hth_foreign_data(&d, bytes, 20, &err), HEARTH_ECORRUPT);
}

/* What ml-flashpoint wrote up to v0.0.4, and what it leaves where it was stopped before it
 * wrote. */
Test(foreign, a_block_may_have_a_length_and_no_signature)
{
    unsigned char bytes[HTH_BLOCK + 100] = { 60 };
    struct hth_foreign_data d;
    struct hearth_error err;

    must(hth_foreign_data(&d, bytes, sizeof(bytes), NULL));
    cr_assert(eq(u64, d.at, HTH_BLOCK));
    cr_assert(eq(u64, d.len, 60));
    cr_assert(eq(int, (int)d.signature, HTH_SIG_TORCH));
    must_fail(hth_foreign_data(&d, bytes, HTH_BLOCK + 59, &err), HEARTH_ECORRUPT);
    bytes[0] = 0;
    must_fail(hth_foreign_data(&d, bytes, sizeof(bytes), &err), HEARTH_ECORRUPT);
    bytes[0] = 60;
    bytes[HTH_BLOCK - 1] = 1; /* a plain file */
    must(hth_foreign_data(&d, bytes, sizeof(bytes), NULL));
    cr_assert(eq(u64, d.at, 0));
}

/* ---- Inventory and manifest
 * ---------------------------------------------------------------------- */

static struct hth_inventory inventory_of(struct hth_object *file, uint32_t count)
{
    struct hth_seen_save *s = calloc(1, sizeof(*s));
    struct hth_inventory inv = { .store = 3, .saves = 1, .save = s };

    cr_assert(ne(ptr, s, NULL));
    s->id = hth_save_of_foreign(0);
    s->objects = count;
    must(hth_seen_make(s, count));
    for (uint32_t i = 0; i < count; i++) {
        s->look[i] = (struct hth_foreign_look){ .flags = HTH_FOREIGN_SHAPED,
            .items = i,
            .data_len = 10 + i,
            .digest = { (unsigned char)i } };
        s->object[i].id = file[i].id;
        s->file[i] = file[i];
    }
    return inv;
}

static int by_id(const void *a, const void *b)
{
    const struct hth_object *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

Test(foreign, an_inventory_tells_names_lengths_and_markers)
{
    struct hth_object file[3] = { hth_foreign_object(".metadata", 100),
        hth_foreign_object("__0__0_src0.distcp", 5000), hth_foreign_object("x", 1) };
    struct hth_inventory inv, got;
    unsigned char bytes[4096];
    size_t len;

    qsort(file, 3, sizeof(file[0]), by_id);
    memset(file[1].digest, 7, HTH_DIGEST);
    inv = inventory_of(file, 3);
    inv.save->unfinished = 1;
    len = hth_inventory_bytes(&inv);
    cr_assert(le(sz, len, sizeof(bytes)));
    hth_inventory_encode(&inv, bytes);
    must(hth_inventory_decode(&got, bytes, len, NULL));
    cr_assert(eq(int, got.save->unfinished, 1));
    cr_assert(eq(int, got.save->has_manifest, 0));
    cr_assert(eq(u64, got.save->id.step, 0)); /* a real one */
    cr_assert(eq(int, hth_inventory_has(&got, hth_save_of_foreign(0), &file[1]), 1));
    for (int i = 0; i < 3; i++) {
        must_say(got.save->file[i].name, file[i].name);
        cr_assert(eq(u64, got.save->file[i].data_len, file[i].data_len));
        cr_assert(zero(
                int, memcmp(&got.save->look[i], &inv.save->look[i], sizeof(inv.save->look[i]))));
    }
    hth_inventory_fini(&got);
    for (size_t cut = 0; cut < len; cut++) /* never more than an error */
        must_fail(hth_inventory_decode(&got, bytes, cut, NULL), HEARTH_EPROTO);
    hth_inventory_fini(&inv);
}

Test(foreign, a_file_that_is_none_is_no_inventory)
{
    struct hth_object file[1] = { hth_foreign_object("shard", 5000) };
    struct hth_inventory inv = inventory_of(file, 1), got;
    unsigned char bytes[2048];
    size_t len = hth_inventory_bytes(&inv);

    hth_inventory_encode(&inv, bytes);
    must(hth_inventory_decode(&got, bytes, len, NULL));
    hth_inventory_fini(&got);
    for (int what = 0; what < 5; what++) {
        struct hth_object *o = &inv.save->file[0];

        *o = file[0];
        if (what == 0)
            o->owner = 9;
        else if (what == 1)
            o->id++;
        else if (what == 2)
            o->data_len = 0;
        else if (what == 3)
            o->listed = 1; /* that is the manifest's to say */
        else
            o->kind = HTH_OBJECT_RAW;
        hth_inventory_encode(&inv, bytes);
        must_fail(hth_inventory_decode(&got, bytes, len, NULL), HEARTH_EPROTO);
    }
    hth_inventory_fini(&inv);
}

static int decodes(
        struct hth_save_id save, enum hth_object_kind kind, uint32_t owner, uint32_t listed)
{
    struct hth_object object = {
        .id = 1, .owner = owner, .kind = kind, .listed = listed, .data_len = 1, .name = "x"
    };
    struct hth_manifest m = { .save = save, .world = 1, .nodes = 1, .objects = 1, .job = "j" }, got;
    unsigned char bytes[HTH_MANIFEST_HEAD + HTH_MANIFEST_OBJECT + HTH_DIGEST];
    int rc;

    m.object = &object;
    must(hth_manifest_encode(&m, bytes, NULL));
    rc = hth_manifest_decode(&got, bytes, sizeof(bytes), NULL);
    if (!rc) {
        cr_assert(eq(u32, got.object->listed, listed));
        hth_manifest_fini(&got);
    }
    return rc == HEARTH_OK;
}

Test(foreign, objects_of_one_kind_are_in_no_manifest_of_the_other)
{
    struct hth_save_id own = { 5, 6, 7, 1 }, foreign = hth_save_of_foreign(7);

    cr_assert(decodes(own, HTH_OBJECT_RAW, 0, 0));
    cr_assert(decodes(foreign, HTH_OBJECT_FOREIGN, 0, 0));
    cr_assert(decodes(foreign, HTH_OBJECT_FOREIGN, HTH_OWNER_NONE, 0));
    cr_assert(not(decodes(foreign, HTH_OBJECT_FOREIGN, 1, 0)));
    cr_assert(not(decodes(own, HTH_OBJECT_FOREIGN, 0, 0)));
    cr_assert(not(decodes(foreign, HTH_OBJECT_RAW, 0, 0)));
    cr_assert(not(decodes(own, HTH_OBJECT_RAW, HTH_OWNER_NONE, 0)));
    cr_assert(decodes(foreign, HTH_OBJECT_FOREIGN, HTH_OWNER_NONE, 1));
    cr_assert(not(decodes(foreign, HTH_OBJECT_FOREIGN, HTH_OWNER_NONE, 2)));
    cr_assert(not(decodes(foreign, HTH_OBJECT_FOREIGN, 0, 1))); /* it is its rank's */
    cr_assert(not(decodes(own, HTH_OBJECT_RAW, 0, 1)));
    cr_assert(not(hth_save_foreign(own)));
    cr_assert(not(hth_save_foreign((struct hth_save_id){ 1, 0, 7, 1 })));
}

Test(foreign, a_file_that_was_not_looked_at_is_not_told_as_here)
{
    struct hth_held good = { .object = { .id = 2 }, .state = HTH_HELD_SEALED, .verified = 1 };
    struct hth_held unseen = {
        .next = &good, .object = { .id = 1 }, .state = HTH_HELD_SEALED, .verified = 0
    };
    struct hth_held_save save = { .id = hth_save_of_foreign(7), .held = &unseen };
    struct hth_inventory inv = { .saves = 1, .save = calloc(1, sizeof(*inv.save)) };

    must(foreign_see(&save, inv.save));
    cr_assert(eq(u32, inv.save->objects, 1));
    cr_assert(eq(u64, inv.save->object[0].id, 2));
    hth_inventory_fini(&inv);
}
