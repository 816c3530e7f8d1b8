# SPDX-License-Identifier: Apache-2.0
"""A Lightning training under torchrun, each rank on a node of its own; writes its losses.

    lightning_work.py [rank-0] FOLDER STEPS DIE_AT

Rank 1 ends itself with SIGKILL after step DIE_AT. rank-0: Lightning's own checkpoints are in memory,
of rank 0 alone.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

rank = os.environ["RANK"]
alone = sys.argv[1] == "rank-0"
folder, steps, die_at = sys.argv[-3], int(sys.argv[-2]), int(sys.argv[-1])
os.makedirs(f"{folder}/node{rank}", exist_ok=True)
os.environ.update(HEARTH_NODE=f"node{rank}", HEARTH_TRANSPORT="ofi", GLOO_SOCKET_IFNAME="lo",
                  HEARTH_HEARTBEAT_MS="300", HEARTH_DEAD_MS="5000")

import torch  # noqa: E402
from lightning.pytorch import LightningModule, Trainer  # noqa: E402
from lightning.pytorch.callbacks import Callback, ModelCheckpoint  # noqa: E402

import hearth.torch as ht  # noqa: E402
from hearth.lightning import HearthCheckpoint, HearthCheckpointIO, newest  # noqa: E402

base = f"{folder}/node{rank}/job"


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        seed = torch.Generator().manual_seed(1000 * self.global_step + int(rank))
        x = torch.randn(4, 8, generator=seed)
        loss = (self.layer(x) - x.sum(1, keepdim=True)).square().mean()
        with open(f"{folder}/losses.{rank}", "a", encoding="utf-8") as file:
            file.write(f"{self.global_step} {loss.item().hex()}\n")
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3),
                              "interval": "step"}]


class Die(Callback):
    """Once, in the middle of a training, and when a step is protected."""

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if not alone and trainer.global_step == die_at and rank == "1":
            saver.wait()
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if alone and trainer.global_step == die_at and rank == "1":
            os.kill(os.getpid(), signal.SIGKILL)


if alone:
    memory: Callback = ModelCheckpoint(dirpath=base, every_n_train_steps=2, save_top_k=-1)
else:
    memory = HearthCheckpoint(base, every_n_train_steps=2, on_error="raise")
    saver = memory._saver
path = newest(base, f"{folder}/storage")
print(f"rank {rank} goes on from {path}", flush=True)
trainer = Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_steps=steps, max_epochs=100, logger=False,
    enable_progress_bar=False, enable_model_summary=False, plugins=[HearthCheckpointIO(base)],
    callbacks=[memory, Die(), ModelCheckpoint(dirpath=f"{folder}/storage",
                                             every_n_train_steps=5, save_top_k=-1)])
trainer.fit(Model(), torch.utils.data.DataLoader(torch.zeros(20, 1), 2, num_workers=0),
            ckpt_path=path)
ht.leave(base, keep=False)
