/* SPDX-License-Identifier: Apache-2.0 */
/* The rights of a connection: for which rank it speaks, and which of that rank's objects it may
 * use. Processes beside the ranks send packet by packet to an engine in virtual time. */
#include "packets.h"

#include "replication/held/holdings.h"
#include <stdlib.h>
#include <string.h>

enum {
    MINE = 99990,
    OTHER,
    LATE
}; /* clients: helpers of ranks 0 and 1, and one that comes later */

static struct hth_local_attach hello(uint32_t rank, uint32_t helper)
{
    return (struct hth_local_attach){ .version = hth_version_written(HTH_FORMAT_LOCAL),
        .rank = rank,
        .world = 4,
        .pid = 4711,
        .helper = helper,
        .job = "sim" };
}

static int attach(uint32_t client, struct hth_local_attach m)
{
    return ask(client, &m, sizeof(m), HTH_LOCAL_ATTACH, 0, HTH_LOCAL_ATTACHED);
}

/* A job that saves; ranks 0 and 1 are on its first node. */
static void start(void)
{
    saving_open(&w, 2, 1);
    node = world_node(&w, 0);
    must(attach(MINE, hello(0, 1)));
    must(attach(OTHER, hello(1, 1)));
}

TestSuite(rank, .init = start, .fini = end);

/* The struct ends with all addresses of the engine: the field has come with version 15. */
Test(rank, a_library_of_version_14_gets_the_answer_it_knows)
{
    struct hth_local_attach m = hello(2, 1);

    m.version = 14;
    must(attach(LATE, m));
    cr_expect(eq(sz, heard.head.length, offsetof(struct hth_local_attached, bind)));
    m.version = 15;
    must(attach(LATE + 1, m));
    cr_expect(eq(sz, heard.head.length, sizeof(struct hth_local_attached)));
}

static int begin(uint32_t client, uint64_t token, struct hth_local_lent *out)
{
    struct hth_local_begin m = { .step = UINT64_MAX, .bytes = 3 * HTH_BLOCK, .name = "object" };
    int rc = ask(client, &m, sizeof(m), HTH_LOCAL_BEGIN, token, HTH_LOCAL_LENT);

    if (!rc)
        *out = heard.lent;
    return rc;
}

/* Every rank of the world has long saved less. */
static int set_step(uint32_t client, uint64_t token)
{
    struct hth_local_set_step m = { .step = 100000 };

    return ask(client, &m, sizeof(m), HTH_LOCAL_SET_STEP, token, HTH_LOCAL_SAVE_ID);
}

static int seal(uint32_t client, const struct hth_local_lent *lent)
{
    struct hth_local_seal m = {
        .slot = lent->slot, .generation = lent->generation, .data_len = 8, .items_len = 0
    };

    return ask(client, &m, sizeof(m), HTH_LOCAL_SEAL, lent->head.token, HTH_LOCAL_OK);
}

static int common(uint32_t client, uint64_t token)
{
    struct hth_local_common m = { .name = "common" };

    return ask(client, &m, sizeof(m), HTH_LOCAL_COMMON, token, HTH_LOCAL_OK);
}

static int give(uint32_t client, uint64_t token)
{
    struct hth_local_give m = { .written = { .room = 100 } };

    return ask(client, &m, sizeof(m), HTH_LOCAL_GIVE, token, HTH_LOCAL_GIVEN);
}

static int follow(uint32_t client, struct hth_local_save save)
{
    struct hth_local_follow m = { .save = save };

    return ask(client, &m, sizeof(m), HTH_LOCAL_FOLLOW, 77, HTH_LOCAL_OK);
}

/* ---- the packet itself ----------------------------------------------------------------------- */

Test(rank, a_name_that_does_not_end_in_its_field_is_no_request)
{
    union {
        struct hth_local_head head;
        struct hth_local_attach attach;
        struct hth_local_begin begin;
        struct hth_local_common common;
        struct hth_local_meet meet;
        struct {
            struct hth_local_recover fixed;
            char name[2][HTH_COMMON_NAME];
        } recover;
    } m;
    static const struct {
        uint32_t type, len;
        size_t at, bytes;
    } fields[] = {
        { HTH_LOCAL_ATTACH, sizeof(m.attach), offsetof(struct hth_local_attach, job),
                sizeof(m.attach.job) },
        { HTH_LOCAL_BEGIN, sizeof(m.begin), offsetof(struct hth_local_begin, name),
                sizeof(m.begin.name) },
        { HTH_LOCAL_COMMON, sizeof(m.common), offsetof(struct hth_local_common, name),
                sizeof(m.common.name) },
        { HTH_LOCAL_COMMON_GET, sizeof(m.common), offsetof(struct hth_local_common, name),
                sizeof(m.common.name) },
        { HTH_LOCAL_MEET, sizeof(m.meet), offsetof(struct hth_local_meet, place.host),
                sizeof(m.meet.place.host) },
        { HTH_LOCAL_RECOVER, sizeof(m.recover), sizeof(m.recover.fixed) + HTH_COMMON_NAME,
                HTH_COMMON_NAME },
    };

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        memset(&m, 0, sizeof(m));
        if (fields[i].type == HTH_LOCAL_ATTACH)
            m.attach = hello(3, 1);
        else if (fields[i].type == HTH_LOCAL_RECOVER)
            m.recover.fixed.count = 2;
        memset((char *)&m + fields[i].at, 'a', fields[i].bytes);
        cr_assert(eq(int, ask(LATE, &m, fields[i].len, fields[i].type, 0, 0), HEARTH_EPROTO),
                "field %zu", i);
        cr_assert(ne(ptr, strstr(heard.error.text, "does not end"), NULL), "%s", heard.error.text);
    }
}

/* In memory of just that size, zeros but for the head. 1: its length or type is refused. */
static int is_refused(uint32_t type, size_t len)
{
    unsigned char *m = calloc(1, len);

    cr_assert(ne(ptr, m, NULL));
    heard.error.text[0] = '\0';
    ask(LATE, m, (uint32_t)len, type, 0, 0);
    free(m);
    return strstr(heard.error.text, "unknown type or length") != NULL;
}

Test(rank, each_request_has_the_length_of_its_type_and_no_other)
{
    static const size_t bytes[256] = {
        [HTH_LOCAL_ATTACH] = sizeof(struct hth_local_attach),
        [HTH_LOCAL_JOIN] = sizeof(struct hth_local_join),
        [HTH_LOCAL_RECOVER] = sizeof(struct hth_local_recover),
        [HTH_LOCAL_BEGIN] = sizeof(struct hth_local_begin),
        [HTH_LOCAL_SET_STEP] = sizeof(struct hth_local_set_step),
        [HTH_LOCAL_SEAL] = sizeof(struct hth_local_seal),
        [HTH_LOCAL_WRITTEN] = sizeof(struct hth_local_written_chunks),
        [HTH_LOCAL_COMMON] = sizeof(struct hth_local_common),
        [HTH_LOCAL_COMMIT] = sizeof(struct hth_local_head),
        [HTH_LOCAL_ABORT] = sizeof(struct hth_local_head),
        [HTH_LOCAL_CANCEL] = sizeof(struct hth_local_head),
        [HTH_LOCAL_FORGET] = sizeof(struct hth_local_head),
        [HTH_LOCAL_FOLLOW] = sizeof(struct hth_local_follow),
        [HTH_LOCAL_MANIFEST] = sizeof(struct hth_local_map),
        [HTH_LOCAL_MAP] = sizeof(struct hth_local_map),
        [HTH_LOCAL_UNMAP] = sizeof(struct hth_local_unmap),
        [HTH_LOCAL_RANGE] = sizeof(struct hth_local_map),
        [HTH_LOCAL_COMMON_GET] = sizeof(struct hth_local_common),
        [HTH_LOCAL_STATUS] = sizeof(struct hth_local_head),
        [HTH_LOCAL_METRICS] = sizeof(struct hth_local_head),
        [HTH_LOCAL_UPGRADE] = sizeof(struct hth_local_head),
        [HTH_LOCAL_CLOSE] = sizeof(struct hth_local_close),
        [HTH_LOCAL_FIND] = sizeof(struct hth_local_find),
        [HTH_LOCAL_GIVE] = sizeof(struct hth_local_give),
        [HTH_LOCAL_TAKE] = sizeof(struct hth_local_take),
        [HTH_LOCAL_REGAIN] = sizeof(struct hth_local_regain),
        [HTH_LOCAL_REFIT] = sizeof(struct hth_local_refit),
        [HTH_LOCAL_MEET] = sizeof(struct hth_local_meet),
        [HTH_LOCAL_WISH] = sizeof(struct hth_local_wish),
        [HTH_LOCAL_KEPT] = sizeof(struct hth_local_head),
        [HTH_LOCAL_BAD] = sizeof(struct hth_local_bad),
    };

    for (uint32_t type = 0; type < 256; type++) {
        size_t len = bytes[type];

        if (!len) {
            cr_assert(eq(int, is_refused(type, sizeof(struct hth_local_head)), 1), "type %u", type);
            cr_assert(eq(int, is_refused(type, 4096), 1), "type %u", type);
            continue;
        }
        if (len > sizeof(struct hth_local_head))
            cr_assert(eq(int, is_refused(type, len - 1), 1), "type %u, a byte less", type);
        if (type != HTH_LOCAL_ATTACH)
            cr_assert(eq(int, is_refused(type, len + 1), 1), "type %u, a byte more", type);
        if (type != HTH_LOCAL_ATTACH)
            cr_assert(
                    eq(int, is_refused(type, HTH_LOCAL_MAX), 1), "type %u, all there may be", type);
        cr_assert(zero(int, is_refused(type, len)), "type %u", type);
    }
}

Test(rank, a_request_that_says_another_length_than_it_has_is_refused)
{
    struct hth_local_head m = { sizeof(m), HTH_LOCAL_STATUS, ++request, 0 };

    for (int more = -1; more < 2; more += 2) {
        m.length = (uint32_t)((int)sizeof(m) + more);
        cr_assert(eq(int, ask_as_is(LATE, &m, sizeof(m)), 1));
        cr_assert(eq(u32, heard.head.type, HTH_LOCAL_ERROR), "%d", more);
        cr_assert(eq(int, heard.error.code, HEARTH_EPROTO));
    }
}

Test(rank, a_later_version_says_more_in_attach_and_is_refused_by_its_number)
{
    struct {
        struct hth_local_attach fixed;
        char more[64];
    } m = { .fixed = hello(3, 1) };

    m.fixed.version++;
    cr_assert(lt(int, ask(LATE, &m, sizeof(m), HTH_LOCAL_ATTACH, 0, HTH_LOCAL_ATTACHED), 0));
    cr_assert(ne(ptr, strstr(heard.error.text, "version"), NULL), "%s", heard.error.text);
    cr_assert(eq(ptr, strstr(heard.error.text, "unknown type"), NULL), "%s", heard.error.text);
}

Test(rank, recover_brings_as_many_names_as_it_says)
{
    struct {
        struct hth_local_recover fixed;
        char name[33][HTH_COMMON_NAME];
    } m = { .fixed = { .count = 0 } };
    static const uint32_t wrong[][2] = { { 1, 0 }, { 0, 1 }, { 33, 33 }, { UINT32_MAX, 1 } };

    for (size_t i = 0; i < 4; i++) {
        m.fixed.count = wrong[i][0];
        cr_assert(eq(int,
                          ask(MINE, &m, (uint32_t)(sizeof(m.fixed) + wrong[i][1] * HTH_COMMON_NAME),
                                  HTH_LOCAL_RECOVER, 0, 0),
                          HEARTH_EPROTO),
                "row %zu", i);
    }
}

/* ---- who speaks ------------------------------------------------------------------------------ */

Test(rank, a_second_process_of_a_rank_comes_as_its_helper_or_after_it)
{
    must_fail(attach(LATE, hello(0, 0)), HEARTH_EEXIST);
    cr_assert(ne(ptr, strstr(heard.error.text, "as its helper"), NULL), "%s", heard.error.text);
    must(attach(LATE, hello(0, 1)));
    hth_node_client_gone(node, LATE);
    hth_node_client_gone(node, w.rank[0].client); /* the first one dies */
    must(attach(LATE, hello(0, 0)));
    must_fail(attach(LATE + 1, hello(0, 0)), HEARTH_EEXIST);
    cr_assert(ne(ptr, strstr(heard.error.text, "4711"), NULL), "%s", heard.error.text);
}

Test(rank, a_connection_stays_what_it_said_it_is)
{
    struct hth_local_join join = { .world = 4, .rank = 3 };

    must_fail(attach(MINE, hello(1, 1)), HEARTH_ESTATE);
    must_fail(attach(LATE, hello(4, 1)), HEARTH_EINVAL);
    must_fail(ask(MINE, &join, sizeof(join), HTH_LOCAL_JOIN, 0, 0), HEARTH_ESTATE);
    must(attach(LATE, hello(2, 0)));
    must_fail(ask(LATE, &join, sizeof(join), HTH_LOCAL_JOIN, 0, 0), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(heard.error.text, "rank 2 of 4 joins as rank 3 of 4"), NULL), "%s",
            heard.error.text);
}

Test(rank, rank_and_engine_say_the_same_of_their_network)
{
    struct hth_local_attach m = hello(2, 0);

    m.flags = HTH_LOCAL_TRUSTED;
    must_fail(attach(LATE, m), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(heard.error.text, "network = hostile, and rank 2 has trusted"), NULL),
            "%s", heard.error.text);
}

Test(rank, rank_and_engine_say_the_same_of_integrity)
{
    struct hth_local_attach m = hello(2, 0);

    m.flags = HTH_LOCAL_STRONG;
    must_fail(attach(LATE, m), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(heard.error.text, "integrity = crc32c, and rank 2 has strong"), NULL),
            "%s", heard.error.text);
}

Test(rank, a_host_name_that_does_not_end_is_cut)
{
    struct {
        struct hth_local_attach fixed;
        char host[200];
    } m = { .fixed = hello(2, 0) };

    memset(m.host, 'h', sizeof(m.host));
    must(ask(LATE, &m, sizeof(m), HTH_LOCAL_ATTACH, 0, HTH_LOCAL_ATTACHED));
}

/* The helper receives the result of its rank's recovery, and starts none. */
Test(rank, a_helper_does_not_recover_before_its_rank)
{
    struct hth_local_recover m = { .count = 0 };
    struct hth_local_attached got = { .epoch = 0 };
    struct world_opts o = w.opts;

    must(ask(MINE, &m, sizeof(m), HTH_LOCAL_RECOVER, 0, HTH_LOCAL_RECOVERED));
    end();
    memset(&w, 0, sizeof(w));
    world_open(&w, &o);
    for (uint32_t client = LATE; !got.epoch; client++) { /* until the node has joined */
        world_advance(&w, w.now_ms + 1);
        node = world_node(&w, 0);
        if (node && !attach(client, hello(0, 1)))
            memcpy(&got, &heard, sizeof(got));
        if (got.epoch)
            must_fail(ask(client, &m, sizeof(m), HTH_LOCAL_RECOVER, 0, 0), HEARTH_ESTATE);
    }
    cr_assert(zero(u32, got.recovered));
    cr_assert(
            ne(ptr, strstr(heard.error.text, "before its rank has"), NULL), "%s", heard.error.text);
}

/* By a rank that gave up waiting for the answer; a rank that has counted on since means another
 * save. */
Test(rank, a_step_that_is_set_again_is_the_same_save)
{
    struct hth_local_set_step later = { .step = 100001 }, more = { .step = 100000 };
    struct hth_local_save first, again;
    struct hth_local_lent lent;

    must(begin(MINE, 0, &lent));
    must(set_step(MINE, lent.head.token));
    first = heard.save_id.save;
    must(set_step(MINE, lent.head.token));
    again = heard.save_id.save;
    cr_assert(zero(int, memcmp(&first, &again, sizeof(first))));
    more.attempt = first.attempt + 1;
    must_fail(ask(MINE, &later, sizeof(later), HTH_LOCAL_SET_STEP, lent.head.token, 0),
            HEARTH_ESTATE);
    must_fail(
            ask(MINE, &more, sizeof(more), HTH_LOCAL_SET_STEP, lent.head.token, 0), HEARTH_ESTATE);
    cr_assert(
            ne(ptr, strstr(heard.error.text, "it is step 100000 "), NULL), "%s", heard.error.text);
}

/* ---- whose it is ----------------------------------------------------------------------------- */

/* By another rank, and by another process of the same rank. */
Test(rank, nobody_touches_a_save_of_another_connection)
{
    struct hth_local_lent lent, none;
    uint64_t token;

    must(attach(LATE, hello(0, 1)));
    must(begin(MINE, 0, &lent));
    token = lent.head.token;
    must(set_step(MINE, token));
    for (uint32_t who = OTHER; who <= LATE; who++) {
        must_fail(begin(who, token, &none), HEARTH_ESTATE);
        must_fail(set_step(who, token), HEARTH_ESTATE);
        must_fail(seal(who, &lent), HEARTH_ESTATE);
        must_fail(common(who, token), HEARTH_ESTATE);
        must_fail(say(who, HTH_LOCAL_COMMIT, token, HTH_LOCAL_SAVE_ID), HEARTH_ESTATE);
        must_fail(give(who, token), HEARTH_ESTATE);
        must(say(who, HTH_LOCAL_ABORT, token, HTH_LOCAL_OK)); /* done, but nothing was */
        must(say(who, HTH_LOCAL_CANCEL, token, HTH_LOCAL_OK));
    }
    cr_assert(ne(ptr, hth_node_lent(node, lent.slot), NULL), "it was taken away");
    must(common(MINE, token));
    must(say(MINE, HTH_LOCAL_COMMIT, token, HTH_LOCAL_SAVE_ID));
}

Test(rank, what_a_rank_has_given_no_other_one_takes)
{
    struct hth_local_lent lent;
    struct hth_local_take take = { .secret = { 0 } };

    must(begin(MINE, 0, &lent));
    must(give(MINE, lent.head.token));
    memcpy(take.secret, heard.given.secret, sizeof(take.secret));
    must_fail(ask(OTHER, &take, sizeof(take), HTH_LOCAL_TAKE, lent.head.token, HTH_LOCAL_TAKEN),
            HEARTH_ENOENT);
    must(ask(MINE, &take, sizeof(take), HTH_LOCAL_TAKE, lent.head.token, HTH_LOCAL_TAKEN));
}

Test(rank, a_slot_is_sealed_by_the_save_that_was_lent_it)
{
    struct hth_local_lent mine, theirs, mixed;

    must(begin(MINE, 0, &mine));
    must(begin(OTHER, 0, &theirs));
    must(set_step(MINE, mine.head.token));
    mixed = theirs;
    mixed.head.token = mine.head.token;
    must_fail(seal(MINE, &mixed), HEARTH_EINVAL);
    cr_assert(ne(ptr, hth_node_lent(node, theirs.slot), NULL));
}

/* A seal is refused if it is for an older use of the slot, or for more bytes than the slot has. */
Test(rank, a_slot_is_sealed_in_the_use_and_with_the_bytes_it_was_lent_for)
{
    struct hth_local_lent lent, wrong;
    struct hth_local_seal m;

    must(begin(MINE, 0, &lent));
    must(set_step(MINE, lent.head.token));
    wrong = lent;
    wrong.generation--;
    must_fail(seal(MINE, &wrong), HEARTH_EINVAL);
    wrong = lent;
    wrong.slot++;
    must_fail(seal(MINE, &wrong), HEARTH_EINVAL);
    for (int i = 0; i < 3; i++) {
        m = (struct hth_local_seal){ .slot = lent.slot, .generation = lent.generation };
        m.data_len = i == 1 ? 0 : lent.capacity - HTH_BLOCK + (i == 0); /* no room for the table */
        m.items_len = i == 1 ? lent.capacity : 0;
        must_fail(ask(MINE, &m, sizeof(m), HTH_LOCAL_SEAL, lent.head.token, HTH_LOCAL_OK),
                HEARTH_EINVAL);
    }
    cr_assert(ne(ptr, hth_node_lent(node, lent.slot), NULL));
}

Test(rank, what_is_committed_does_not_grow)
{
    struct hth_local_lent lent, none;
    uint64_t token;

    must(begin(MINE, 0, &lent));
    token = lent.head.token;
    must(set_step(MINE, token));
    must(say(MINE, HTH_LOCAL_COMMIT, token, HTH_LOCAL_SAVE_ID));
    must_fail(begin(MINE, token, &none), HEARTH_ESTATE);
    must_fail(common(MINE, token), HEARTH_ESTATE);
    must_fail(seal(MINE, &lent), HEARTH_ESTATE);
    must_fail(say(MINE, HTH_LOCAL_COMMIT, token, HTH_LOCAL_SAVE_ID), HEARTH_ESTATE);
}

Test(rank, a_save_in_somebodys_hands_is_not_ended_by_who_asks_about_it)
{
    struct hth_local_save save, old;
    struct hth_local_lent lent;

    must(attach(LATE, hello(0, 1)));
    must(begin(MINE, 0, &lent));
    must(set_step(MINE, lent.head.token));
    save = heard.save_id.save;
    must(follow(LATE, save));
    must(follow(MINE, save));
    old = save;
    old.epoch--;
    must_fail(follow(LATE, old), HEARTH_EUNKNOWN);
    world_advance(&w, w.now_ms + 50);
    must(common(MINE, lent.head.token)); /* its save goes on */
    must(say(MINE, HTH_LOCAL_COMMIT, lent.head.token, HTH_LOCAL_SAVE_ID));
    must(follow(LATE, save)); /* to see what becomes of it */
    world_advance(&w, w.now_ms + 50);
    for (const struct letter *l = w.letters; l; l = l->next)
        if (l->client == LATE &&
                ((const struct hth_local_head *)(const void *)l->bytes)->type == HTH_LOCAL_EVENT)
            cr_assert(zero(int, ((const struct hth_local_event *)(const void *)l->bytes)->code));
}

Test(rank, a_lease_is_given_back_by_who_has_it)
{
    struct hth_held_save *s = hth_holdings_find(hth_node_ctx(node), w.newest.id);
    struct hth_local_map map = { .save = hth_local_save_of(w.newest.id) };
    struct hth_local_unmap unmap;
    struct hth_local_mapped got;
    const struct hth_held *h;
    uint32_t before;

    cr_assert(ne(ptr, s, NULL));
    for (h = s->held; h->state != HTH_HELD_SEALED || !h->slot || !h->verified; h = h->next)
        continue;
    map.object = h->object.id;
    before = h->slot->leases;
    must(ask(MINE, &map, sizeof(map), HTH_LOCAL_MAP, 0, HTH_LOCAL_MAPPED));
    memcpy(&got, &heard, sizeof(got));
    unmap.lease = got.lease;
    must(ask(OTHER, &unmap, sizeof(unmap), HTH_LOCAL_UNMAP, 0, HTH_LOCAL_OK));
    cr_assert(eq(u32, h->slot->leases, before + 1), "another's lease was ended");
    must(ask(MINE, &unmap, sizeof(unmap), HTH_LOCAL_UNMAP, 0, HTH_LOCAL_OK));
    cr_assert(eq(u32, h->slot->leases, before));
}
