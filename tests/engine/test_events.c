/* SPDX-License-Identifier: Apache-2.0 */
/* The last lines of an engine's log: the ring by hand, and EVENTS. */
#include "reader.h"

#include "engine/state/events.h"

#include <jansson.h>

static struct events *events;
static struct hth_log ring;
static uint32_t passed; /* lines that the log itself received */

static uint64_t wall_ms(void *self)
{
    (void)self;
    return 4711;
}

static void pass(void *self, enum hearth_log_level level, const char *event, const char *text)
{
    (void)self, (void)level, (void)event, (void)text;
    passed++;
}

static void open_ring(void)
{
    static const struct hth_log log = { .emit = pass };
    const struct hth_clock clock = { .wall_ms = wall_ms };

    alarm(60);
    events = events_open(&clock);
    cr_assert(ne(ptr, events, NULL));
    ring = events_log(events, &log);
}

static void close_ring(void)
{
    events_close(events);
}

TestSuite(events, .init = open_ring, .fini = close_ring);

Test(events, the_257th_line_pushes_the_first_out_and_each_goes_on)
{
    struct event e;

    for (int i = 1; i <= 257; i++)
        hth_say(&ring, HEARTH_LOG_INFO, "line", "number %d", i);
    cr_expect(eq(u32, passed, 257));
    cr_expect(eq(u64, events_count(events), 257));
    cr_assert(eq(int, events_at(events, 0, &e), 1));
    cr_expect(zero(int, strcmp(e.text, "number 257")));
    cr_expect(eq(u64, e.wall_ms, 4711));
    cr_assert(eq(int, events_at(events, 255, &e), 1));
    cr_expect(zero(int, strcmp(e.text, "number 2")));
    cr_expect(zero(int, events_at(events, 256, &e)));
}

Test(events, lines_below_info_are_passed_on_alone)
{
    struct event e;

    hth_say(&ring, HEARTH_LOG_DEBUG, "line", "debug");
    hth_say(&ring, HEARTH_LOG_WARN, "line", "warn");
    cr_expect(eq(u32, passed, 2));
    cr_expect(eq(u64, events_count(events), 1));
    cr_assert(eq(int, events_at(events, 0, &e), 1));
    cr_expect(eq(int, e.level, HEARTH_LOG_WARN));
}

Test(events, a_long_line_is_cut)
{
    char text[1000];
    struct event e;

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    hth_say(&ring, HEARTH_LOG_INFO, text, "%s", text);
    cr_assert(eq(int, events_at(events, 0, &e), 1));
    cr_expect(eq(sz, strlen(e.text), sizeof(e.text) - 1));
    cr_expect(eq(sz, strlen(e.event), sizeof(e.event) - 1));
}

/* ---- EVENTS ---------------------------------------------------------------------------------- */

static json_t *page;

static void hear_page(struct world *world, const struct letter *l)
{
    hear(world, l);
    if (l->client == OURS && l->attached)
        page = json_loadb((const char *)l->bytes + l->len, l->attached, 0, NULL);
}

static void ask_events(uint32_t skip)
{
    struct hth_local_history m = { .skip = skip };

    json_decref(page);
    page = NULL;
    node = 1;
    w.stranger = hear_page;
    ask(&m, sizeof(m), HTH_LOCAL_EVENTS, HTH_LOCAL_BYTES);
    cr_assert(ne(ptr, page, NULL));
}

static void end_asked(void)
{
    json_decref(page);
    end();
}

TestSuite(events_asked, .init = start, .fini = end_asked);

Test(events_asked, the_newest_line_comes_first_and_pages_follow)
{
    struct hth_ctx *ctx = hth_node_ctx(world_node(&w, 1));
    const json_t *first;

    for (int i = 1; i <= 100; i++)
        hth_say(&ctx->log, HEARTH_LOG_WARN, "line", "\"%d\"", i);
    ask_events(0);
    cr_assert(eq(sz, json_array_size(json_object_get(page, "events")), HTH_EVENTS_PAGE));
    first = json_array_get(json_object_get(page, "events"), 0);
    cr_expect(zero(int, strcmp(json_string_value(json_object_get(first, "text")), "\"100\"")));
    cr_expect(zero(int, strcmp(json_string_value(json_object_get(first, "level")), "warn")));
    ask_events(HTH_EVENTS_PAGE);
    first = json_array_get(json_object_get(page, "events"), 0);
    cr_expect(zero(int, strcmp(json_string_value(json_object_get(first, "text")), "\"36\"")));
    ask_events(UINT32_MAX);
    cr_expect(zero(sz, json_array_size(json_object_get(page, "events"))));
}
