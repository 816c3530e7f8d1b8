# SPDX-License-Identifier: Apache-2.0
"""States on a GPU: what is saved is what the stream had written, also when training goes on at
once; and jobs whose ranks meet over NCCL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed.checkpoint as dcp
from test_elastic import ends, processes, serve, start  # noqa: F401 (fixtures)

from hearth_checkpoint import HearthError
from hearth_checkpoint.torch import HearthReader, HearthWriter, async_save, before_step

HERE = os.path.dirname(os.path.abspath(__file__))
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

# What lets several processes of NCCL share a GPU: each calls itself a host of its own.
NCCL = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
          torch.complex64, torch.int64, torch.int8, torch.uint8, torch.bool)


def drawn(dtype, shape):
    """Anything, on the GPU."""
    if dtype.is_complex or dtype in (torch.float64, torch.float32):
        return torch.randn(shape, dtype=dtype, device="cuda")
    if dtype.is_floating_point:
        return torch.randn(shape, device="cuda").to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 100, shape, device="cuda").to(dtype)


def make_state():
    torch.manual_seed(1)
    state = {str(dtype): drawn(dtype, (33, 7)) for dtype in DTYPES}
    return {**state, "columns": drawn(torch.float32, (64, 48)).t(),
            "strided": drawn(torch.bfloat16, (100, 10))[::3, 1::2],
            "conj": drawn(torch.complex64, (5, 6)).conj(), "scalar": drawn(torch.float32, ()),
            "none": drawn(torch.float32, (0, 4)), "on the host": torch.arange(10),
            "parameter": torch.nn.Parameter(drawn(torch.float32, (3, 3))), "step": 7}


def bits(state):
    """Of each tensor, on the host."""
    return {key: value.detach().cpu().resolve_conj().clone().flatten().view(torch.uint8)
            for key, value in state.items() if isinstance(value, torch.Tensor) and value.numel()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def spoil(state):
    """In place, as the next step of a training does."""
    with torch.no_grad():
        for value in state.values():
            if isinstance(value, torch.Tensor) and value.is_cuda and value.numel():
                value.copy_(torch.zeros_like(value))


def load(state, path):
    spoil(state)
    state["step"] = 0
    dcp.load(state, checkpoint_id=path, storage_reader=HearthReader())
    assert state["step"] == 7
    assert all(value.is_cuda for key, value in state.items()
               if isinstance(value, torch.Tensor) and key != "on the host")
    return bits(state)


def test_what_a_gpu_has_is_saved_and_loaded(base):
    state = make_state()
    want = bits(state)
    dcp.save(state, checkpoint_id=f"{base}/step-1_ckpt", storage_writer=HearthWriter(base))
    assert equal(load(state, f"{base}/step-1_ckpt"), want)


@pytest.mark.parametrize("save", [async_save, dcp.async_save], ids=["hearth", "torch"])
def test_training_may_go_on_when_an_async_save_returns(base, save):
    state = make_state()
    want = bits(state)
    future = save(state, checkpoint_id=f"{base}/step-1_ckpt", storage_writer=HearthWriter(base))
    spoil(state)
    torch.cuda.synchronize()
    future.result(120)
    assert equal(load(state, f"{base}/step-1_ckpt"), want)


@pytest.mark.parametrize("save", [async_save, dcp.async_save], ids=["hearth", "torch"])
def test_with_overlap_tensors_may_change_behind_before_step(base, save):
    writer = HearthWriter(base, overlap=True)
    for step in range(1, 7):  # the last ones into pinned slots
        state = make_state()
        state["large"] = torch.full((1 << 26,), float(step), device="cuda")
        want = bits(state)
        saved = save(state, checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=writer)
        before_step()
        spoil(state)
        getattr(saved, "upload_completion", saved).result(120)
        assert equal(load(state, f"{base}/step-{step}_ckpt"), want)


def test_a_save_inside_a_capture_is_refused(base):
    state, graph = make_state(), torch.cuda.CUDAGraph()
    before_step()
    with torch.cuda.graph(graph):
        state["torch.float32"].add_(1)
        with pytest.raises(HearthError, match="capture of a CUDA graph"):
            before_step()
        with pytest.raises(dcp.api.CheckpointException, match="capture of a CUDA graph"):
            dcp.save(state, checkpoint_id=f"{base}/step-1_ckpt", storage_writer=HearthWriter(base))
    graph.replay()


def test_a_save_waits_for_the_stream_that_it_is_called_on(base):
    state = {"late": torch.zeros(1 << 20, device="cuda")}
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(1 << 30)  # about half a second
        state["late"].fill_(3)
        future = async_save(state, checkpoint_id=f"{base}/step-1_ckpt",
                            storage_writer=HearthWriter(base))
        state["late"].fill_(4)
    future.result(60)
    dcp.load(state, checkpoint_id=f"{base}/step-1_ckpt", storage_reader=HearthReader())
    assert state["late"].unique().tolist() == [3]


def test_fsdp_over_nccl_goes_on_from_each_of_its_saves(folder, processes):  # noqa: F811
    for rank in range(2):
        os.makedirs(f"{folder}/node{rank}")
        processes.append(subprocess.Popen(
            [sys.executable, f"{HERE}/cuda_work.py", folder], stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, **NCCL, "PYTHONPATH": os.path.dirname(HERE), "RANK": str(rank),
                 "WORLD_SIZE": "2",
                 "HEARTH_ROOT": f"{folder}/node{rank}", "HEARTH_JOB": "job",
                 "HEARTH_NODE": f"node{rank}", "HEARTH_MACHINE": f"node{rank}",
                 "NCCL_HOSTID": f"node{rank}",
                 "HEARTH_LINGER_S": "10", "HEARTH_TRANSPORT": "tcp", "GLOO_SOCKET_IFNAME": "lo"}))
    for process in processes:
        code, said = ends(process)
        assert code == 0 and said.count("same True") == 3, said


@pytest.mark.parametrize("end", ["killed", "hangs"])
def test_a_rank_is_replaced_where_nccl_hangs(serve, folder, processes, end):  # noqa: F811
    """The survivor waits in a save, for a sum that an abort will end with anything in it: that is
    not saved, and the process lives."""
    served = serve(2, settle_s=5, spare_s=90)

    def rank(node, how=""):
        return start(folder, served.at, node, f"cuda {how}", **NCCL, NCCL_HOSTID=node)

    processes += [rank("node0"), rank("node1", "hang")]
    pid = processes[0].pid
    hung = time.monotonic() + 90
    while not os.path.exists(f"{folder}/node1/hangs"):
        assert time.monotonic() < hung and processes[0].poll() is None, ends(processes[0])
        time.sleep(0.05)
    time.sleep(1)  # the other waits for it by now
    if end == "killed":
        processes[1].send_signal(signal.SIGKILL)
    processes.append(rank("spare"))
    code, said = ends(processes[0])
    assert code == 0, said
    assert f"done 30.0 of turn 2 in {pid}, pulled 0, told True" in said
    code, said = ends(processes[2])
    assert code == 0 and "done 30.0 of turn 2" in said and "pulled 0" not in said, said


def test_hot_swap_demo_over_nccl():
    said = subprocess.run(
        [sys.executable, f"{HERE}/../examples/hot_swap.py", "--demo", "--rounds", "2", "--device",
         "cuda", "--dead-ms", "5000"], timeout=400, text=True, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": os.path.dirname(HERE)})
    assert said.returncode == 0, said.stdout + said.stderr
    for line in ("survivors' processes the same: yes", "bytes pulled by survivors: 0",
                 "losses identical: yes", "weights identical: yes"):
        assert line in said.stdout.splitlines()
