/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pulls that the network card carries out: no question, no answer, no work of the owner's. A read
 * that a card refuses breaks the connection.
 */
#include "ucx.h"

static void get_ended(struct hth_ucx_pull *p, ucs_status_t status)
{
    p->judged = 1; /* with code 0: the card has judged */
    hth_ucx_key_put(p->key);
    hth_ucx_pull_received(p, status, p->len);
}

static void get_on_ended(void *request, ucs_status_t status, void *arg)
{
    ucp_request_free(request);
    get_ended(arg, status);
}

void hth_ucx_get(struct hth_ucx_conn *c, struct hth_ucx_pull *p, const struct hth_ucx_desc *desc,
        uint64_t roff)
{
    struct hth_ucx_key *key = hth_ucx_key_get(c, desc);
    ucp_request_param_t param = { 0 };
    ucs_status_ptr_t request;

    if (!key || roff > desc->len || p->len > desc->len - roff || !p->len) {
        hth_ucx_pull_complete(p, key && !p->len && roff <= desc->len ? 0 : HEARTH_EDENIED);
        return;
    }
    param.op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMH;
    param.memh = p->region->memh;
    param.cb.send = get_on_ended;
    param.user_data = p;
    p->key = key;
    c->receiving++;
    request = ucp_get_nbx(c->ep, p->dst, p->len, desc->at + roff, hth_ucx_key_use(key), &param);
    if (!UCS_PTR_IS_PTR(request))
        get_ended(p, UCS_PTR_STATUS(request));
}
