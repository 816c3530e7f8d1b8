# SPDX-License-Identifier: Apache-2.0
"""Ranks for tests: processes with a gloo group on loopback, on nodes that are folders of a tmpfs.

    with World(4, nodes=2, base_dir) as world:
        world.run(function, argument)      on every rank; a list of what each returned

Functions belong to modules, so that the processes find them. A rank that raises makes run() raise; a
rank that does not answer within the deadline is killed, by its pid, with all others.
"""

from __future__ import annotations

import itertools
import multiprocessing as mp
import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

DEADLINE_S = 120.0
_stores = itertools.count()
_places: list[socket.socket] = []


class RankFailed(AssertionError):
    """What a rank raised, as text."""


def _environment(rank: int, world: int, nodes: int, folder: str) -> dict[str, str]:
    node = rank * nodes // world
    return {
        "RANK": str(rank), "WORLD_SIZE": str(world), "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "HEARTH_ROOT": f"{folder}/node{node}", "HEARTH_JOB": "job", "HEARTH_NODE": f"node{node}",
        "HEARTH_MACHINE": f"node{node}",
        "HEARTH_HEARTBEAT_MS": "300", "HEARTH_DEAD_MS": "5000", "HEARTH_ALLOW_DEGRADED": "1",
        "HEARTH_LINGER_S": "20", "HEARTH_TRANSPORT": "tcp",
        "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}


def port() -> int:
    """A free one; a socket keeps it from everybody but a store of torch's that listens there."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("", 0))
    _places.append(place)
    return place.getsockname()[1]


def keep_ports() -> None:
    """That of DCP's checkpoint process too: torch closes the socket that found it, and starts a
    process, which takes seconds, before somebody listens."""
    from torch.distributed.checkpoint import _async_process_executor

    if hasattr(_async_process_executor, "get_free_port"):  # else torch has another way now
        _async_process_executor.get_free_port = port


def _serve(rank: int, world: int, nodes: int, folder: str, store: str, pipe: Any,
           settings: dict[str, str]) -> None:
    os.environ.update(_environment(rank, world, nodes, folder) | settings)
    os.makedirs(os.environ["HEARTH_ROOT"], exist_ok=True)
    sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    keep_ports()
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    while True:
        job = pipe.recv()
        if job is None:
            break
        try:
            pipe.send((True, job[0](*job[1])))
        except BaseException:
            pipe.send((False, traceback.format_exc()))
    dist.barrier()
    dist.destroy_process_group()


class World:
    """A world of ranks; see above."""

    def __init__(self, world: int, nodes: int, folder: str, *, parents: bool = False,
                 **settings: str) -> None:
        """parents: ranks may have processes of their own (a daemonic process may not).
        settings: of the environment, which every rank gets."""
        context = mp.get_context("spawn")
        self.world, self.folder = world, folder
        self._pipes, self._processes = [], []
        self.alive = True
        store = f"{folder}/store{next(_stores)}"  # a file is for one group only
        for rank in range(world):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(rank, world, nodes, folder, store, theirs, settings),
                daemon=not parents)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, function: Callable[..., Any], *args: Any,
            deadline_s: float = DEADLINE_S) -> list[Any]:
        """function(*args) on every rank."""
        for pipe in self._pipes:
            pipe.send((function, args))
        answers: list[tuple[bool, Any]] = []
        for rank in range(self.world):
            answers.append(self._answer(rank, deadline_s, answers))
        failed = [f"rank {rank}:\n{text}" for rank, (ok, text) in enumerate(answers) if not ok]
        if failed:
            raise RankFailed("\n".join(failed))
        return [value for _, value in answers]

    def _answer(self, rank: int, deadline_s: float,
                before: list[tuple[bool, Any]]) -> tuple[bool, Any]:
        try:
            if self._pipes[rank].poll(deadline_s):
                return self._pipes[rank].recv()
        except EOFError:
            pass
        said = [(other, text) for other, (ok, text) in enumerate(before) if not ok]
        others = "".join(f"\nrank {other} said: {text}" for other, text in said + self._failures())
        self.kill()
        raise RankFailed(f"rank {rank} did not answer within {deadline_s:g} s{others}")

    def _failures(self) -> list[tuple[int, str]]:
        """What ranks say that have failed already: often why another one waits."""
        out = []
        for rank, pipe in enumerate(self._pipes):
            try:
                if pipe.poll(0):
                    ok, text = pipe.recv()
                    out += [] if ok else [(rank, text)]
            except (EOFError, OSError):
                out.append((rank, "it is gone"))
        return out

    def kill(self) -> None:
        """End all ranks at once."""
        self.alive = False
        for process in self._processes:
            if process.is_alive():
                process.kill()

    def close(self) -> None:
        """End all ranks in good order, if they still can."""
        for pipe in self._pipes:
            try:
                pipe.send(None)
            except OSError:
                pass
        for process in self._processes:
            process.join(20)
        self.kill()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
