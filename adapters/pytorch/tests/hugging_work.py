# SPDX-License-Identifier: Apache-2.0
"""A training with Accelerate or Hugging Face's Trainer under torchrun, each rank on a node of its
own; writes its losses.

    hugging_work.py accelerate|fsdp|between|transformers|trainer-...|transformers-... FOLDER STEPS DIE_AT

fsdp, trainer-fsdp: model and optimizer are sharded (FSDP2); trainer-full: and whole on storage.
transformers-plateau: the schedule hangs on evaluations, and storage has the model alone.
transformers-full: rank 0 finds no room for its model in one save. between: rank 1 dies when the
model of DIE_AT is written and the optimizer is not. Accelerate makes FSDP on accelerators only.
Here a test makes it take the CPU for one; the rest is its own code.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

rank = os.environ["RANK"]
kind, folder, steps, die_at = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
os.makedirs(f"{folder}/node{rank}", exist_ok=True)
os.environ.update(HEARTH_NODE=f"node{rank}", HEARTH_MACHINE=f"node{rank}",
                  HEARTH_TRANSPORT="tcp", GLOO_SOCKET_IFNAME="lo",
                  HEARTH_HEARTBEAT_MS="300", HEARTH_DEAD_MS="5000", ACCELERATE_USE_CPU="true",
                  HF_HUB_OFFLINE="1")

import torch  # noqa: E402

import hearth_checkpoint.torch as ht  # noqa: E402

base, storage = f"{folder}/node{rank}/job", f"{folder}/storage"


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Linear(8, 1)
        self.more = torch.nn.Linear(8, 8)
        self.dropout = torch.nn.Dropout(0.2)  # its random state is saved as well

    def forward(self, x: torch.Tensor, labels: Any = None) -> dict[str, torch.Tensor]:
        wrong = self.layer(self.dropout(x + self.more(x))) - x.sum(1, keepdim=True)
        return {"loss": wrong.square().mean()}


rows = [{"x": torch.randn(8, generator=torch.Generator().manual_seed(i))} for i in range(40)]


def say(step: int, loss: Any) -> None:
    with open(f"{folder}/losses.{rank}", "a", encoding="utf-8") as file:
        file.write(f"{step} {float(loss).hex()}\n")


def die(step: int, memory: Any) -> None:
    if step == die_at and rank == "1":
        memory.wait()
        os.kill(os.getpid(), signal.SIGKILL)


def sharded(accelerator: Any = None) -> Any:
    from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin
    from accelerate.state import PartialState

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, cpu_ram_efficient_loading=False,
        state_dict_type="FULL_STATE_DICT" if kind == "trainer-full" else "SHARDED_STATE_DICT")
    accelerator = accelerator or Accelerator(cpu=True, fsdp_plugin=plugin)
    PartialState._shared_state["distributed_type"] = DistributedType.FSDP  # copied by each state
    accelerator.state.distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = plugin
    return accelerator


def die_between_parts() -> None:
    from hearth_checkpoint.torch import _recover

    real = _recover.async_save
    before: list[Any] = []

    def save(state: Any, *, checkpoint_id: str, **arguments: Any) -> Any:
        if rank == "1" and checkpoint_id.endswith(f"step-{die_at}_ckpt/optimizer_0"):
            before[-1].result(60)
            os.kill(os.getpid(), signal.SIGKILL)
        before.append(real(state, checkpoint_id=checkpoint_id, **arguments))
        return before[-1]

    _recover.async_save = save


def with_accelerate() -> None:
    from accelerate import Accelerator

    from hearth_checkpoint.accelerate import HearthState

    accelerator = Accelerator(cpu=True) if kind == "accelerate" else sharded()
    if kind == "between":
        die_between_parts()
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    memory = HearthState(accelerator, base, on_error="raise")
    first = memory.load(storage) or 0
    print(f"rank {rank} goes on from {first}", flush=True)
    for step in range(first + 1, steps + 1):
        at = (2 * step + int(rank)) % len(rows)
        loss = model(rows[at]["x"][None])["loss"]
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        say(step, loss)
        if step % 2 == 0:
            memory.save(step)
        if step == 5:
            accelerator.save_state(f"{storage}/step_{step}")
        die(step, memory)
    memory.close()


def with_transformers() -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from hearth_checkpoint.transformers import HearthCallback

    class Saying(Trainer):
        def training_step(self, *arguments: Any, **others: Any) -> torch.Tensor:
            loss = super().training_step(*arguments, **others)
            say(self.state.global_step + 1, loss)
            return loss

        def _save(self, output_dir: str | None = None, **others: Any) -> None:
            if kind == "transformers-full" and rank == "0" and str(output_dir).endswith("-6"):
                raise OSError("No space left on device")
            super()._save(output_dir, **others)

    class Die(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            die(state.global_step, memory._saver)

    more: dict[str, Any] = {}
    if kind in ("transformers-plateau", "transformers-full"):
        more = {"eval_strategy": "steps", "eval_steps": 4, "metric_for_best_model": "eval_loss",
                "greater_is_better": False, "save_only_model": True, "label_names": ["x"],
                "lr_scheduler_type": "reduce_lr_on_plateau",
                "lr_scheduler_kwargs": {"patience": 0, "factor": 0.5, "threshold": 1e3}}
    trainer = Saying(model=Model(), train_dataset=rows, eval_dataset=rows[:8], args=TrainingArguments(
        output_dir=storage, max_steps=steps, per_device_train_batch_size=2, use_cpu=True,
        save_steps=5, report_to=[], disable_tqdm=True, seed=1, learning_rate=0.05, **more))
    if kind.startswith("trainer"):
        sharded(trainer.accelerator)
        trainer.is_fsdp_enabled = True
    memory = HearthCallback(trainer, base, every_n_steps=2,
                            on_error="warn" if kind == "transformers-full" else "raise")
    trainer.add_callback(Die())
    found = memory.newest()
    step = int(found.rpartition("-")[2]) if found else 0
    print(f"rank {rank} goes on from {step}", flush=True)
    trainer.train(resume_from_checkpoint=found)
    with open(f"{folder}/end.{rank}", "w", encoding="utf-8") as file:
        file.write(f"{trainer.lr_scheduler.get_last_lr()} {trainer.state.best_metric} "
                   f"{[each['step'] for each in trainer.state.log_history if 'eval_loss' in each]}")
    print(f"rank {rank} has {ht.protection(base).failures} failed saves", flush=True)


with_transformers() if kind.startswith("tra") else with_accelerate()
ht.leave(base, keep=False)
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
