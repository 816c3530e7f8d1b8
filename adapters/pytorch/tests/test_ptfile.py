# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save: all that it can write, and files that are damaged or meant to do harm."""

from __future__ import annotations

import io
import os
import pickle
import resource
import struct
import zipfile
import zlib
from collections import OrderedDict
from typing import Any

import pytest
import torch

from hearth_checkpoint.torch._pickles import PREFIX, SUFFIX, decode_item
from hearth_checkpoint.torch._rank_local import Reader
from hearth_checkpoint.torch._unpickle import PickleRefused


def _file(folder: str, state: Any, **how: Any) -> str:
    path = f"{folder}/step-1_ckpt"
    os.makedirs(path, exist_ok=True)
    torch.save(state, f"{path}/checkpoint_0.pt", **how)
    return path


def test_CR9_the_oldest_form_is_read_whole(folder):
    path = _file(folder, {"a": torch.arange(5.0), "b": 1},
                 _use_new_zipfile_serialization=False)
    target = torch.zeros(5)
    state, missing = Reader(0).read(path, {"a": target, "c": 2})
    assert state["a"] is target and target.tolist() == [0, 1, 2, 3, 4] and missing == ["c"]


def test_what_only_torch_can_read(folder):
    """A sparse tensor has no place of its own: torch reads the file, mapped."""
    sparse = torch.eye(3).to_sparse()
    path = _file(folder, {"s": sparse, "w": torch.arange(4.0)})
    target = torch.zeros(4)
    state, _ = Reader(0).read(path, {"w": target, "s": None})
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
            Reader(0).read(path, {"a": torch.zeros(10), "b": None})
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
        Reader(0).read(path, {"w": None})


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
            Reader(0).read(path, target)


# ---- bytes that two readers would read in two ways ---------------------------------------------


class _Zip:
    """A zip made to measure: a member's local header and its entry may say different things."""

    def __init__(self) -> None:
        self.data, self.central, self.count = bytearray(), bytearray(), 0

    def member(self, name: str, data: bytes, **local: Any) -> int:
        """Local header, data, entry. local: called, flags, method, numbers, as the header has them."""
        head = len(self.data)
        said = local.get("called", name).encode()
        self.data += struct.pack(
            "<IHHHIIIIHH", 0x04034B50, 0, local.get("flags", 0x808), local.get("method", 0), 0,
            *local.get("numbers", (0, 0, 0)), len(said), 0) + said + data
        self.entry(name, head, len(data), checksum=zlib.crc32(data))
        return head

    def entry(self, name: str, head: int, size: int, method: int = 0, checksum: int = 0) -> None:
        self.central += struct.pack(
            "<IHHHHIIIIHHHHHII", 0x02014B50, 0, 0, 0x808, method, 0, checksum, size, size, len(name), 0, 0,
            0, 0, 0, head) + name.encode()
        self.count += 1

    def end(self, shift: int = 0) -> bytes:
        return bytes(self.data + self.central + struct.pack(
            "<IHHHHIIH", 0x06054B50, 0, 0, self.count, self.count, len(self.central),
            len(self.data) + shift, 0))


GOOD = pickle.dumps({"a": 1}, 2)
# A key of a million nested tuples: its hash exhausts the stack, and the process ends.
EVIL = b"\x80\x02}" + b")" + b"\x85" * 1_000_000 + b"K\x01s."


def _zips() -> dict[str, bytes]:
    made = {}

    def zip_(name: str) -> _Zip:
        z = _Zip()
        z.member("x/data.pkl", GOOD)
        z.member("x/byteorder", b"little")
        z.member("x/version", b"3\n")
        made[name] = z
        return z

    zip_("two_of_one_name").member("x/data.pkl", EVIL)
    z = made["two_of_one_name_the_bad_one_first"] = _Zip()
    z.member("x/data.pkl", EVIL)
    z.member("x/data.pkl", GOOD)
    z.member("x/version", b"3\n")
    zip_("two_of_one_name_but_for_its_case").member("x/DATA.PKL", EVIL)
    zip_("two_folders").member("y/data.pkl", EVIL)
    zip_("no_folder").member("data.pkl", EVIL)
    z = zip_("one_in_another")
    z.entry("x/data/0", 0, 4)
    z = zip_("a_header_within_data")
    z.member("x/data/0", b"PK\3\4" + bytes(60))
    z.entry("x/data/1", len(z.data) - 64, 4)
    zip_("another_name_in_the_local_header").member("x/data/0", b"abcd", called="x/data/1")
    zip_("another_length_in_the_local_header").member("x/data/0", b"abcd", numbers=(0, 2, 2))
    zip_("compressed_in_the_local_header").member("x/data/0", b"abcd", method=8)
    zip_("encrypted_in_the_local_header").member("x/data/0", b"abcd", flags=1)
    zip_("compressed_in_the_entry").entry("x/data/0", 0, 4, method=8)
    zip_("one_that_reaches_out").entry("x/data/0", 10**6, 4)
    good = zip_("good").end()
    made = {name: z.end() for name, z in made.items()}
    made["behind_its_end"] = good + b"x"
    made["a_comment"] = good[:-2] + b"\4\0" + good[-4:]
    made["before_its_beginning"] = b"PK12" + good
    made["a_second_directory"] = good + good[good.index(b"PK\1\2"):]
    return made


ZIPS = _zips()


@pytest.mark.parametrize("name", ZIPS)
def test_a_zip_that_can_be_read_in_two_ways_is_refused(folder, name):
    """Where the proof looked at one data.pkl, and torch decoded the other, the trainer crashed."""
    path = f"{folder}/step-1_ckpt"
    os.makedirs(path)
    with open(f"{path}/checkpoint_0.pt", "wb") as file:
        file.write(ZIPS[name])
    reads = (lambda: decode_item(ZIPS[name]), lambda: Reader(0).read(path)[0],
             lambda: Reader(0).read(path, {"a": None})[0])
    for read in reads:
        if name == "good":
            assert read() == {"a": 1}
        else:
            with pytest.raises(PickleRefused):
                read()


def _storage(kind: str, elements: int, key: str = "0") -> bytes:
    name = ("storage", "@", key, "cpu", elements)
    spelled = pickle.dumps(name, 2)[2:-1]
    cut = spelled.index(b"X\1\0\0\0@")
    end = cut + 6 + (2 if spelled[cut + 6:cut + 7] == b"q" else 0)
    return spelled[:cut] + b"ctorch\n" + kind.encode() + b"\n" + spelled[end:] + b"Q"


def _huge_zip(body: bytes, data: bytes = b"") -> bytes:
    z = _Zip()
    z.member("x/data.pkl", b"\x80\x02" + body + b".")
    z.member("x/data/0", data)
    return z.end()


_SHAPE = pickle.dumps((0, (1 << 40,), (0,)), 2)[2:-2]
HUGE = {
    "storage": _storage("FloatStorage", 1 << 40),
    "storage_in_a_list": b"]" + _storage("ByteStorage", 1 << 40) + b"a",
    "tensor_of_a_number": b"ctorch\nFloatTensor\n" + pickle.dumps((1 << 40,), 2)[2:-1] + b"R",
    "untyped_of_a_number": b"ctorch.storage\nUntypedStorage\n"
                           + pickle.dumps((1 << 40,), 2)[2:-1] + b"R",
    "bytearray": b"c__builtin__\nbytearray\n" + pickle.dumps((1 << 40,), 2)[2:-1] + b"R",
    "tensor": b"ctorch._utils\n_rebuild_tensor_v2\n(" + _storage("FloatStorage", 1)
              + pickle.dumps(0, 2)[2:-1] + pickle.dumps((1 << 40,), 2)[2:-1]
              + pickle.dumps((1,), 2)[2:-1] + b"\x89)tR",
    "quantized": b"ctorch._utils\n_rebuild_qtensor\n(" + _storage("QInt8Storage", 4)
                 + pickle.dumps(0, 2)[2:-1] + pickle.dumps((1 << 40,), 2)[2:-1]
                 + pickle.dumps((0,), 2)[2:-1] + b"(ctorch\nper_tensor_affine\nG?\xf0\0\0\0\0\0\0"
                 + b"K\0t\x89)tR",
}


@pytest.mark.parametrize("name", HUGE)
@pytest.mark.parametrize("form", ["zip", "plain"])
def test_a_few_bytes_ask_for_no_memory(folder, name, form):
    data = (_huge_zip(HUGE[name], bytes(4)) if form == "zip"
            else PREFIX + b"\x80\x02" + HUGE[name] + b"." + SUFFIX)
    assert len(data) < 600
    path = f"{folder}/step-1_ckpt"
    os.makedirs(path)
    with open(f"{path}/checkpoint_0.pt", "wb") as file:
        file.write(data)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), hard))
    try:
        for read in (lambda: decode_item(data), lambda: Reader(0).read(path),
                     lambda: Reader(0).read(path, {"a": None})):
            with pytest.raises((PickleRefused, RuntimeError)) as caught:
                read()
            assert "memory" not in str(caught.value).lower()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_one_storage_is_not_two_things(folder):
    body = b"(" + _storage("FloatStorage", 1) + _storage("IntStorage", 1) + b"t"
    with pytest.raises(PickleRefused, match="two different storages"):
        decode_item(_huge_zip(body, bytes(4)))


def test_tensors_of_a_whole_file_may_be_changed_and_the_file_stays(folder):
    path = _file(folder, {"a": torch.arange(4.0), "s": torch.eye(2).to_sparse()})
    state, _ = Reader(0).read(path)
    state["a"] += 1
    assert Reader(0).read(path)[0]["a"].tolist() == [0, 1, 2, 3]


def test_a_loaded_state_outlives_its_file(folder):
    """Whoever saves to the same path cuts the file first: what is mapped of it would be gone."""
    states = ({"a": torch.arange(5000.0)}, {"a": torch.arange(5000.0), "s": torch.eye(90).to_sparse()})
    for state in states:
        path = _file(folder, state)
        whole, _ = Reader(0).read(path)
        part, _ = Reader(0).read(path, {name: None for name in state})
        with open(f"{path}/checkpoint_0.pt", "wb"):
            pass
        for got in (whole, part):
            assert torch.equal(got["a"], state["a"])
            assert "s" not in state or torch.equal(got["s"].to_dense(), torch.eye(90))
