# SPDX-License-Identifier: Apache-2.0
"""What test_gpu.py runs, each function in a process of its own: saves of tensors in the memory of a
fake GPU."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import time
import weakref

import fake_gpu
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ranks import keep_ports
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from hearth_checkpoint import HearthError
from hearth_checkpoint.torch import HearthReader, HearthWriter, async_save, before_step, leave
from hearth_checkpoint.torch._rank_local import Reader, Stager
from hearth_checkpoint.torch._whole import Saver, read

COUNT = 300_000  # floats of a tensor: more than a chunk together with others
SLOTS = 5  # saves after which every slot that comes round is pinned
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
          torch.complex64, torch.int64, torch.int8, torch.uint8, torch.bool)


def drawn(dtype, shape):
    """Anything, on the host."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else None).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(dtype)


def bits(state):
    return {key: value.detach().cpu().contiguous().flatten().view(torch.uint8)
            for key, value in state.items() if isinstance(value, torch.Tensor) and value.numel()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def loaded(base, step, like):
    """The state of a step, in host memory."""
    state = {key: torch.zeros(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor)
             else None for key, value in like.items()}
    dcp.load(state, checkpoint_id=f"{base}/step-{step}_ckpt", storage_reader=HearthReader())
    return state


def pinned(gpu, base, writer, state):
    """The next step, once the slots that come round are pinned."""
    for step in range(1, SLOTS):
        dcp.save(state, checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=writer)
        until = time.monotonic() + 0.5
        while gpu.state.registered < 1 + step // 2 and time.monotonic() < until:
            time.sleep(0.001)
    staged = gpu.state.staged
    dcp.save(state, checkpoint_id=f"{base}/step-{SLOTS}_ckpt", storage_writer=writer)
    assert gpu.state.staged == staged, "the slots are not pinned"
    return SLOTS + 1


def anything(gpu):
    """On the host and on two GPUs, and what it is of."""
    host = {str(dtype): drawn(dtype, (33, 7)) for dtype in DTYPES}
    host.update({
        "columns": drawn(torch.float32, (64, 48)).t(), "scalar": drawn(torch.float32, ()),
        "rows": drawn(torch.bfloat16, (100, 10))[::3, 2:8],
        "every other": drawn(torch.bfloat16, (100, 10))[:, ::2],
        "planes": drawn(torch.float32, (7, 9, 11))[1:6, 2:7, 3:9],
        "four": drawn(torch.float32, (4, 5, 6, 7))[1:3, 1:4, 1:5, 1:6],
        "expanded": drawn(torch.float32, (1, 8)).expand(5, 8)})
    state = {key: gpu.tensor(value, i % 2) for i, (key, value) in enumerate(host.items())}
    more = {"on the host": torch.arange(10), "none": torch.zeros(0, 4), "step": 7}
    for key, value in more.items():
        host[key] = state[key] = value
    return state, host


def of_all_kinds(gpu, base):
    for step, save in enumerate((dcp.save, async_save, dcp.async_save) * 2, 1):
        writer = HearthWriter(base)
        state, host = anything(gpu)
        saved = save(state, checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=writer)
        if hasattr(saved, "result"):
            saved.result(60)
        got = loaded(base, step, host)
        assert equal(bits(got), bits(host)) and got["step"] == 7, step


def again(gpu, base):
    """A writer's second save has the layout and the plan of the first one."""
    writer = HearthWriter(base)
    for step in range(1, 13):
        state, host = anything(gpu)
        if step > 6:  # a layout is kept: each key is planned and copied as before
            for of in state, host:
                del of["columns"], of["every other"], of["four"], of["expanded"]
        save = (async_save, dcp.save, async_save)[step % 3]
        saved = save(state, checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=writer)
        if hasattr(saved, "result"):
            saved.result(60)
        assert equal(bits(loaded(base, step, host)), bits(host)), step


def one(gpu, value=5.0, device=0):
    host = torch.full((COUNT,), value)
    return {"w": gpu.tensor(host, device)}, {"w": host}


def change_after(gpu, base, save, writer, then, steps, own=True):
    """Whether saves have the values from before a kernel that then() is followed by."""
    if own:
        gpu.own_streams()
    state, host = one(gpu)
    step = pinned(gpu, base, writer, state)
    gpu.state.delay_us = 3000
    old = []
    for number in range(step, step + steps):
        state, host = one(gpu, float(number))
        saved = save(state, checkpoint_id=f"{base}/step-{number}_ckpt", storage_writer=writer)
        then()
        gpu.current[0].fill(state["w"], 0)
        getattr(saved, "upload_completion", saved).result(60)
        gpu.current[0].synchronize()
        assert not gpu.read(state["w"]).any(), "the kernel did not run"
        old.append(equal(bits(loaded(base, number, host)), bits(host)))
    gpu.state.delay_us = 0
    return old


def a_kernel_after_a_save_that_returned(gpu, base):
    for at, save in (f"{base}1", async_save), (f"{base}2", dcp.async_save):
        assert all(change_after(gpu, at, save, HearthWriter(at), lambda: None, 12))


def a_kernel_on_the_default_stream(gpu, base):
    assert all(change_after(gpu, base, async_save, HearthWriter(base), lambda: None, 12, False))


def a_kernel_after_before_step(gpu, base):
    for at, save in (f"{base}1", async_save), (f"{base}2", dcp.async_save):
        assert all(change_after(gpu, at, save, HearthWriter(at, overlap=True), before_step, 12))


def a_kernel_without_before_step(gpu, base):
    """With overlap the caller promises a fence: without, a save has what the kernel wrote."""
    assert not all(change_after(
        gpu, base, async_save, HearthWriter(base, overlap=True), lambda: None, 30))


def a_kernel_after_staging_completion(gpu, base):
    writer, state = HearthWriter(base, overlap=True), one(gpu)[0]
    step = pinned(gpu, base, writer, state)
    gpu.state.delay_us = 3000
    for number in range(step, step + 8):
        state, host = one(gpu, float(number))
        saved = dcp.async_save(state, checkpoint_id=f"{base}/step-{number}_ckpt",
                               storage_writer=writer)
        saved.staging_completion.result(60)
        other = gpu.stream(0)
        other.fill(state["w"], 0)
        saved.upload_completion.result(60)
        assert equal(bits(loaded(base, number, host)), bits(host))


def a_save_after_the_kernels_before_it(gpu, base):
    """Of both GPUs' streams, whichever of them is a default one."""
    writer = HearthWriter(base)
    step = pinned(gpu, base, writer, {**one(gpu)[0], "v": one(gpu, device=1)[0]["w"]})
    gpu.state.delay_us = 3000
    for number, (first, second) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1)) * 3, step):
        gpu.current = [gpu.stream(device) if own else gpu.default[device]
                       for device, own in enumerate((first, second))]
        state = {**one(gpu)[0], "v": one(gpu, device=1)[0]["w"]}
        for stream, tensor in zip(gpu.current, state.values()):
            stream.fill(tensor, 0)
        saved = async_save(state, checkpoint_id=f"{base}/step-{number}_ckpt", storage_writer=writer)
        for stream, tensor in zip(gpu.current, state.values()):
            stream.fill(tensor, 1)
        saved.result(60)
        got = loaded(base, number, state)
        assert not any(value.any() for value in got.values()), (number, first, second)


def parts_on_several_streams(gpu, base):
    names = ("model", "optimizer")
    writers = [HearthWriter(base, part=part, parts=names, overlap=True) for part in names]
    for number in range(1, 9):
        gpu.state.delay_us = 0 if number < SLOTS else 3000
        states = [one(gpu)[0], one(gpu)[0]]
        saves = []
        for part, state, writer in zip(names, states, writers):
            gpu.current[0] = gpu.stream(0)
            gpu.current[0].fill(state["w"], 0)
            saves.append(async_save(state, checkpoint_id=f"{base}/step-{number}_ckpt/{part}",
                                    storage_writer=writer))
        gpu.current[0] = gpu.stream(0)
        before_step()
        for state in states:
            gpu.current[0].fill(state["w"], 1)
        for save in saves:
            save.result(60)
        for part in names:
            got = {"w": torch.ones(COUNT)}
            dcp.load(got, checkpoint_id=f"{base}/step-{number}_ckpt",
                     storage_reader=HearthReader(part=part))
            assert not got["w"].any(), (number, part)


def no_call_waits_for_a_gpu(gpu, base):
    writer, (state, host) = HearthWriter(base, overlap=True), one(gpu)
    gpu.own_streams()
    step = pinned(gpu, base, writer, state)
    gpu.state.hold = 1
    begun = time.monotonic()
    saved = async_save(state, checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=writer)
    before_step()
    gpu.current[0].fill(state["w"], 0)
    took = time.monotonic() - begun
    time.sleep(0.3)
    assert not saved.done() and took < 5, took
    gpu.state.hold = 0
    saved.result(60)
    assert equal(bits(loaded(base, step, host)), bits(host))


def through_the_buffers(gpu, base):
    """Slots are not pinned: the fence itself waits then, while all tensors leave the GPU."""
    writer = HearthWriter(base, overlap=True, pin="no")
    gpu.own_streams()
    gpu.state.delay_us = 2000
    for step in range(1, 6):
        state, host = one(gpu, float(step))
        saved = async_save(state, checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=writer)
        before_step()
        gpu.current[0].fill(state["w"], 0)
        saved.result(60)
        assert equal(bits(loaded(base, step, host)), bits(host))
    assert gpu.state.registered == 1, "the buffers alone"


def dtensors(gpu, base):
    """As FSDP2 has them: what a rank has of each lies in GPU memory."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    for step in range(1, 4):
        host = {name: drawn(torch.float32, (64, 33)) for name in "abc"}
        state = {name: DTensor(gpu.tensor(value), DTensorSpec(
            mesh, (Shard(0),), tensor_meta=TensorMeta(value.shape, value.stride(), value.dtype)),
            requires_grad=False) for name, value in host.items()}
        saved = async_save(state, checkpoint_id=f"{base}/step-{step}_ckpt",
                           storage_writer=HearthWriter(base))
        for value in state.values():
            gpu.current[0].fill(value._local_tensor, 0)
        saved.result(60)
        assert equal(bits(loaded(base, step, host)), bits(host))
    dist.destroy_process_group()


def tensors_that_are_dropped(gpu, base):
    """Their memory is held until it is copied, and not longer."""
    writer, (state, host) = HearthWriter(base, overlap=True), one(gpu)
    step = pinned(gpu, base, writer, state)
    gpu.state.hold = 1
    saved = async_save(state, checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=writer)
    before_step()
    del state
    gc.collect()
    assert len(gpu._memory) == 1, "freed while it is being copied"
    gpu.state.hold = 0
    saved.result(60)
    gc.collect()
    assert not gpu._memory, "held when all is copied"
    assert equal(bits(loaded(base, step, host)), bits(host))


def a_save_that_is_withdrawn(gpu, base):
    """Giving it up does not wait for the GPU; its memory is held, and its slot is free later."""
    writer, (state, host) = HearthWriter(base, overlap=True), one(gpu)
    step = pinned(gpu, base, writer, state)
    for number in range(step, step + 6):
        gpu.state.hold = 1
        current = writer.copy(state)
        held = len(gpu._memory)
        begun = time.monotonic()
        writer.withdraw(current)
        assert time.monotonic() - begun < 5
        del current
        gc.collect()
        assert len(gpu._memory) == held == 1
        before_step()
        gpu.state.hold = 0
        saved = async_save(state, checkpoint_id=f"{base}/step-{number}_ckpt", storage_writer=writer)
        saved.result(60)
        assert equal(bits(loaded(base, number, host)), bits(host))
    del state
    until = time.monotonic() + 10
    while gpu._memory and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert not gpu._memory


def a_save_that_the_collector_drops(gpu, base):
    """It runs wherever objects are made, also where before_step() looks which saves there are."""
    gpu.state.hold = 1
    kept = Stager(base=base).stage(one(gpu)[0])
    gc.disable()
    dropped = Stager(base=base).stage(one(gpu)[0])
    dropped["loop"] = dropped
    del dropped
    found = []

    def collect(frame, *_):
        if frame.f_code is weakref.WeakSet.__iter__.__code__:
            sys.setprofile(None)
            found.append(gc.collect())

    sys.setprofile(collect)
    before_step()
    gc.enable()
    assert found[0] and len(gpu._memory) == 2, "freed while it is being copied"
    gpu.state.hold = 0
    kept.wait()
    until = time.monotonic() + 10
    while gpu._memory and time.monotonic() < until:
        time.sleep(0.01)
    assert not gpu._memory


def inside_a_capture(gpu, base):
    state, host = one(gpu)
    writer = HearthWriter(base)
    dcp.save(state, checkpoint_id=f"{base}/step-1_ckpt", storage_writer=writer)
    gpu.captures = True
    for call in (before_step, lambda: async_save(
            state, checkpoint_id=f"{base}/step-2_ckpt", storage_writer=writer).result(60),
            lambda: dcp.save(state, checkpoint_id=f"{base}/step-2_ckpt", storage_writer=writer)):
        try:
            call()
        except (HearthError, dcp.api.CheckpointException) as error:
            assert "capture of a CUDA graph" in str(error), error
        else:
            raise AssertionError("not refused")
    gpu.captures = False
    dcp.save({"w": state["w"]}, checkpoint_id=f"{base}/step-2_ckpt", storage_writer=writer)
    assert equal(bits(loaded(base, 2, host)), bits(host))


def a_gpu_that_breaks(gpu, base):
    """Its save fails by name, also with the fence before; the process and the other GPU go on."""
    writer = HearthWriter(base, overlap=True)
    state, host = one(gpu)
    step = pinned(gpu, base, writer, {**state, "v": one(gpu, device=1)[0]["w"]})
    lost = {"v": one(gpu, device=1)[0]["w"]}
    gpu.state.hold = 1
    saved = async_save(lost, checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=writer)
    gpu.lib.fakegpu_break(1, 700)
    gpu.state.hold = 0
    before_step()
    try:
        saved.result(60)
    except dcp.api.CheckpointException as error:
        assert "piece 'v'" in str(error) and "GPU 1" in str(error) and "700" in str(error), error
    else:
        raise AssertionError("it was saved")
    step += 1
    saved = async_save(state, checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=writer)
    before_step()
    saved.result(60)
    assert equal(bits(loaded(base, step, host)), bits(host))


def into_another_process(gpu, base):
    keep_ports()
    dist.init_process_group("gloo", init_method=f"file://{base}.store", rank=0, world_size=1)
    for step, overlap in enumerate((False, True, True), 1):
        writer = HearthWriter(base, overlap=overlap)
        state, host = one(gpu, float(step))
        saved = dcp.async_save(
            state, checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=writer,
            async_checkpointer_type=AsyncCheckpointerType.PROCESS)
        before_step()
        gpu.current[0].fill(state["w"], 0)
        getattr(saved, "upload_completion", saved).result(120)
        assert equal(bits(loaded(base, step, host)), bits(host))
    dist.destroy_process_group()


def of_a_framework(gpu, base):
    """A nested state in one object, as Lightning and Accelerate save."""
    saver = Saver(base, on_error="raise")
    gpu.own_streams()
    gpu.state.delay_us = 2000
    for step in range(1, 8):
        state, host = anything(gpu)
        made = {"nested": [state, ({"more": gpu.tensor(host["rows"])},)], "step": step}
        saved = saver.save(f"step-{step}", lambda: made)
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and gpu.is_gpu(value) and value.is_contiguous():
                gpu.current[gpu.index(value)].fill(value, 0)
        saved.result(60)
        got = read(f"{base}/step-{step}")
        assert equal(bits(got["nested"][0]), bits(host)), step
        assert torch.equal(got["nested"][1][0]["more"], host["rows"]) and got["step"] == step
    saver.close()


def a_job_that_is_off(gpu, base):
    """What is staged can be read, though nothing of it is saved."""
    host = torch.arange(1000.0)
    stager = Stager(base=base, off=True)
    for _ in range(2):
        staged = stager.stage({"w": gpu.tensor(host), "h": host.clone()})
        assert torch.equal(staged["w"], host) and torch.equal(staged["h"], host)
        staged = None
    stager.close()
    writer = HearthWriter(base, off=True)
    for _ in range(2):
        state = writer.stage({"w": gpu.tensor(host), "h": host.clone()})
        assert torch.equal(state["w"], host) and torch.equal(state["h"], host)


def loads(gpu, base):
    """Into GPU memory, behind what the current streams have, by either kind of reader."""
    gpu.own_streams()
    saver = Saver(f"{base}1", on_error="raise")
    for step in range(1, 6):
        state, host = anything(gpu)
        del state["expanded"], host["expanded"]
        dcp.save(state, checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=HearthWriter(base))
        saver.save(f"step-{step}", lambda: dict(state)).result(60)  # noqa: B023
        gpu.state.delay_us = 3000
        for load in (
                lambda into: dcp.load(into, checkpoint_id=f"{base}/step-{step}_ckpt",  # noqa: B023
                                      storage_reader=HearthReader()),
                lambda into: Reader().read(f"{base}1/step-{step}", into)):  # noqa: B023
            into = {key: gpu.tensor(value, i % 2) if isinstance(value, torch.Tensor) else 0
                    for i, (key, value) in enumerate(host.items())}
            for value in into.values():
                if isinstance(value, torch.Tensor) and gpu.is_gpu(value) and value.is_contiguous():
                    gpu.current[gpu.index(value)].fill(value, 1)
            load(into)
            got = {key: gpu.read(value) if isinstance(value, torch.Tensor) and value.numel()
                   and gpu.is_gpu(value) else value for key, value in into.items()}
            assert equal(bits(got), bits(host)), step
            for stream in gpu.current:
                stream.synchronize()
            got = {key: gpu.read(value) if isinstance(value, torch.Tensor) and value.numel()
                   and gpu.is_gpu(value) else value for key, value in into.items()}
            assert equal(bits(got), bits(host)), "a kernel from before the load ran after it"
        gpu.state.delay_us = 0
    saver.close()
    gpu.captures = True
    try:
        dcp.load(into, checkpoint_id=f"{base}/step-5_ckpt", storage_reader=HearthReader())
    except dcp.api.CheckpointException as error:
        assert "a load into GPU memory inside the capture" in str(error), error
    else:
        raise AssertionError("not refused")


def the_memory_that_a_save_takes(gpu, base):
    """Of the host: the slot, and no second copy."""
    size = 256 << 20
    state = {f"w{i}": gpu.tensor(torch.full((size // 32,), i, dtype=torch.float32))
             for i in range(8)}

    def most(reset=False):
        if reset:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))

    for at, save in (f"{base}1", dcp.save), (f"{base}2", async_save):
        gc.collect()
        before = most(reset=True)
        saved = save(state, checkpoint_id=f"{at}/step-1_ckpt", storage_writer=HearthWriter(at))
        if hasattr(saved, "result"):
            saved.result(60)
        took = most() - before
        assert took <= size * 1.02 + (64 << 20), took >> 20
        leave(at, keep=False)


if __name__ == "__main__":
    faulthandler.enable()
    faulthandler.dump_traceback_later(240)  # before test_gpu.py ends the process
    made = fake_gpu.start()
    globals()[sys.argv[1]](made, sys.argv[2])
    gc.collect()
    from hearth_checkpoint.torch import _jobs

    for path in _jobs.open_bases():
        leave(path, keep=False)
    assert not made.state.sins, made.state.sin
    print("well", flush=True)
    os._exit(0)
