#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training on 4 nodes that loses one after another, while the processes of the others go on.

    python hot_swap.py --demo              everything below on this machine, with a verdict
    python hot_swap.py --steps 60          one process's part, rank or spare, as a user would write it

`train()` is what a user writes. In the demo a "node" is one process, its Hearth engine, and a folder of a tmpfs
as its memory; to lose it all of that is killed and removed, in the middle of a step and of a save in turn.
A spare waits each time. Then the weights are compared with those of the same job without a loss.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NODES, SAVE_EVERY, CONTEXT = 4, 5, 16
PHASES = ("noticed", "down", "seated", "recovered", "up", "stepped")
PARTS = ("join", "inventory", "plan", "pull", "verify", "vote")  # of hearth_recover(), by its own word
SAID = {"noticed": "noticed by all survivors", "down": "process group torn down",
        "seated": "spare has its rank", "recovered": "recovered from memory",
        "up": "new process group", "stepped": "first step done by all"}


# ---- one process ---------------------------------------------------------------------------------


def text() -> bytes:
    """A real text to learn: the licence of this project."""
    for folder in HERE.parents:
        if (folder / "LICENSE").exists():
            return (folder / "LICENSE").read_bytes()
    raise SystemExit("hot_swap: no LICENSE above the examples folder, there is no text to learn")


def train(turn: Any, args: argparse.Namespace, report: Reporter) -> None:
    """Guesses the next letter. Each rank keeps its part of the weights and of Adam's moments."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch import nn
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    from hearth_checkpoint.torch import HearthReader, async_save, before_step

    rank, world = turn.rank, turn.world
    torch.manual_seed(7)
    model = nn.Sequential(nn.Embedding(256, 32), nn.Flatten(), nn.Linear(32 * CONTEXT, 512),
                          nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 256)).to(args.device)
    weights = parameters_to_vector(model.parameters()).detach()
    weights = nn.functional.pad(weights, (0, -len(weights) % world))
    part = weights.chunk(world)[rank].clone()
    first_moment, second_moment = torch.zeros_like(part), torch.zeros_like(part)
    data = torch.frombuffer(bytearray(text()), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(100 + rank)
    dropout = torch.cuda if args.device == "cuda" else torch
    torch.manual_seed(200 + rank)

    def state(step: int) -> dict[str, Any]:
        """All of it under a key of this rank's, so that it lies on this rank's node."""
        return {f"rank{rank}": {
            "weights": part, "first": first_moment, "second": second_moment, "step": step,
            "torch": dropout.get_rng_state(), "data": generator.get_state()}}

    def gather_weights() -> None:
        parts = list(weights.chunk(world))
        dist.all_gather(parts, part)  # into the weights themselves
        vector_to_parameters(weights, model.parameters())

    if turn.path:
        found = state(0)
        reader = HearthReader()
        dcp.load(found, checkpoint_id=turn.path, storage_reader=reader)
        report.brought = turn.found.info.pulled_bytes, reader.peer_bytes
        mine = found[f"rank{rank}"]
        assert mine["step"] == turn.step
        dropout.set_rng_state(mine["torch"])
        generator.set_state(mine["data"])
    gather_weights()

    writer, future = PausingWriter(turn.base, args, rank), None
    for step in range(turn.step + 1, args.steps + 1):
        starts = torch.randint(0, len(data) - CONTEXT, (32,), generator=generator).tolist()
        rows = torch.stack([data[s:s + CONTEXT + 1] for s in starts]).long().to(args.device)
        loss = nn.functional.cross_entropy(model(rows[:, :-1]), rows[:, -1])
        model.zero_grad()
        loss.backward()
        if pauses(args, rank, step, "step"):
            protected = future is not None and future.result(60) is not None
            pause(args, step, protected=last if protected else 0)
        gradient = parameters_to_vector([p.grad for p in model.parameters()])
        gradient = nn.functional.pad(gradient, (0, len(weights) - len(gradient)))
        dist.all_reduce(gradient)
        mean = gradient.chunk(world)[rank] / world
        before_step()  # what follows changes tensors that a save may still be copying
        first_moment.lerp_(mean, 0.1)
        second_moment.lerp_(mean * mean, 0.001)
        part -= 1e-3 * (first_moment / (1 - 0.9 ** step)
                        / ((second_moment / (1 - 0.999 ** step)).sqrt() + 1e-8))
        gather_weights()
        seen = loss.item()  # of a GPU: it has done all of the step by then
        if turn.lost.is_set():
            raise RuntimeError(f"step {step} is not to be believed: its collectives were ended")
        report.step(turn, step, seen)
        if step % SAVE_EVERY == 0:
            if future is not None and future.result(60) is not None:
                report.say(protected=last)
            writer.begin(step)
            last, future = step, async_save(
                state(step), checkpoint_id=f"{turn.base}/step-{step}_ckpt", storage_writer=writer,
                on_error="warn")
    if future is not None:
        future.result(60)
    report.say(end=step, rank=rank, weights=hashlib.sha256(weights.cpu().numpy()).hexdigest())


def PausingWriter(base: str, args: argparse.Namespace, rank: int) -> Any:
    """A writer that stops in the middle of a save, after its objects were sealed, to be killed."""
    from hearth_checkpoint.torch import HearthWriter

    class Pausing(HearthWriter):
        def begin(self, step: int) -> None:
            self._of = step

        def write_data(self, plan: Any, planner: Any) -> Any:
            future = super().write_data(plan, planner)
            if pauses(args, rank, self._of, "save"):
                pause(args, self._of)
            return future

    return Pausing(base, overlap=True)


def pauses(args: argparse.Namespace, rank: int, step: int, where: str) -> bool:
    """Whether it is here that this rank is to be lost, and it was not yet."""
    return f"{rank}:{step}:{where}" in args.lose and not (args.report / f"lost-{step}").exists()


def pause(args: argparse.Namespace, step: int, protected: int = 0) -> None:
    """The demo kills us."""
    mark = args.report / f"lost-{step}"
    mark.with_suffix(".new").write_text(json.dumps({"node": os.environ["HEARTH_NODE"],
                                                    "pid": os.getpid(), "protected": protected}))
    mark.with_suffix(".new").rename(mark)
    time.sleep(60)
    os._exit(9)  # nobody did


class Reporter:
    """Lines of JSON, one file a process: what the demo compares."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = open(folder / f"{os.environ['HEARTH_NODE']}.jsonl", "a", buffering=1)
        self._turn, self.brought = 0, (0, 0)  # bytes from other nodes: by recover(), by the load

    def say(self, **fields: Any) -> None:
        self._file.write(json.dumps({"pid": os.getpid(), **fields}) + "\n")

    def step(self, turn: Any, step: int, loss: float) -> None:
        self.say(rank=turn.rank, step=step, loss=loss.hex())
        if turn.number != self._turn:
            self._turn = turn.number
            self.say(turn=turn.number, rank=turn.rank, start=turn.step, pulled=sum(self.brought),
                     marks={**turn.marks, "stepped": time.monotonic()},
                     hearth={name: getattr(turn.found.info, f"{name}_ms") for name in PARTS}
                     if turn.found else {})


def work(args: argparse.Namespace) -> None:
    import torch

    from hearth_checkpoint.torch import elastic

    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    if args.device == "cuda":
        torch.zeros(1, device="cuda")  # a spare's CUDA context is made before it is needed
    report = Reporter(args.report)
    job = elastic.Elastic(keep=False, backend={
        "cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}[args.device])
    report.say(waits=True)
    job.run(lambda turn: train(turn, args, report))


# ---- the demo ------------------------------------------------------------------------------------


class Failed(Exception):
    """Something is not as the demo says."""


class World:
    """Launcher, ranks and spares of one run; every process is a child of this one or named in a lock file."""

    def __init__(self, folder: Path, name: str, steps: int, lose: list[str],
                 args: argparse.Namespace) -> None:
        self.report, self.memory = folder / name, folder / f"{name}-memory"
        self.report.mkdir()
        self._arguments = ["--steps", str(steps), "--report", str(self.report),
                           "--lose", ",".join(lose), "--device", args.device]
        self.nodes: dict[str, subprocess.Popen] = {}
        self.lost: set[str] = set()
        environment = {**os.environ, "PYTHONPATH": f"{HERE.parent}:{os.environ.get('PYTHONPATH', '')}"}
        self.launcher = subprocess.Popen(
            [sys.executable, "-m", "hearth_checkpoint.torch.elastic", "--ranks", str(NODES),
             "--listen",
             "127.0.0.1:0", "--start-s", "120", "--settle-s", "20", "--spare-s", "60"],
            env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            stderr=open(self.report / "launcher.log", "wb"), start_new_session=True)
        try:
            said = self.launcher.stdout.readline() if self.launcher.stdout else ""
            if not (found := re.search(r"(\d+)$", said.strip())):
                raise Failed("the launcher does not start")
            self._environment = {
                **environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": found[1],
                "HEARTH_JOB": "swap", "HEARTH_HEARTBEAT_MS": "200",
                "HEARTH_DEAD_MS": str(args.dead_ms),
                "HEARTH_ANY_ROOT": "1", "HEARTH_LINGER_S": "60", "HEARTH_TRANSPORT": "tcp",
                "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR",
                "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_ALGO": "Ring",
                "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
            for node in range(NODES):
                self.start(f"node{node}")
        except BaseException:
            self.end()
            raise

    def start(self, node: str) -> None:
        """A process that could be a rank."""
        root = self.memory / node
        root.mkdir(parents=True)
        self.nodes[node] = subprocess.Popen(
            [sys.executable, __file__, *self._arguments], stdin=subprocess.DEVNULL,
            stdout=open(self.report / f"{node}.log", "wb"), stderr=subprocess.STDOUT,
            env={**self._environment, "HEARTH_NODE": node, "HEARTH_MACHINE": node,
                 "HEARTH_ROOT": str(root),
                 "NCCL_HOSTID": node},  # else NCCL refuses two ranks on one GPU
            start_new_session=True)

    def wait_for(self, done: Callable[[], Any], what: str, seconds: float = 90) -> Any:
        until = time.monotonic() + seconds
        while not (result := done()):
            dead = [node for node, process in self.nodes.items()
                    if node not in self.lost and process.poll() not in (None, 0)]
            if dead or time.monotonic() > until:
                raise Failed(f"{what} did not happen{': ended: ' if dead else ''}{', '.join(dead)}")
            time.sleep(0.1)
        return result

    def lose(self, node: str) -> float:
        """Kill a node's process and engine and remove its memory; when."""
        self.lost.add(node)
        victims, when = [self.nodes[node].pid, *self._engine(node)], time.monotonic()
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        self.nodes[node].wait()
        shutil.rmtree(self.memory / node, ignore_errors=True)
        return when

    def _engine(self, node: str) -> list[int]:
        lock = self.memory / node / "swap" / ".hearth" / "lock"
        try:
            return [int(lock.read_text().split()[0])]
        except (OSError, ValueError, IndexError):
            return []

    def lines(self) -> list[dict[str, Any]]:
        """All that was reported; a line that is being written is left out."""
        return [json.loads(line) for path in self.report.glob("*.jsonl")
                for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def turn(self, number: int) -> dict[int, dict[str, Any]]:
        """What each rank said after the first step of a turn, once all have."""
        said = {line["rank"]: line for line in self.lines() if line.get("turn") == number}
        return said if len(said) == NODES else {}

    def finish(self) -> None:
        """Until the job is done, which the launcher and all processes end well after."""
        for process in (self.launcher, *(p for n, p in self.nodes.items() if n not in self.lost)):
            try:
                code = process.wait(90)
            except subprocess.TimeoutExpired:
                raise Failed("the job does not end") from None
            if code:
                raise Failed(f"a process ended with {code}")

    def end(self) -> None:
        for process in (self.launcher, *self.nodes.values()):
            if process.poll() is None:
                process.kill()
                process.wait()
        for node in self.nodes:
            for pid in self._engine(node):
                try:
                    os.kill(pid, signal.SIGTERM)
                except ProcessLookupError:
                    pass

    def losses(self) -> dict[tuple[int, int], set[str]]:
        """(rank, step) -> loss; more than one where a step that was done again gave another."""
        out: dict[tuple[int, int], set[str]] = {}
        for line in self.lines():
            if "loss" in line:
                out.setdefault((line["rank"], line["step"]), set()).add(line["loss"])
        return out

    def weights(self) -> set[str]:
        return {line["weights"] for line in self.lines() if "weights" in line}


def one_loss(world: World, number: int, order: str) -> dict[str, float]:
    """The rank that `order` names is lost, and a spare takes its place; checked. Seconds by phase."""
    rank, step, where = order.split(":")
    mark = world.report / f"lost-{step}"
    before = world.turn(number)
    spare = f"spare{number}"
    world.start(spare)
    world.wait_for(lambda: (world.report / f"{spare}.jsonl").exists(), f"{spare} waiting")
    world.wait_for(mark.exists, f"rank {rank} in the middle of {where} {step}")
    victim = json.loads(mark.read_text())
    protected = max([victim["protected"], *(line.get("protected", 0) for line in world.lines())])
    when = world.lose(victim["node"])
    after = world.wait_for(lambda: world.turn(number + 1), "the first step after the loss")
    check(number, {other: line["pid"] for other, line in before.items()}, after, int(rank))
    start = {line["start"] for line in after.values()}
    print(f"  {number}: rank {rank} of {victim['node']} killed in {where} {step}: all went on from step "
          f"{', '.join(map(str, start))}; {spare} pulled {after[int(rank)]['pulled']} bytes, the others 0")
    newest = int(step) - 1 if where == "save" else int(step)
    if len(start) != 1 or not protected <= min(start) <= newest or not min(start):
        raise Failed(f"step {protected} was protected, and they began at {start}")
    return phases(when, after)


def check(number: int, pids: dict[int, int], after: dict[int, dict[str, Any]], lost: int) -> None:
    """Of those who were not lost each is the process that it was, and nothing was brought to it."""
    for rank, line in after.items():
        if rank == lost:
            if line["pid"] == pids[rank] or not line["pulled"]:
                raise Failed(f"loss {number}: rank {rank} is not a spare that was given its part")
        elif line["pid"] != pids[rank]:
            raise Failed(f"loss {number}: rank {rank} is another process")
        elif line["pulled"]:
            raise Failed(f"loss {number}: rank {rank} survived and pulled {line['pulled']} bytes")


def phases(when: float, after: dict[int, dict[str, Any]]) -> dict[str, float]:
    """Each phase ends when the last rank is through it."""
    out, begin = {}, when
    for phase in PHASES:
        end = max(line["marks"].get(phase, when) for line in after.values())
        out[phase], begin = end - begin, end
    inside = {part: max(line["hearth"][part] for line in after.values()) / 1000 for part in PARTS}
    return {**out, "all": begin - when, **inside}


def run(folder: Path, name: str, steps: int, lose: list[str],
        args: argparse.Namespace) -> tuple[World, list[dict[str, float]]]:
    """A whole training; what the losses took."""
    world, took = World(folder, name, steps, lose, args), []
    try:
        world.wait_for(lambda: world.turn(1), "the first step", 120)
        for number, order in enumerate(lose, 1):
            took.append(one_loss(world, number, order))
        world.finish()
        return world, took
    except Failed:
        show_logs(world.report)
        raise
    finally:
        world.end()


def show_logs(report: Path) -> None:
    for log in sorted(report.glob("*.log")):
        print(f"--- {log}\n" + log.read_text(errors="replace")[-1500:])


def demo(args: argparse.Namespace) -> int:
    rounds, orders = args.rounds, []
    for i in range(rounds):  # 8 in a step, 15 in a save, 23 in a step, ...
        where = ("step", "save")[i % 2]
        orders.append(f"{(i + 1) % NODES}:{15 * (i // 2) + (8 if where == 'step' else 15)}:{where}")
    steps = 15 * ((rounds + 1) // 2) + 5
    folder = Path(tempfile.mkdtemp(prefix="hearth-swap-", dir="/dev/shm"))
    try:
        print(f"hot_swap: a control run of {steps} steps, {NODES} nodes, nothing lost", flush=True)
        control, _ = run(folder, "control", steps, [], args)
        print(f"hot_swap: the same, and {rounds} nodes are lost, one after another", flush=True)
        swapped, took = run(folder, "swapped", steps, orders, args)
        same = swapped.losses() == control.losses()
        equal = swapped.weights() == control.weights() and len(control.weights()) == 1
        print("survivors' processes the same: yes\nbytes pulled by survivors: 0\n"
              f"losses identical: {'yes' if same else 'no'}\n"
              f"weights identical: {'yes' if equal else 'no'}")
        print(f"from the kill to the first step after it, ms, median of {len(took)} (least, most):")
        for phase in (*PHASES, "all"):
            values = [1000 * one[phase] for one in took]
            print(f"  {SAID.get(phase, 'together'):26}{statistics.median(values):8.0f}  "
                  f"({min(values):.0f}, {max(values):.0f})")
        print("  in hearth_recover(), of the slowest rank: " + ", ".join(
            f"{part} {statistics.median(1000 * one[part] for one in took):.0f}" for part in PARTS))
        print("hot_swap: " + ("nodes were lost, and no process of the others." if same and equal
                              else "it FAILED."))
        return 0 if same and equal else 1
    except Failed as error:
        print(f"hot_swap: it FAILED: {error}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demo", action="store_true", help="lose nodes on this machine, and compare")
    parser.add_argument("--rounds", type=int, default=6, help="nodes that the demo loses")
    parser.add_argument("--dead-ms", type=int, default=1000, help="of Hearth, in the demo")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu",
                        help="cuda: NCCL; in the demo all nodes share one GPU (%(default)s)")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--report", type=Path, default=Path("report"), help="folder of the losses")
    parser.add_argument("--lose", type=lambda text: text.split(","), default=[],
                        help="rank:step:where to wait to be killed, where being step or save")
    args = parser.parse_args()
    if args.demo:
        return demo(args)
    work(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
