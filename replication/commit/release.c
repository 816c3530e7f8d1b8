/* SPDX-License-Identifier: Apache-2.0 */
/* First nobody may work with the save any more, then it goes. */
#include "release.h"

#include "replication/transfer/transfer.h"
#include "replication/tree/blob.h"

void hth_save_release(struct hth_ctx *ctx, struct hth_held_save *save)
{
    hth_transfer_forget(ctx, save->id);
    hth_blobs_forget(ctx, save->id);
    hth_holdings_free_save(ctx, save);
}
