# SPDX-License-Identifier: Apache-2.0
"""hearth_checkpoint.torch.elastic: which process becomes which rank, and a job whose survivors go
on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import types

import pytest

from hearth_checkpoint.errors import HearthTimeout
from hearth_checkpoint.torch._launcher import Launcher, Line

HERE = os.path.dirname(os.path.abspath(__file__))
WAIT_S = 20.0


class Served:
    """A launcher in a thread; `why` is its result."""

    def __init__(self, ranks, **times):
        self.launcher = Launcher(ranks, **{"settle_s": 0.5, "spare_s": 10.0, **times})
        self._port = queue.Queue()
        self._why = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()
        self.at = "127.0.0.1", self._port.get(timeout=WAIT_S)

    def _run(self):
        self._why.put(asyncio.run(self.launcher.serve("127.0.0.1", 0, self._port.put)))

    def why(self):
        return self._why.get(timeout=WAIT_S)

    def stop(self):
        """As if the job had ended, if it has not."""
        over = self.launcher._over
        with contextlib.suppress(RuntimeError):  # the loop is closed
            over.get_loop().call_soon_threadsafe(self.launcher._end, "the test is over")


@pytest.fixture
def serve():
    """Makes launchers; they end with the test."""
    made = []
    yield lambda *args, **times: made.append(Served(*args, **times)) or made[-1]
    for served in made:
        served.stop()


class Fake:
    """What a process says, without one."""

    def __init__(self, served, node, local=0, wait=True):
        self.node, self.local = node, local
        self.socket = socket.create_connection(served.at, WAIT_S)
        self._lines = self.socket.makefile("rb")
        self.turn = 0
        if wait:
            self.wait()

    def say(self, **message):
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def wait(self):
        self.say(say="wait", node=self.node, local=self.local, pid=1)

    def hear(self, say):
        """The next word of this kind; others are passed over."""
        while line := self._lines.readline():
            word = json.loads(line)
            if word["say"] == say:
                self.turn = word.get("turn", self.turn)
                return word
        raise AssertionError(f"{self.node} was cut off and did not hear {say!r}")

    def rank(self):
        return self.hear("go")["rank"]

    def fail(self, why="gloo: connection closed"):
        self.say(say="failed", turn=self.turn, why=why)
        self.wait()

    def die(self):
        self._lines.close()
        self.socket.close()


def come(served, node, local=0):
    """A process that the launcher has seen."""
    known = served.launcher._processes
    before = sum(process.waits or process.rank is not None for process in known)
    fake = Fake(served, node, local)
    deadline = time.monotonic() + WAIT_S
    while sum(process.waits or process.rank is not None for process in known) == before:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return fake


def world(served, nodes, per_node=1):
    """Processes that came in this order, with their ranks of the first turn."""
    fakes = [come(served, f"node{node}", local)
             for node in range(nodes) for local in range(per_node)]
    assert [fake.rank() for fake in fakes] == list(range(len(fakes)))
    return fakes


def test_ranks_are_given_in_the_order_of_nodes_names(serve):
    served = serve(3)
    fakes = [come(served, node) for node in ("node10", "node9", "node1")]
    assert [fake.rank() for fake in fakes] == [2, 1, 0]


def test_survivors_keep_their_ranks_and_a_spare_takes_the_lost_ones(serve):
    served = serve(4, spare_s=60)
    fakes = world(served, 4)
    spare = come(served, "spare")
    fakes[0].die()  # rank 0, too
    for fake in fakes[1:]:
        assert "lost" in fake.hear("broken")["why"]
        fake.fail()
    assert [fake.rank() for fake in fakes[1:]] == [1, 2, 3]
    word = spare.hear("go")
    assert (word["rank"], word["world"], word["turn"], word["lost"]) == (0, 4, 2, ["node0"])


def test_ranks_of_a_lost_node_go_to_one_spare(serve):
    served = serve(4, spare_s=60)
    fakes = world(served, 2, per_node=2)
    spares = [come(served, "a"), come(served, "b", 0), come(served, "b", 1)]
    for fake in fakes[2:]:
        fake.die()
    for fake in fakes[:2]:
        fake.fail()
    assert [fake.rank() for fake in fakes[:2]] == [0, 1]
    assert [spare.rank() for spare in spares[1:]] == [2, 3]


def test_a_process_on_the_node_of_the_lost_one_comes_before_spares(serve):
    served = serve(2)
    fakes = world(served, 2)
    others = [come(served, "spare", 0), come(served, "spare", 1)]
    again = come(served, "node1")  # started again by somebody, and the old one is not missed yet
    fakes[1].die()
    fakes[0].fail()
    assert (fakes[0].rank(), again.rank()) == (0, 1)
    assert len(others) == len(served.launcher._free())


def test_who_does_not_leave_a_broken_turn_is_replaced(serve):
    served = serve(3)
    fakes = world(served, 3)
    spare = come(served, "spare")
    fakes[0].fail("timed out")
    fakes[2].hear("broken")
    fakes[2].fail()
    begin = time.monotonic()
    assert (fakes[0].rank(), spare.rank(), fakes[2].rank()) == (0, 1, 2)
    assert 0.2 < time.monotonic() - begin < 10
    with pytest.raises((AssertionError, OSError)):
        fakes[1].hear("go")  # it hangs: nothing it does later counts


def test_who_hangs_is_not_replaced_on_its_own_node_if_there_is_another(serve):
    """Its engine has it for the rank, then and later. A second rank of the node did die."""
    served = serve(4)
    fakes = world(served, 2, per_node=2)
    here = [come(served, "node1", 0), come(served, "node1", 1)]
    spare = come(served, "spare")
    fakes[3].die()
    for fake in fakes[:2]:
        fake.hear("broken")
        fake.wait()
    assert (spare.rank(), here[0].rank()) == (2, 3)
    last = come(served, "last")
    spare.die()  # rank 2 again
    for fake in (*fakes[:2], here[0]):
        fake.hear("broken")
        fake.wait()
    assert last.rank() == 2


def test_who_hangs_is_replaced_on_its_own_node_if_there_is_no_other(serve):
    served = serve(2)
    fakes = world(served, 2)
    here = come(served, "node1")
    fakes[0].fail("timed out")
    assert (fakes[0].rank(), here.rank()) == (0, 1)


def test_without_a_spare_it_ends_and_says_who_is_missing(serve):
    served = serve(2, spare_s=0.5)
    fakes = world(served, 2)
    fakes[1].die()
    fakes[0].fail()
    why = fakes[0].hear("end")["why"]
    assert "no spare within 0.5 s for rank 1 of node1" in why
    fakes[0].die()
    assert served.why() == why


def test_a_spare_that_comes_late_is_in_time(serve):
    served = serve(2, spare_s=10)
    fakes = world(served, 2)
    fakes[1].die()
    fakes[0].fail()
    time.sleep(0.3)
    late = Fake(served, "late")
    assert (fakes[0].rank(), late.rank()) == (0, 1)


def test_a_command_starts_a_spare_once_for_each_lost_rank(serve, folder):
    served = serve(3, spare=f"echo one >> {folder}/started")
    fakes = world(served, 3)
    for fake in fakes[1:]:
        fake.die()
    fakes[0].fail()
    deadline = time.monotonic() + WAIT_S
    while not os.path.exists(f"{folder}/started") or open(
            f"{folder}/started").read() != "one\none\n":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    one = come(served, "one")
    two = come(served, "two")
    assert [fake.rank() for fake in (fakes[0], one, two)] == [0, 1, 2]
    assert open(f"{folder}/started").read() == "one\none\n"


def test_a_spare_that_waits_is_not_for_the_rank_that_is_lost_later(serve, folder):
    """And for that one there is as much time as there was for the first."""
    served = serve(4, spare=f"echo one >> {folder}/started", spare_s=3)
    fakes = world(served, 4)

    def started(count):
        deadline = time.monotonic() + WAIT_S
        while not os.path.exists(f"{folder}/started") or open(
                f"{folder}/started").read() != "one\n" * count:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    for fake in fakes[2:]:
        fake.die()
    for fake in fakes[:2]:
        fake.hear("broken")
        fake.wait()
    started(2)
    spares = [come(served, "one")]
    time.sleep(2)
    fakes[1].die()
    started(3)
    time.sleep(1.5)
    spares += [come(served, "two"), come(served, "three")]
    assert fakes[0].rank() == 0
    assert sorted(spare.rank() for spare in spares) == [1, 2, 3]


def test_each_turn_has_a_store_that_ends_with_it(serve):
    """Who waits there for the lost rank hears of it."""
    import torch.distributed as dist

    served = serve(2, settle_s=WAIT_S)
    fakes = [come(served, node) for node in ("node0", "node1")]
    stores = []
    for turn in (1, 2):
        port = fakes[0].hear("go")["store"]
        stores.append(dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False))
        assert not stores[-1].check(["turn"])
        stores[-1].set("turn", str(turn))
        fakes[1].hear("go")
        threading.Timer(0.3, fakes[1].fail).start()
        begin = time.monotonic()
        with pytest.raises(dist.DistNetworkError):
            dist.PrefixStore("group", stores[-1]).wait(["address of rank 1"])
        assert time.monotonic() - begin < WAIT_S
        fakes[0].hear("broken")
        fakes[0].wait()


def test_who_comes_to_a_store_that_is_gone_leaves_the_turn():
    import torch.distributed as dist

    from hearth_checkpoint.torch import elastic

    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))  # nobody listens there
        job = elastic.Elastic("/dev/shm/x/job", launcher=("127.0.0.1", 1))
        job._port = place.getsockname()[1]
        turn = elastic.Turn(1, 0, 2, job.base)
        turn.lost.set()
        begin = time.monotonic()
        with pytest.raises(dist.DistNetworkError):
            job._connect(turn)
        assert time.monotonic() - begin < WAIT_S  # and not the minute of the group's time-out


def test_a_failure_without_a_loss_is_tried_again_and_not_for_ever(serve):
    served = serve(2, retries=2)
    fakes = world(served, 2)
    for turn in (2, 3):
        fakes[0].fail("KeyError: 'x'")
        fakes[1].hear("broken")
        fakes[1].fail("connection closed")
        assert [fake.rank() for fake in fakes] == [0, 1]
        assert fakes[0].turn == turn
    for fake in fakes:
        fake.fail("KeyError: 'x'")
    why = fakes[1].hear("end")["why"]
    assert "3 times in a row" in why and "rank 0" in why and "KeyError: 'x'" in why


def test_when_all_are_done_spares_go(serve):
    served = serve(2)
    fakes = world(served, 2)
    spare = come(served, "spare")
    fakes[0].say(say="done", turn=1)
    fakes[1].say(say="done", turn=1)
    for fake in (*fakes, spare):
        assert fake.hear("end")["why"] is None
        fake.die()
    assert served.why() is None


def test_who_was_done_goes_on_when_another_is_lost_before_it_is(serve):
    served = serve(2)
    fakes = world(served, 2)
    fakes[0].say(say="done", turn=1)
    spare = come(served, "spare")
    fakes[1].die()
    fakes[0].hear("broken")
    fakes[0].wait()
    assert (fakes[0].rank(), spare.rank()) == (0, 1)
    fakes[0].say(say="done", turn=1)  # of the turn before: not heard
    spare.say(say="done", turn=2)
    spare.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        spare.hear("end")
    fakes[0].say(say="done", turn=2)
    assert fakes[0].hear("end")["why"] is None


@pytest.mark.parametrize("noise", [b"\n", b"[]\n", b"{}\n", b"x" * 9000, b'{"say":"done"}\n',
                                   b'{"say":"wait"}\n',
                                   b'{"say":"wait","node":1,"local":"x","pid":1}\n'])
def test_noise_cuts_its_own_connection_and_nothing_else(serve, noise):
    served = serve(2)
    stranger = Fake(served, "stranger", wait=False)
    stranger.socket.sendall(noise)
    with pytest.raises((AssertionError, OSError)):
        stranger.hear("go")
    assert len(world(served, 2)) == 2


def test_the_world_is_waited_for_and_then_counted(serve):
    served = serve(3, start_s=0.5)
    only = Fake(served, "node0")
    assert "1 processes of 3" in only.hear("end")["why"]


def test_a_line_says_when_the_launcher_is_gone(serve):
    served = serve(2)
    line = Line(served.at, WAIT_S, lambda turn, why: None)
    line.say(say="wait", node="n", local=0, pid=1)
    other = Fake(served, "m")
    assert (line.hear()["say"], other.hear("go")["world"]) == ("go", 2)
    line._socket.shutdown(socket.SHUT_RDWR)
    word = line.hear()
    assert word["say"] == "cut" and "launcher is cut" in word["why"]
    line.close()


def test_a_reader_counts_what_other_nodes_give_it(base, monkeypatch):
    import torch
    import torch.distributed.checkpoint as dcp

    from hearth_checkpoint.torch import HearthReader, HearthWriter

    path = f"{base}/step-1_ckpt"
    dcp.save({"w": torch.ones(1000), "n": 1}, checkpoint_id=path,
             storage_writer=HearthWriter(base))
    reader = HearthReader()
    dcp.load({"w": torch.zeros(1000)}, checkpoint_id=path, storage_reader=reader)
    assert reader.peer_bytes == 0
    there = os.path.exists  # as on a node that has no copy; the bytes come from this one
    monkeypatch.setattr(os.path, "exists",
                        lambda name: not str(name).endswith(".distcp") and there(name))
    dcp.load({"w": torch.zeros(1000)}, checkpoint_id=path, storage_reader=reader)
    assert 4000 <= reader.peer_bytes < 8200


def test_a_launcher_may_come_later_and_not_never():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))  # nobody listens there
        at = place.getsockname()
        begin = time.monotonic()
        with pytest.raises(HearthTimeout, match=f"no launcher .* at 127.0.0.1:{at[1]}"):
            Line(at, 0.4, lambda turn, why: None)
        assert 0.3 < time.monotonic() - begin < 5
        threading.Timer(0.5, place.listen).start()
        Line(at, WAIT_S, lambda turn, why: None).close()
        assert 0.8 < time.monotonic() - begin < WAIT_S


def test_torch_is_not_to_end_survivors(monkeypatch):
    from hearth_checkpoint.errors import HearthError
    from hearth_checkpoint.torch import elastic

    name = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    monkeypatch.setenv(name, "3")  # torch's default
    with pytest.raises(HearthError, match=name):
        elastic.Elastic("/dev/shm/x/job", backend="cpu:gloo,cuda:nccl").run(lambda turn: None)
    monkeypatch.delenv(name)
    monkeypatch.setenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "")  # given back after the test
    monkeypatch.delenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC")
    elastic._keep_torch_from_ending_us()
    assert os.environ[name] == "0"
    assert int(os.environ["TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"]) * 4 <= 1000


def test_a_broken_turn_saves_nothing_and_is_aborted_until_it_is_left(base, monkeypatch):
    """As with NCCL: an abort lets go of a collective with anything in it."""
    import torch
    import torch.distributed.checkpoint as dcp

    from hearth_checkpoint.torch import HearthWriter, elastic

    def save(step):
        dcp.save({"w": torch.ones(10)}, checkpoint_id=f"{base}/step-{step}_ckpt",
                 storage_writer=HearthWriter(base))

    aborts, refused = [], []

    def abort():
        with pytest.raises(dcp.api.CheckpointException, match="closed"):
            save(2)
        refused.append(True)
        time.sleep(0.2)
        aborts.append(job._left.is_set())

    job = elastic.Elastic(base, backend="cpu:gloo,cuda:nccl")
    job._turn = turn = elastic.Turn(1, 0, 2, base)
    save(1)
    monkeypatch.setattr(elastic, "_abort", abort)
    monkeypatch.setattr(elastic, "dist", types.SimpleNamespace(is_initialized=lambda: True))
    job._broken(1, "rank 1 is lost")
    deadline = time.monotonic() + WAIT_S
    while len(aborts) < 2 or len(refused) == len(aborts):  # the third abort is under way
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert turn.lost.is_set() and job._ending.is_alive()
    monkeypatch.setattr(elastic, "_leave_group", lambda abort: aborts.append("left"))
    job._tear_down()
    assert aborts[-1] == "left" and job._ending is None
    count = len(aborts)
    time.sleep(0.3)
    assert len(aborts) == count and len(refused) == count - 1


def test_what_nccl_finds_broken_breaks_the_turn(monkeypatch):
    """Nobody raises: get_error() is asked. It fails where there is no group yet."""
    from hearth_checkpoint.torch import elastic

    errors = iter(["no group", "SUCCESS", "TIMEOUT"])

    class Backend:
        def get_error(self):
            name = next(errors, "no more")
            if name == "no more":
                left.set()
            assert not name.startswith("no ")
            return types.SimpleNamespace(name=name)

    world = types.SimpleNamespace(_get_backend=lambda device: Backend())
    monkeypatch.setattr(elastic, "dist",
                        types.SimpleNamespace(group=types.SimpleNamespace(WORLD=world)))
    left, said, ended = threading.Event(), [], []
    line = types.SimpleNamespace(say=lambda **word: said.append(word))
    job = elastic.Elastic("/dev/shm/x/job", backend="cpu:gloo,cuda:nccl")
    monkeypatch.setattr(job, "_end_collectives", lambda left: ended.append(left))
    job._turn = turn = elastic.Turn(3, 0, 2, job.base)
    job._watch(turn, line, left)  # its word reaches nobody, and nobody says "broken"
    assert said == [{"say": "failed", "turn": 3, "why": "NCCL says TIMEOUT"}]
    assert turn.lost.is_set()
    job._broken(3, "the launcher says so as well")
    job._ending.join(WAIT_S)
    assert ended == [job._left]
    left.set()
    job._watch(elastic.Turn(4, 0, 2, job.base), line, left)
    assert len(said) == 1 and next(errors, None) is None


def test_what_one_does_about_a_loss_may_fail(monkeypatch):
    """on_lost raises, or comes late: collectives are aborted, and the next turn's job is not
    closed."""
    from hearth_checkpoint.torch import elastic

    def on_lost():
        raise KeyError("made to fail")

    closed, aborted = [], threading.Event()
    monkeypatch.setattr(elastic, "_close_job", lambda base: closed.append(base))
    monkeypatch.setattr(elastic, "_abort", aborted.set)
    monkeypatch.setattr(elastic, "dist", types.SimpleNamespace(is_initialized=lambda: True))
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    job = elastic.Elastic("/dev/shm/x/job", backend="nccl", on_lost=on_lost)
    job._turn = elastic.Turn(1, 0, 2, job.base)
    job._broken(1, "rank 1 is lost")
    assert aborted.wait(WAIT_S) and len(closed) == 1
    job._left.set()
    job._ending.join(WAIT_S)
    aborted.clear()
    job._turn = elastic.Turn(2, 0, 2, job.base)
    job._broken(2, "when it was left")
    job._ending.join(WAIT_S)
    assert len(closed) == 1 and not aborted.is_set()


def test_what_one_does_about_a_loss_is_done_before_the_next_turn(serve, monkeypatch):
    """Also where train() has left before it begins."""
    from hearth_checkpoint.torch import elastic

    acts = []

    def on_lost():
        time.sleep(0.5)
        acts.append(job._turn.number)

    monkeypatch.setenv("RANK", "0")  # given back after the test
    monkeypatch.setenv("WORLD_SIZE", "1")
    job = elastic.Elastic("/dev/shm/x/job", on_lost=on_lost)
    line = Line(serve(1, settle_s=WAIT_S).at, WAIT_S, job._broken)
    assert job._next(line, {}).number == 1
    job._tear_down()
    line.say(say="failed", turn=1, why="gloo: connection closed")  # as if it took that long
    assert job._next(line, {}).number == 2
    assert acts == [1]
    line.close()


# ---- whole jobs ----------------------------------------------------------------------------------


def start(folder, at, node, how="", **variables):
    """A process of elastic_work.py on a node of its own."""
    os.makedirs(f"{folder}/{node}", exist_ok=True)
    environment = {
        **os.environ, "PYTHONPATH": os.path.dirname(HERE), "MASTER_ADDR": at[0],
        "MASTER_PORT": str(at[1]), "HEARTH_ROOT": f"{folder}/{node}", "HEARTH_JOB": "job",
        "HEARTH_NODE": node, "HEARTH_MACHINE": node, "HEARTH_HEARTBEAT_MS": "300",
        "HEARTH_DEAD_MS": "3000",
        "HEARTH_LINGER_S": "20", "HEARTH_TRANSPORT": "tcp", "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1", **variables}
    return subprocess.Popen([sys.executable, f"{HERE}/elastic_work.py", *how.split()],
                            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def ends(process):
    said, _ = process.communicate(timeout=120)
    return process.returncode, said


def wait_for(mark, process):
    """A file that a process makes; another's output where it does not."""
    until = time.monotonic() + 60
    while not os.path.exists(mark):
        assert time.monotonic() < until, ends(process)
        time.sleep(0.05)


@pytest.fixture
def processes():
    """Killed at the end, those that live."""
    made = []
    yield made
    for process in made:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_rank_that_hangs_is_replaced_and_its_neighbour_lives(serve, folder, processes):
    """Nothing of it dies, so nobody hears of it but by the group's time-out."""
    served = serve(2, settle_s=5, spare_s=60)
    processes += [start(folder, served.at, "node0"), start(folder, served.at, "node1", "hang")]
    pid = processes[0].pid
    wait_for(f"{folder}/node1/hangs", processes[0])
    processes.append(start(folder, served.at, "spare"))
    code, said = ends(processes[0])
    assert code == 0, said
    assert f"done 30.0 of turn 2 in {pid}, pulled 0, told True" in said
    code, said = ends(processes[2])
    assert code == 0 and "done 30.0 of turn 2" in said and "pulled 0" not in said, said


def test_a_rank_that_is_stopped_is_replaced_on_another_node(serve, folder, processes):
    """It cannot leave its engine, which takes no second process for its rank."""
    served = serve(2, settle_s=5, spare_s=60)
    processes += [start(folder, served.at, node, "pause") for node in ("node0", "node1")]
    for node in ("node0", "node1"):
        wait_for(f"{folder}/{node}/pauses", processes[0])
    processes += [start(folder, served.at, "node1"), start(folder, served.at, "spare")]
    until = time.monotonic() + 60
    while len(served.launcher._free()) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    processes[1].send_signal(signal.SIGSTOP)
    open(f"{folder}/node0/goes on", "w").close()
    for process in processes[0], processes[3]:
        code, said = ends(process)
        assert code == 0 and f"done 30.0 of turn 2 in {process.pid}" in said, said
    code, said = ends(processes[2])
    assert code == 0 and "done" not in said, said


@pytest.mark.parametrize("group", ["default", "own"])
def test_who_waits_for_a_lost_rank_in_making_a_group_lives(serve, folder, processes, group):
    """Longer than a rank has to leave a turn."""
    served = serve(2, settle_s=3, spare_s=60)
    processes += [start(folder, served.at, "node0", f"group-{group}", TIMEOUT_S="30"),
                  start(folder, served.at, "node1", f"no-group-{group}", TIMEOUT_S="30")]
    assert processes[1].wait(60) == 9
    processes.append(start(folder, served.at, "spare", f"group-{group}", TIMEOUT_S="30"))
    for process in (processes[0], processes[2]):
        code, said = ends(process)
        assert code == 0 and f"done 30.0 of turn 2 in {process.pid}" in said, said


def test_a_node_of_two_ranks_is_replaced_by_one(serve, folder, processes):
    """Both ranks, their engine and their memory; the others' two share one."""
    served = serve(4, spare_s=60)
    processes += [start(folder, served.at, node, how, LOCAL_RANK=local)
                  for node, how in (("node0", ""), ("node1", "hang")) for local in "01"]
    wait_for(f"{folder}/node1/hangs", processes[0])
    with open(f"{folder}/node1/job/.hearth/lock") as lock:
        os.kill(int(lock.read().split()[0]), signal.SIGKILL)
    processes[2].kill()
    processes[3].kill()
    shutil.rmtree(f"{folder}/node1", ignore_errors=True)
    spares = [start(folder, served.at, "spare", LOCAL_RANK=local) for local in "01"]
    processes += spares
    for process in processes[:2]:
        code, said = ends(process)
        assert code == 0, said
        assert f"done 30.0 of turn 2 in {process.pid}, pulled 0, told True" in said
    for process in spares:
        code, said = ends(process)
        assert code == 0 and "done 30.0 of turn 2" in said and "pulled 0" not in said, said


def test_an_error_of_ones_own_ends_all_with_its_text(serve, folder, processes):
    served = serve(2, retries=1)
    processes += [start(folder, served.at, "node0"), start(folder, served.at, "node1", "raise")]
    for process in processes:
        code, said = ends(process)
        assert code == 1
        assert "2 times in a row without a loss: rank 1" in said and "made to fail" in said, said
    assert "made to fail" in served.why()


def test_who_trains_to_the_end_without_the_launcher_has_its_result(folder, processes):
    """Nobody can say that all are done. The lines are cut in mid-training."""
    launcher = subprocess.Popen(
        [sys.executable, "-m", "hearth_checkpoint.torch.elastic", "--ranks", "2",
         "--listen", "127.0.0.1:0"],
        env={**os.environ, "PYTHONPATH": os.path.dirname(HERE)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, text=True)
    processes.append(launcher)
    at = "127.0.0.1", int(launcher.stdout.readline().rpartition(":")[2])
    ranks = [start(folder, at, node, "pause") for node in ("node0", "node1")]
    processes += ranks
    for node in ("node0", "node1"):
        wait_for(f"{folder}/{node}/pauses", ranks[0])
    launcher.kill()
    launcher.communicate()
    for node in ("node0", "node1"):
        open(f"{folder}/{node}/goes on", "w").close()
    for rank, process in enumerate(ranks):
        code, said = ends(process)
        assert code == 0 and "done 30.0 of turn 1" in said, said
        assert f"rank {rank} is done, and whether all are is not known" in said, said


def test_a_save_that_is_under_way_when_training_ends_is_waited_for(serve, folder, processes):
    served = serve(2)
    processes += [start(folder, served.at, node, "late-save") for node in ("node0", "node1")]
    for process in processes:
        code, said = ends(process)
        assert code == 0 and "the last save: None" in said, said
