# SPDX-License-Identifier: Apache-2.0
"""GPUs for tests without one: tests/support/fakegpu as the process's libcuda.so.1.

A tensor here is torch's own, of the host as torch has it, whose memory is a fake device's: whatever
but the driver reads or writes there dies by SIGSEGV. start() puts answers about these tensors, and
about streams, in the place of torch's (hearth_checkpoint.torch._gpu).
"""

from __future__ import annotations

import ctypes as c
import os
import re
import subprocess
import weakref
from pathlib import Path
from typing import Any

import torch

from hearth_checkpoint.torch import _gpu

ROOT = Path(__file__).resolve().parents[3]
U64 = c.c_uint64
_TYPES = {"_Atomic uint64_t": U64, "_Atomic uint32_t": c.c_uint32, "char": c.c_char}


def _fields() -> list[tuple[str, Any]]:
    """Of struct fakegpu, as its header has them"""
    text = (ROOT / "tests/support/fakegpu/fakegpu.h").read_text()
    threads = int(re.search(r"define FAKEGPU_THREADS (\d+)", text)[1])
    body = re.sub(r"/\*.*?\*/", "", re.search(r"^struct fakegpu {(.*?)^};", text, re.M | re.S)[1],
                  flags=re.S)
    fields: list[tuple[str, Any]] = []
    for kind, names in re.findall(r"(_Atomic \w+|char) ([^;]+);", body):
        for name, count in re.findall(r"(\w+)(?:\[(\w+)\])?", re.sub(r"\s", "", names)):
            many = threads if count == "FAKEGPU_THREADS" else int(count or 1)
            fields.append((name, _TYPES[kind] * many if count else _TYPES[kind]))
    return fields


class _State(c.Structure):
    """struct fakegpu"""

    _fields_ = _fields()


_PROTOTYPES = {
    "fakegpu": (c.POINTER(_State), []),
    "fakegpu_start": (None, [c.c_char_p, c.c_int]),
    "fakegpu_alloc": (U64, [c.c_void_p, c.c_size_t, c.c_int]),
    "fakegpu_free": (None, [U64]),
    "fakegpu_peek": (None, [U64, c.c_void_p, c.c_size_t]),
    "fakegpu_poke": (None, [U64, c.c_void_p, c.c_size_t]),
    "fakegpu_context": (c.c_void_p, [c.c_int]),
    "fakegpu_current": (None, [c.c_void_p]),
    "fakegpu_stream": (c.c_void_p, []),
    "fakegpu_fill": (None, [c.c_void_p, U64, c.c_int, c.c_size_t]),
    "fakegpu_wait": (None, [c.c_void_p]),
    "fakegpu_capture": (c.c_int, [c.c_void_p, c.c_int]),
    "fakegpu_break": (None, [c.c_int, c.c_int]),
    "fakegpu_calls": (U64, [c.c_char_p]),
    "cuEventCreate": (c.c_int, [c.c_void_p, c.c_uint]),
    "cuEventRecord": (c.c_int, [c.c_void_p, c.c_void_p]),
    "cuStreamWaitEvent": (c.c_int, [c.c_void_p, c.c_void_p, c.c_uint]),
}


def build(folder: str) -> str:
    """The driver, compiled: a release build of the project has none."""
    sources = [path for path in (ROOT / "tests/support/fakegpu").glob("*.c")
               if path.name != "hip.c"]
    path = f"{folder}/libcuda.so.1"
    subprocess.run(["cc", "-std=gnu17", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-pthread",
                    "-fvisibility=hidden", f"-I{ROOT}", f"-I{ROOT}/tests/support/fakegpu",
                    f"-I{ROOT}/include", "-Wl,-soname,libcuda.so.1", "-o", path,
                    *map(str, sources)], check=True)
    return path


class Stream:
    """What the package uses of torch.cuda.Stream."""

    def __init__(self, gpu: Gpu, device: int, handle: int | None) -> None:
        self._gpu, self.device, self.cuda_stream = gpu, device, handle or 0

    def wait_stream(self, other: Stream) -> None:
        event = c.c_void_p()
        with self._gpu.at(other.device):
            assert self._gpu.lib.cuEventCreate(c.byref(event), 2) == 0
            assert self._gpu.lib.cuEventRecord(event, other.cuda_stream or None) == 0
        with self._gpu.at(self.device):
            assert self._gpu.lib.cuStreamWaitEvent(self.cuda_stream or None, event, 0) == 0

    def fill(self, tensor: torch.Tensor, value: int) -> None:
        """A kernel, which changes each byte of a tensor."""
        self._gpu.filled.add(self)
        with self._gpu.at(self.device):
            self._gpu.lib.fakegpu_fill(
                self.cuda_stream or None, tensor.data_ptr(), value, tensor.nbytes)

    def synchronize(self) -> None:
        with self._gpu.at(self.device):
            self._gpu.lib.fakegpu_wait(self.cuda_stream or None)


class _At:
    """A device is the current one."""

    def __init__(self, gpu: Gpu, device: int) -> None:
        self._gpu, self._device = gpu, device

    def __enter__(self) -> None:
        self._gpu.lib.fakegpu_current(self._gpu.contexts[self._device])

    def __exit__(self, *_: object) -> None:
        self._gpu.lib.fakegpu_current(self._gpu.contexts[0])


class Gpu:
    """The driver, and what torch has of it: two devices, each with a current stream."""

    def __init__(self, library: str) -> None:
        self.lib = c.CDLL(library, c.RTLD_GLOBAL)
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, arguments
        self.lib.fakegpu_start(None, 2)
        self.contexts = [self.lib.fakegpu_context(device) for device in range(2)]
        self.lib.fakegpu_current(self.contexts[0])
        self.state = self.lib.fakegpu().contents
        self.default = [Stream(self, device, None) for device in range(2)]
        self.current = list(self.default)
        self.captures = False
        self.filled: set[Stream] = set()  # with kernels that may not have run yet
        self._memory: dict[int, tuple[int, int]] = {}  # address: bytes, device

    def at(self, device: int) -> _At:
        return _At(self, device)

    def stream(self, device: int) -> Stream:
        with self.at(device):
            return Stream(self, device, self.lib.fakegpu_stream())

    def own_streams(self) -> None:
        """The current streams are no default ones from here on."""
        self.current = [self.stream(device) for device in range(2)]

    def _empty(self, count: int, device: int) -> Any:
        at = self.lib.fakegpu_alloc(self.contexts[device], count, 0)
        memory = (c.c_char * count).from_address(at)
        self._memory[at] = count, device
        weakref.finalize(memory, self._free, at)
        return memory

    def _free(self, at: int) -> None:
        while self.filled:  # torch's memory is not given back before
            self.filled.pop().synchronize()
        del self._memory[at]
        self.lib.fakegpu_free(at)

    def tensor(self, host: torch.Tensor, device: int = 0) -> torch.Tensor:
        """The same in a device's memory, strides included."""
        whole = host.contiguous() if not host.numel() else torch.empty(0, dtype=host.dtype).set_(
            host.untyped_storage())
        if not host.numel():
            return host
        memory = self._empty(whole.nbytes, device)
        self.lib.fakegpu_poke(c.addressof(memory), whole.data_ptr(), whole.nbytes)
        return torch.frombuffer(memory, dtype=host.dtype).as_strided(
            host.shape, host.stride(), host.storage_offset())

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """Back on the host."""
        at, (count, _) = self._of(tensor)
        memory = bytearray(count)
        self.lib.fakegpu_peek(at, (c.c_char * count).from_buffer(memory), count)
        return torch.frombuffer(memory, dtype=tensor.dtype).as_strided(
            tensor.shape, tensor.stride(), tensor.storage_offset())

    def _of(self, tensor: torch.Tensor) -> tuple[int, tuple[int, int]]:
        address = tensor.data_ptr()
        for at, (count, device) in list(self._memory.items()):
            if at <= address < at + count:
                return at, (count, device)
        raise KeyError(address)

    # ---- in _gpu's place ---------------------------------------------------------------------

    def is_gpu(self, tensor: torch.Tensor) -> bool:
        try:
            return bool(self._of(tensor))
        except KeyError:
            return False

    def index(self, tensor: torch.Tensor) -> int:
        return self._of(tensor)[1][1]

    def contiguous(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.tensor(self.read(tensor).contiguous(), self.index(tensor))

    def on_host(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.read(tensor)

    def current_stream(self, gpu: int) -> Stream:
        return self.current[gpu]

    def default_stream(self, gpu: int) -> Stream:
        return self.default[gpu]

    def new_stream(self, gpu: int) -> Stream:
        return self.stream(gpu)

    def is_capturing(self) -> bool:
        return self.captures


def start() -> Gpu:
    """Of the process, with the driver that FAKE_GPU names."""
    gpu = Gpu(os.environ["FAKE_GPU"])
    for name in ("is_gpu", "index", "contiguous", "on_host", "current_stream", "default_stream",
                 "new_stream", "is_capturing"):
        setattr(_gpu, name, getattr(gpu, name))
    return gpu
