#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small GPT, trained with FSDP2 on 4 ranks of 2 nodes, that loses a node and goes on.

    python train_gpt.py --demo             everything below on this machine, with a verdict
    torchrun ... train_gpt.py --steps 60   one rank's part, as a user would write it

What concerns checkpoints is in `train()`: latest() and dcp.load() at the start, dcp.async_save() every few
steps. In the demo a "node" is a torchrun agent with its two ranks, its Hearth engine, and a folder of a
tmpfs as its memory; to lose it all of that is killed and removed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SAVE_EVERY, DISK_EVERY = 5, 50
NODES, RANKS_PER_NODE = 2, 2


# ---- one rank ------------------------------------------------------------------------------------


def text() -> bytes:
    """A real text to learn: the licence of this project."""
    for folder in HERE.parents:
        if (folder / "LICENSE").exists():
            return (folder / "LICENSE").read_bytes()
    raise SystemExit("train_gpt: no LICENSE above the examples folder, there is no text to learn")


def make_model(seed: int) -> Any:
    import torch
    from torch import nn
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(seed)
    width, heads, context, layers = 64, 4, 64, 1

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Embedding(256, width)
            self.place = nn.Embedding(context, width)
            self.blocks = nn.ModuleList(
                nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, batch_first=True,
                                           norm_first=True) for _ in range(layers))
            self.head = nn.Linear(width, 256)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            length = x.shape[1]
            mask = nn.Transformer.generate_square_subsequent_mask(length)
            h = self.token(x) + self.place(torch.arange(length))
            for block in self.blocks:
                h = block(h, src_mask=mask, is_causal=True)
            return self.head(h)

    model = GPT()
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def batch(data: Any, generator: Any) -> Any:
    import torch

    starts = torch.randint(0, len(data) - 65, (8,), generator=generator)
    return torch.stack([data[s:s + 65] for s in starts.tolist()]).long()


def weights_sha256(model: Any) -> str:
    """Of the whole model's weights, the same for every world size."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    whole = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    digest = hashlib.sha256()
    for name, tensor in sorted(whole.items()):
        digest.update(name.encode() + bytes(tensor.contiguous().view(-1).untyped_storage()))
    return digest.hexdigest()


def train(args: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    from hearth_checkpoint.torch import HearthReader, HearthWriter, group, latest

    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = make_model(seed=7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.frombuffer(bytearray(text()), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(100 + rank)
    torch.manual_seed(200 + rank)
    base = f"{os.environ['HEARTH_ROOT']}/{os.environ['HEARTH_JOB']}"

    def state(step: int) -> dict[str, Any]:
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments, "step": step,
                f"rng{rank}": {"torch": torch.get_rng_state(), "data": generator.get_state()}}

    first = 0
    path = latest(base)
    if path:
        found = state(0)
        if args.weights:  # another world size: random states of other ranks do not fit
            found = {"model": found["model"], "optimizer": found["optimizer"], "step": 0}
        dcp.load(found, checkpoint_id=path, storage_reader=HearthReader())
        set_state_dict(model, optimizer, model_state_dict=found["model"],
                       optim_state_dict=found["optimizer"])
        first = found["step"]
        if not args.weights:
            torch.set_rng_state(found[f"rng{rank}"]["torch"])
            generator.set_state(found[f"rng{rank}"]["data"])
    report = Reporter(args.report, rank)
    report.say(start=first, world=world)
    if args.weights:
        report.say(weights=weights_sha256(model), step=first)
        finish(dist, base)
        return

    writer = (PausedWriter if args.pause_in_save else HearthWriter)(base)
    future = None
    for step in range(first + 1, args.steps + 1):
        model.train()
        rows = batch(data, generator)
        logits = model(rows[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 256), rows[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        report.say(step=step, loss=loss.item().hex())
        if step % SAVE_EVERY == 0:
            if future is not None:
                report.say(protected=last, done=future.result(120) is not None)
            digest = weights_sha256(model)
            report.say(weights=digest, step=step)
            if args.pause_in_save == step and os.environ["HEARTH_NODE"] == "node1":
                writer.pause = args.report / "in-save"
            last = step
            future = dcp.async_save(state(step), checkpoint_id=f"{base}/step-{step}_ckpt",
                                    storage_writer=writer, process_group=group())
        if step % DISK_EVERY == 0:
            dcp.save(state(step), storage_writer=dcp.FileSystemWriter(args.report / f"disk-{step}"))
        if step == args.kill_at:
            if future is not None:
                report.say(protected=last, done=future.result(120) is not None)
                future = None
            dist.barrier()
            report.say(ready=step)
            if os.environ["HEARTH_NODE"] == "node1":
                time.sleep(60)  # until the demo kills it; the others are waiting for it
            dist.barrier()
            raise SystemExit("nobody killed us")
    if future is not None:
        report.say(protected=last, done=future.result(120) is not None)
    report.say(end=args.steps)
    finish(dist, base)


def finish(dist: Any, base: str) -> None:
    from hearth_checkpoint.torch import leave

    leave(base)
    dist.barrier()
    dist.destroy_process_group()


class Reporter:
    """Lines of JSON, one file a rank: what the demo compares."""

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = open(folder / f"rank{rank}.jsonl", "a", buffering=1)

    def say(self, **fields: Any) -> None:
        self._file.write(json.dumps(fields) + "\n")


def PausedWriter(base: str) -> Any:
    """A writer that stops in the middle of a save, after its objects were sealed, to be killed."""
    from hearth_checkpoint.torch import HearthWriter

    class Paused(HearthWriter):
        pause: Path | None = None

        def write_data(self, plan: Any, planner: Any) -> Any:
            future = super().write_data(plan, planner)
            if self.pause is not None:
                self.pause.touch()
                time.sleep(60)
            return future

    return Paused(base)


# ---- the demo ------------------------------------------------------------------------------------


class Demo:
    """Starts and kills nodes of one run; every process is a child of this one or named in a lock file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.report, self.memory = folder / name, folder / f"{name}-memory"
        self.agents: list[subprocess.Popen] = []
        self.place = socket.socket()

    def start(self, *arguments: str, ranks_per_node: int = RANKS_PER_NODE) -> None:
        """All agents, on a fresh port. A socket keeps it, which lets in the store that listens."""
        self.place = socket.socket()
        self.place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.place.bind(("", 0))
        port = self.place.getsockname()[1]
        self.agents = [self._agent(node, port, ranks_per_node, arguments) for node in range(NODES)]

    def _agent(self, node: int, port: int, ranks: int, arguments: tuple[str, ...]) -> Any:
        root = self.memory / f"node{node}"
        root.mkdir(parents=True, exist_ok=True)
        self.report.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ, "HEARTH_ROOT": str(root), "HEARTH_JOB": "gpt",
            "HEARTH_NODE": f"node{node}", "HEARTH_MACHINE": f"node{node}",
            "HEARTH_HEARTBEAT_MS": "300", "HEARTH_DEAD_MS": "3000",
            "HEARTH_ANY_ROOT": "1", "HEARTH_LINGER_S": "300", "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{HERE.parent}:{os.environ.get('PYTHONPATH', '')}"}
        log = open(self.report / f"node{node}.log", "ab")
        return subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(NODES),
             "--node-rank", str(node), "--nproc-per-node", str(ranks), "--master-addr",
             "127.0.0.1", "--master-port", str(port), "--max-restarts", "0", __file__,
             "--report", str(self.report), *arguments],
            env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            start_new_session=True)

    def wait(self, seconds: float = 120) -> list[int]:
        """Until all agents have ended; their exit codes."""
        until = time.monotonic() + seconds
        codes = []
        for agent in self.agents:
            try:
                codes.append(agent.wait(max(0.1, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                self.kill_all()
                raise SystemExit(f"train_gpt: a run did not end in {seconds:g} s; logs in {self.report}")
        return codes

    def wait_for(self, done: Any, what: str, seconds: float = 90) -> None:
        until = time.monotonic() + seconds
        while not done():
            if any(agent.poll() is not None for agent in self.agents) or time.monotonic() > until:
                self.kill_all()
                raise SystemExit(f"train_gpt: {what} did not happen; logs in {self.report}")
            time.sleep(0.05)

    def kill_node(self, node: int) -> None:
        """The agent, its ranks, its engine, and its memory: all of it at once."""
        victims = [self.agents[node].pid, *children(self.agents[node].pid), *self._engine(node)]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.agents[node].wait()
        shutil.rmtree(self.memory / f"node{node}", ignore_errors=True)

    def _engine(self, node: int) -> list[int]:
        lock = self.memory / f"node{node}" / "gpt" / ".hearth" / "lock"
        try:
            return [int(lock.read_text().split()[0])]
        except (OSError, ValueError, IndexError):
            return []

    def kill_all(self) -> None:
        for node, agent in enumerate(self.agents):
            if agent.poll() is None:
                self.kill_node(node)

    def end(self) -> None:
        """Engines linger for the next run; the demo has none."""
        for node in range(NODES):
            for pid in self._engine(node):
                try:
                    os.kill(pid, signal.SIGTERM)
                except ProcessLookupError:
                    pass

    def lines(self, rank: int) -> list[dict[str, Any]]:
        path = self.report / f"rank{rank}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def losses(self) -> dict[tuple[int, int], str]:
        """(rank, step) -> loss; of a step done twice the later one."""
        return {(rank, line["step"]): line["loss"] for rank in range(NODES * RANKS_PER_NODE)
                for line in self.lines(rank) if "loss" in line}

    def protected(self) -> int:
        return max((line["protected"] for line in self.lines(0) if line.get("done")), default=0)

    def starts(self) -> list[int]:
        return [line["start"] for line in self.lines(0) if "start" in line]

    def weights(self) -> dict[int, str]:
        return {line["step"]: line["weights"] for line in self.lines(0) if "weights" in line}


def children(pid: int) -> list[int]:
    """All processes below this one."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    out, left = [], [pid]
    while left:
        below = parents.get(left.pop(), [])
        out += below
        left += below
    return out


def lose_a_node(folder: Path, name: str, steps: int, control: dict, *, kill_at: int,
                in_save: bool) -> bool:
    """One run that loses node 1, is restarted, and must end as the control run did."""
    demo = Demo(folder, name)
    try:
        demo.start("--steps", str(steps), "--pause-in-save" if in_save else "--kill-at", str(kill_at))
        if in_save:
            demo.wait_for((demo.report / "in-save").exists, "a save to be in the middle of")
        else:
            demo.wait_for(lambda: any("ready" in line for line in demo.lines(0)), f"step {kill_at}")
        protected = demo.protected()
        demo.kill_node(1)
        demo.wait()
        demo.start("--steps", str(steps))
        codes = demo.wait()
        start = demo.starts()[-1]
        same = demo.losses() == control
        print(f"  node 1 lost {'in the middle of the save of' if in_save else 'after'} step {kill_at}; "
              f"newest protected step {protected}, resumed at step {start}")
        if codes != [0] * NODES or start == 0 or start < protected:
            print(f"  it did not go on as it must (exit {codes}); logs in {demo.report}")
            return False
        print(f"losses identical: {'yes' if same else 'no'}")
        return same
    finally:
        demo.kill_all()
        demo.end()


def demo(args: argparse.Namespace) -> int:
    folder = Path(tempfile.mkdtemp(prefix="hearth-gpt-", dir="/dev/shm"))
    try:
        print("train_gpt: a control run of 50 steps, 4 ranks on 2 nodes, nothing lost")
        control = Demo(folder, "control")
        try:
            control.start("--steps", "50")
            codes = control.wait()
            if codes != [0] * NODES:
                show_logs(folder)
                raise SystemExit(f"train_gpt: the control run failed ({codes})")
            losses, weights = control.losses(), control.weights()
            print("train_gpt: 2 ranks start from the 4 ranks' checkpoint")
            resharded = reshard(control, weights)
        finally:
            control.kill_all()
            control.end()
        print("train_gpt: the same, and a node is lost between two saves")
        between = lose_a_node(folder, "between", 50, losses, kill_at=37, in_save=False)
        print("train_gpt: the same, and a node is lost in mid-save")
        middle = lose_a_node(folder, "middle", 50, losses, kill_at=40, in_save=True)
        good = between and middle and resharded
        print("train_gpt: " + ("the job lost a machine twice and ended as if it had not." if good
                               else "it FAILED."))
        if not good:
            show_logs(folder)
        return 0 if good else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def show_logs(folder: Path) -> None:
    for log in sorted(folder.glob("*/node*.log")):
        print(f"--- {log}\n" + log.read_text(errors="replace")[-3000:])


def reshard(control: Demo, weights: dict[int, str]) -> bool:
    control.start("--weights", ranks_per_node=1)
    codes = control.wait()
    step = control.starts()[-1]
    found = [line for line in control.lines(0) if "weights" in line][-1]
    same = codes == [0] * NODES and step > 0 and found["weights"] == weights[step]
    print(f"  step {step}\nweights identical: {'yes' if same else 'no'}")
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demo", action="store_true", help="lose nodes on this machine, and compare")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--report", type=Path, default=Path("report"), help="folder of the losses")
    parser.add_argument("--weights", action="store_true", help="load, print the weights' digest, end")
    parser.add_argument("--kill-at", type=int, default=0, help="wait there to be killed")
    parser.add_argument("--pause-in-save", type=int, default=0, help="wait there in a save")
    args = parser.parse_args()
    if args.demo:
        return demo(args)
    train(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
