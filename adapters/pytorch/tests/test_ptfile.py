# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save: all that it can write, and files that are damaged or meant to do harm."""

from __future__ import annotations

import io
import os
import zipfile
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint._experimental import RankInfo

from hearth.torch._unpickle import PickleRefused
from hearth.torch.experimental import Reader

RANK0 = RankInfo(global_rank=0, global_world_size=1)


def _file(folder: str, state: Any, **how: Any) -> str:
    path = f"{folder}/step-1_ckpt"
    os.makedirs(path, exist_ok=True)
    torch.save(state, f"{path}/checkpoint_0.pt", **how)
    return path


def test_CR9_the_oldest_form_is_read_whole(folder):
    path = _file(folder, {"a": torch.arange(5.0), "b": 1},
                 _use_new_zipfile_serialization=False)
    target = torch.zeros(5)
    state, missing = Reader(RANK0).read(path, {"a": target, "c": 2})
    assert state["a"] is target and target.tolist() == [0, 1, 2, 3, 4] and missing == ["c"]


def test_what_only_torch_can_read(folder):
    """A sparse tensor has no place of its own: torch reads the file, mapped."""
    sparse = torch.eye(3).to_sparse()
    path = _file(folder, {"s": sparse, "w": torch.arange(4.0)})
    target = torch.zeros(4)
    state, _ = Reader(RANK0).read(path, {"w": target, "s": None})
    assert target.tolist() == [0, 1, 2, 3] and state["w"] is target
    assert torch.equal(state["s"].to_dense(), torch.eye(3))


def _damaged(path: str) -> list[bytes]:
    with open(f"{path}/checkpoint_0.pt", "rb") as file:
        data = file.read()
    cut = [data[:n] for n in range(0, len(data), max(1, len(data) // 40))]
    flips = []
    generator = torch.Generator().manual_seed(4)
    for _ in range(150):
        at = int(torch.randint(len(data), (1,), generator=generator))
        flips.append(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1:])
    return cut + flips


def test_a_damaged_file_is_an_error_or_other_numbers(folder):
    path = _file(folder, {"a": torch.arange(10.0), "b": [torch.ones(3).t(), "x"], "c": (1,)})
    refused = 0
    for data in _damaged(path):
        with open(f"{path}/checkpoint_0.pt", "wb") as file:
            file.write(data)
        try:
            Reader(RANK0).read(path, {"a": torch.zeros(10), "b": None})
        except (PickleRefused, RuntimeError):
            refused += 1
    assert refused > 40


@pytest.mark.parametrize("size,stride,offset", [
    ((1 << 40,), (1,), 0), ((4,), (1 << 40,), 0), ((4,), (1,), 1 << 40), ((4,), (1,), -1),
    ((-1,), (1,), 0), ((4,), (-1,), 3), ((2, 2), (1,), 0)])
def test_a_tensor_that_reaches_out_of_its_storage_is_refused(folder, size, stride, offset):
    class Wild:
        def __reduce__(self):
            storage = torch.zeros(4).untyped_storage()
            typed = torch.storage.TypedStorage(
                wrap_storage=storage, dtype=torch.float32, _internal=True)
            return torch._utils._rebuild_tensor_v2, (
                typed, offset, size, stride, False, OrderedDict())

    path = _file(folder, {"w": Wild()})
    with pytest.raises(PickleRefused):
        Reader(RANK0).read(path, {"w": None})


@pytest.mark.parametrize("size", [10, 1000000])
def test_a_compressed_file_is_refused(folder, size):
    """A zip that inflates to more than there is; torch.save never compresses."""
    path = f"{folder}/step-1_ckpt"
    os.makedirs(path)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02]" + b"0" * size + b".")
    with open(f"{path}/checkpoint_0.pt", "wb") as file:
        file.write(out.getvalue())
    for target in (None, {"a": 1}):
        with pytest.raises(PickleRefused, match="compressed"):
            Reader(RANK0).read(path, target)
