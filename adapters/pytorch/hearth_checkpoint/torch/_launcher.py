# SPDX-License-Identifier: Apache-2.0
"""Which process is which rank: the launcher of hearth_checkpoint.torch.elastic, and a process's
line to it.

The launcher runs on a machine without ranks, so that it is not lost with a rank. Each process keeps
one connection to it, which the kernel closes when the process dies. One JSON object a line:

    process   {"say": "wait", "node", "local", "pid"}    I could be a rank
              {"say": "failed", "turn", "why"}           of my turn; "wait" follows when I am out
              {"say": "done", "turn"}
    launcher  {"say": "go", "turn", "rank", "world", "store", "lost"}
              {"say": "broken", "turn", "why"}           leave it and wait
              {"say": "end", "why"}                      why null: the job is done

A turn is one forming of the world: it ends when all its ranks are done, or when one is lost or has
failed. Survivors keep their ranks, spares take those of the lost. Each turn has a store of torch's,
at which its ranks meet and make groups. The store ends with the turn, because nothing else can end
a process that waits in it for a lost rank.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import re
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from ..errors import HearthTimeout

_LINE = 4096  # bytes of one, at most
_WHY = 500  # characters of a reason
_LEAVE_S = 10.0  # for the processes to go when the job is over
_log = logging.getLogger("hearth_checkpoint")


def _line(message: dict[str, Any]) -> bytes:
    if message.get("why"):
        message = {**message, "why": message["why"][:_WHY]}
    return json.dumps(message).encode() + b"\n"


def _in_order(node: str) -> list[tuple[int, str]]:
    """So that node10 comes after node9."""
    return [(int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", node)]


def watch_closely(connection: socket.socket) -> None:
    """A machine that is gone without a word is noticed by the kernel within five seconds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 5000)


class _Process:
    """One that is connected. rank: its seat, also between turns; None: it could take one."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.node, self.local, self.pid = "", 0, 0
        self.rank: int | None = None
        self.waits = self.done = False

    def tell(self, **message: Any) -> None:
        self.writer.write(_line(message))

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.node}, pid {self.pid})"


class Launcher:
    """Forms turns of `world` ranks until one is done by all. See Elastic for what a turn is.

    start_s  for the first `world` processes to come
    settle_s for the ranks of a broken turn to leave it; who has not by then counts as lost
    spare_s  for a spare to come where none waits, from the last loss of a rank that wants one
    retries  of turns in a row that ended by a failure without a loss
    spare    a command of the shell that is run for each rank that no spare waits for
    """

    def __init__(self, world: int, *, start_s: float = 600, settle_s: float = 30,
                 spare_s: float = 600, retries: int = 3, spare: str | None = None) -> None:
        self._world, self._retries, self._command = world, retries, spare
        self._start_s, self._settle_s, self._spare_s = start_s, settle_s, spare_s
        self._processes: list[_Process] = []
        self._turn, self._running = 0, False
        self._empty: dict[int, str] = dict.fromkeys(range(world), "")  # rank -> node that was lost
        self._hung: set[tuple[int, str]] = set()  # rank, node: it may still be attached there
        self._called: set[int] = set()  # ranks for which a spare was sent for
        self._failed = ""  # why this turn is broken: the first that was said
        self._in_a_row = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._store: dist.TCPStore | None = None  # of this turn; None: it is broken

    async def serve(self, host: str, port: int,
                    ready: Callable[[int], None] = lambda port: None) -> str | None:
        """Until the job has ended: None, or why it could not go on. ready: told the port."""
        self._over: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._host = host
        server = await asyncio.start_server(self._talk, host, port, limit=_LINE)
        try:
            self._set_timer("start", self._start_s, lambda: self._end(
                f"after {self._start_s:g} s {len(self._free())} processes of {self._world} have "
                "come"))
            ready(server.sockets[0].getsockname()[1])
            why = await self._over
            for _ in range(int(_LEAVE_S / 0.05)):  # they use the store until they are out
                if not self._processes:
                    break
                await asyncio.sleep(0.05)
            return why
        finally:
            server.close()
            self._store = None
            for process in list(self._processes):
                process.writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        watch_closely(writer.get_extra_info("socket"))
        process = _Process(writer)
        self._processes.append(process)
        try:
            while line := await reader.readline():
                self._heard(process, json.loads(line))
        except OSError:
            pass  # it died with something unread
        except Exception as error:  # whatever a stranger says
            _log.warning("hearth: launcher: %s is cut off: %s", process, error)
        finally:
            self._processes.remove(process)
            writer.close()
            if not self._over.done():
                self._gone(process)

    def _heard(self, process: _Process, message: dict[str, Any]) -> None:
        say = message["say"]
        if say == "wait":
            process.node, process.local = str(message["node"]), int(message["local"])
            process.pid, process.waits = int(message["pid"]), True
            if self._running and process.rank is not None:  # it left without a word
                self._break(f"{process} has left")
            self._form()
        elif message["turn"] != self._turn or not self._running:
            pass  # of a turn that is over
        elif say == "failed":
            self._break(f"{process}: {message['why']}")
        elif say == "done":
            process.done = True
            if all(other.done for other in self._members()):
                self._end(None)

    def _gone(self, process: _Process) -> None:
        if process.rank is not None:
            self._empty[process.rank] = process.node
            self._break(f"{process} is lost")
        self._form()

    def _members(self) -> list[_Process]:
        return [process for process in self._processes if process.rank is not None]

    def _free(self) -> list[_Process]:
        return [process for process in self._processes if process.rank is None and process.waits]

    # ---- turns -----------------------------------------------------------------------------------

    def _break(self, why: str) -> None:
        _log.warning("hearth: launcher: turn %d: %s", self._turn, why)
        if not self._running:
            return
        self._running, self._failed = False, why
        for process in self._members():
            process.done = False
            process.tell(say="broken", turn=self._turn, why=why)
        self._store = None  # its port closes, and waits in it fail
        self._set_timer("settle", self._settle_s, self._settle)

    def _settle(self) -> None:
        """Who is still in the broken turn hangs, and nothing it does later counts."""
        for process in self._members():
            if not process.waits:
                _log.warning("hearth: launcher: %s does not leave turn %d", process, self._turn)
                if process.rank is not None:
                    self._hung.add((process.rank, process.node))
                process.writer.transport.abort()

    def _form(self) -> None:
        """The next turn, if all who stay are here and each empty seat has somebody."""
        if self._running or not all(process.waits for process in self._members()):
            return
        if len(self._free()) < len(self._empty):
            if self._turn:
                self._send_for_spares()
            return
        if self._turn and not self._empty:
            self._in_a_row += 1
            if self._in_a_row > self._retries:
                self._end(f"{self._in_a_row} times in a row without a loss: {self._failed}")
                return
        elif self._empty:
            self._in_a_row = 0
        self._go()

    def _send_for_spares(self) -> None:
        """Those who wait are for the ranks that were lost first: for these a spare was sent for."""
        for rank in list(self._empty)[len(self._free()):]:
            if rank in self._called:
                continue
            self._called.add(rank)
            if self._command is not None:
                subprocess.Popen(self._command, shell=True, stdin=subprocess.DEVNULL)
            self._set_timer("spare", self._spare_s, lambda: self._end(
                f"no spare within {self._spare_s:g} s for rank "
                + ", ".join(f"{rank} of {node}" for rank, node in sorted(self._empty.items()))
                + f": {self._failed}"))

    def _go(self) -> None:
        lost = sorted({node for node in self._empty.values() if node})
        self._seat()
        self._turn += 1
        self._store = dist.TCPStore(self._host, 0, is_master=True, wait_for_workers=False)
        self._running, self._failed = True, ""
        self._called.clear()
        self._clear_timers()
        for process in self._members():
            process.waits = False
            process.tell(say="go", turn=self._turn, rank=process.rank, world=self._world,
                         store=self._store.port, lost=lost)
        _log.info("hearth: launcher: turn %d: %s", self._turn, "; ".join(
            str(process) for process in sorted(self._members(), key=lambda one: one.rank or 0)))

    def _seat(self) -> None:
        """Give away the empty ranks: at first in the order of the nodes' names; then those that
        were on one node to one node, where that can be, and before that to a process on the node of
        the lost one, for what it needs is there. Not so where it hangs: as long as it lives, the
        engine there takes no other for its rank."""
        order = {process.node: n for n, process in reversed(list(enumerate(self._processes)))}
        free = sorted(self._free(), key=lambda one: (order[one.node], one.local))
        if not self._turn:
            free = sorted(free[:self._world], key=lambda one: (_in_order(one.node), one.local))
        instead: dict[str, str] = {}
        for rank, node in sorted(self._empty.items()):
            room = Counter(process.node for process in free)
            wanted = (node, instead.get(node) if node else None)
            best = max(free, key=lambda one: ((rank, one.node) not in self._hung,
                                              one.node in wanted, room[one.node] if node else 0))
            free.remove(best)
            instead[node], best.rank = best.node, rank
        self._empty.clear()

    def _end(self, why: str | None) -> None:
        if self._over.done():
            return
        self._clear_timers()
        for process in self._processes:
            process.tell(say="end", why=why)
        self._over.set_result(why)

    def _set_timer(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        """Anew, where it was set."""
        if name in self._timers:
            self._timers[name].cancel()
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, call)

    def _clear_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


def _connect(at: tuple[str, int], seconds: float) -> socket.socket:
    """Also to a launcher that is started later."""
    until = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(at, max(0.1, until - time.monotonic()))
        except OSError as error:
            if time.monotonic() >= until:
                raise HearthTimeout(f"no launcher of hearth_checkpoint.torch.elastic at "
                                    f"{at[0]}:{at[1]} "
                                    f"within {seconds:g} s: {error}") from error
            time.sleep(0.1)


class Line:
    """A process's connection to the launcher; a thread reads it.

    broken(turn, why)  called in that thread, the moment that a turn is
    """

    def __init__(self, at: tuple[str, int], connect_s: float,
                 broken: Callable[[int, str], None]) -> None:
        self._socket = _connect(at, connect_s)
        self._socket.settimeout(None)
        watch_closely(self._socket)
        self._broken = broken
        self._inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, name="hearth-elastic", daemon=True).start()

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    message = json.loads(line)
                    self._inbox.put(message)
                    if message["say"] == "broken":
                        self._broken(message["turn"], message["why"])
        except (OSError, ValueError):
            pass
        self._inbox.put({"say": "cut", "why": "the connection to the launcher is cut"})

    def say(self, **message: Any) -> None:
        """To the launcher. Where it is gone, hear() says so."""
        try:
            self._socket.sendall(_line(message))
        except OSError:
            pass

    def hear(self) -> dict[str, Any]:
        """The launcher's next word. As long as it lives its own deadlines end every wait; then
        "cut", which is the last."""
        return self._inbox.get()

    def close(self) -> None:
        """The launcher takes it for lost, unless the job is over."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()
