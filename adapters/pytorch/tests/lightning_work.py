# SPDX-License-Identifier: Apache-2.0
"""A Lightning training under torchrun, each rank on a node of its own; writes its losses.

    lightning_work.py [ddp|rank-0|fsdp|model-parallel] FOLDER STEPS DIE_AT

Rank 1 ends itself with SIGKILL after step DIE_AT. rank-0: Lightning's own checkpoints are in
memory, of rank 0 alone. fsdp: FSDPStrategy. model-parallel: FSDP2. Lightning gives FSDP the number
of a GPU; here it gets the CPU instead. The rest is its own code.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

rank = os.environ["RANK"]
kind, folder, steps, die_at = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
alone = kind == "rank-0"
os.makedirs(f"{folder}/node{rank}", exist_ok=True)
os.environ.update(HEARTH_NODE=f"node{rank}", HEARTH_MACHINE=f"node{rank}",
                  HEARTH_TRANSPORT="tcp", GLOO_SOCKET_IFNAME="lo",
                  HEARTH_HEARTBEAT_MS="300", HEARTH_DEAD_MS="5000")

import torch  # noqa: E402
from lightning.pytorch import LightningModule, Trainer  # noqa: E402
from lightning.pytorch.callbacks import Callback, ModelCheckpoint  # noqa: E402

import hearth_checkpoint.torch as ht  # noqa: E402
from hearth_checkpoint.lightning import (  # noqa: E402
    HearthCheckpoint,
    HearthCheckpointIO,
    HearthFSDPStrategy,
    HearthModelParallelStrategy,
    newest,
)

base = f"{folder}/node{rank}/job"


def on_cpu() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    real: Any = FSDP.__init__

    def init(self: Any, *arguments: Any, device_id: Any = None, **named: Any) -> None:
        real(self, *arguments, device_id=torch.device("cpu"), **named)

    FSDP.__init__ = init  # type: ignore[method-assign]


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer: Any = torch.nn.Linear(8, 1)
        if kind not in ("ddp", "rank-0"):
            self.layer = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(),
                                             torch.nn.Linear(6, 1))

    def configure_model(self) -> None:
        if kind == "model-parallel":
            for part in (self.layer[0], self.layer):
                torch.distributed.fsdp.fully_shard(part, mesh=self.device_mesh["data_parallel"])

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

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == die_at and rank == "1":
            if not alone:
                memory._saver.wait()
            os.kill(os.getpid(), signal.SIGKILL)


class Count(Callback):
    """Has a state, of each batch that has ended."""

    count = 0

    def on_train_batch_end(self, *_: Any) -> None:
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


if alone:
    memory: Callback = ModelCheckpoint(dirpath=base, every_n_train_steps=2, save_top_k=-1)
else:
    memory = HearthCheckpoint(base, every_n_train_steps=2, on_error="raise")
strategy: Any = "ddp"
if kind == "fsdp":
    on_cpu()
    strategy = HearthFSDPStrategy(state_dict_type="sharded")
elif kind == "model-parallel":
    strategy = HearthModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
path = newest(base, f"{folder}/storage")
print(f"rank {rank} goes on from {path}", flush=True)
trainer = Trainer(
    accelerator="cpu", devices=2, strategy=strategy, max_steps=steps, max_epochs=100, logger=False,
    enable_progress_bar=False, enable_model_summary=False, plugins=[HearthCheckpointIO(base)],
    callbacks=[memory, Die(), count := Count(),
               ModelCheckpoint(dirpath=f"{folder}/storage", every_n_train_steps=5, save_top_k=-1),
               ModelCheckpoint(dirpath=f"{folder}/one", every_n_train_steps=4, save_top_k=1)])
trainer.fit(Model(), torch.utils.data.DataLoader(torch.zeros(20, 1), 2, num_workers=0),
            ckpt_path=path)
print(f"rank {rank} has counted {count.count}", flush=True)
ht.leave(base, keep=False)
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
