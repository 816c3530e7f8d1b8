/* SPDX-License-Identifier: Apache-2.0 */
/* The list of connections. Other things that belong to a connection are in the lists of the
 * files that gave them. */
#include "client.h"

#include "node_state.h"

#include <stdlib.h>

struct client *client_find(struct hth_node *n, uint32_t id)
{
    struct client *c = n->clients;

    while (c && c->id != id)
        c = c->next;
    return c;
}

struct client *client_get(struct hth_node *n, uint32_t id)
{
    struct client *c = client_find(n, id);

    if (c)
        return c;
    c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->id = id;
    c->next = n->clients;
    n->clients = c;
    return c;
}

void client_remove(struct hth_node *n, uint32_t id)
{
    struct client **at = &n->clients, *c;

    while (*at && (*at)->id != id)
        at = &(*at)->next;
    c = *at;
    if (!c)
        return;
    *at = c->next;
    free(c);
}

uint32_t client_count(const struct hth_node *n)
{
    uint32_t count = 0;

    for (const struct client *c = n->clients; c; c = c->next)
        count += c->attached != 0;
    return count;
}

void client_close(struct hth_node *n)
{
    while (n->clients)
        client_remove(n, n->clients->id);
}
