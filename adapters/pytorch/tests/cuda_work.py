# SPDX-License-Identifier: Apache-2.0
"""One of two ranks of test_cuda.py, both on one GPU: FSDP2 over NCCL, saved, gone on with, and done
again from what was saved."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ranks import keep_ports
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.fsdp import fully_shard

from hearth_checkpoint.torch import HearthReader, HearthWriter, async_save


def in_a_process(state: dict, **arguments: object) -> Any:
    return dcp.async_save(state, async_checkpointer_type=AsyncCheckpointerType.PROCESS,
                          **arguments)


SAVES = {3: async_save, 6: in_a_process, 9: dcp.save}  # by the step that each keeps


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(64, 257), nn.ReLU(), nn.Linear(257, 64)).cuda()
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters())


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    losses = []
    for step in steps:
        torch.manual_seed(100 * step + dist.get_rank())
        loss = model(torch.randn(32, 64, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def load(path: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    model, optimizer = build()
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments}
    dcp.load(state, checkpoint_id=path, storage_reader=HearthReader())
    set_state_dict(model, optimizer, model_state_dict=state["model"],
                   optim_state_dict=state["optimizer"])
    return model, optimizer


def main() -> None:
    keep_ports()
    dist.init_process_group("cpu:gloo,cuda:nccl", init_method=f"file://{sys.argv[1]}/store",
                            rank=int(os.environ["RANK"]), world_size=2)
    base = os.path.join(os.environ["HEARTH_ROOT"], os.environ["HEARTH_JOB"])
    model, optimizer = build()
    writer = HearthWriter(base)
    train(model, optimizer, range(1, 4))
    for step, save in SAVES.items():
        weights, moments = get_state_dict(model, optimizer)
        saved = save({"model": weights, "optimizer": moments},
                     checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=writer)
        control = train(model, optimizer, range(step + 1, step + 4))  # while it is being saved
        done = getattr(saved, "upload_completion", saved)
        if hasattr(done, "result"):  # dcp.save() has ended
            done.result(60)
        again = train(*load(f"{base}/step-{step}_ckpt"), range(step + 1, step + 4))
        print(f"from {step}: same {again == control}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
