/* SPDX-License-Identifier: Apache-2.0 */
/* Notes taken while UCX has the thread: what there is to do when it has returned, in order. */
#include "ucx.h"

void hth_ucx_note(struct hth_ucx *t, struct hth_ucx_event *event, enum hth_ucx_kind kind)
{
    event->kind = kind;
    event->next = NULL;
    *t->noted_end = event;
    t->noted_end = &event->next;
}

struct hth_ucx_event *hth_ucx_notes_take(struct hth_ucx *t)
{
    struct hth_ucx_event *first = t->noted;

    t->noted = NULL;
    t->noted_end = &t->noted;
    return first;
}
