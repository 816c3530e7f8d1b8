# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of torch, of the C interface and of older programs, each read by the others."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import rank_work as work
import reshard_work
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._extension import ExtensionRegistry, StreamTransformExtension
from torch.distributed.checkpoint.api import CheckpointException
from capi import MetadataWriter, read_metadata, read_value
from ranks import World

import hearth_checkpoint.torch as ht
from hearth_checkpoint import _ffi
from hearth_checkpoint.job import Job, Piece, save_bytes
from hearth_checkpoint.torch import HearthReader, _jobs
from hearth_checkpoint.torch._pickles import decode_item, encode_item, load_metadata

DATA = work.DATA
BLOCK = 4096
_numbers = itertools.count()


def dtypes() -> list[str]:
    """Those that torch.save can store and whose tensors have plain bytes."""
    with open(f"{DATA}/dtypes.tsv") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    return [row[0] for row in rows if row[2] == "yes" and row[3] == "yes" and copies(row[0])]


def copies(dtype: str) -> bool:
    """Whether this torch can copy tensors of it at all."""
    try:
        torch.empty(2, dtype=getattr(torch, dtype)).clone()
        return True
    except NotImplementedError:
        return False


def filled(dtype: str, *shape: int, first: int = 1) -> torch.Tensor:
    """A tensor whose bytes count up; of bool, 0 and 1."""
    kind = getattr(torch, dtype)
    size = torch.Size(shape).numel() * kind.itemsize
    raw = torch.arange(first, first + size) % (2 if dtype == "bool" else 251)
    return raw.to(torch.uint8).view(kind).reshape(shape) if size else torch.empty(
        shape, dtype=kind)


def blank(shape: Sequence[int], dtype: str) -> torch.Tensor:
    """Zeros, also of dtypes that torch.zeros does not know."""
    tensor = torch.empty(tuple(shape), dtype=getattr(torch, dtype))
    tensor.untyped_storage().fill_(0)
    return tensor


def bits(tensor: torch.Tensor) -> bytes:
    """A tensor's elements in C order. By bytes, as many dtypes can do nothing but be moved."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if not tensor.numel():
        return b""
    raw = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
    return bytes(raw.reshape(-1).view(torch.uint8).tolist())


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)


def many_tensors() -> dict[str, torch.Tensor]:
    """Each dtype that DCP can plan as a matrix, a view with gaps, transposed, of no dimension, and
    empty."""
    out: dict[str, torch.Tensor] = {}
    for name in dtypes():
        if name.startswith("bits"):
            continue  # its planner asks torch.iinfo for their size, which raises
        matrix = filled(name, 6, 8)
        out |= {f"{name}.m": matrix, f"{name}.v": matrix[1:4, 2:7], f"{name}.t": matrix.t(),
                f"{name}.0": filled(name), f"{name}.e": filled(name, 0, 3)}
    return out


ITEMS: dict[str, Any] = {
    "int": 7, "big": 2**40, "float": 0.1, "text": "größe 漢", "none": None, "yes": True,
    "bytes": b"\0\x80x", "tuple": (1, 2.5, "x", None), "group": {"lr": 1e-3, "betas": (0.9, 0.99)},
    "list": ["a", [1, 2]]}


def empty_like(state: dict[str, Any]) -> dict[str, Any]:
    """A state to be filled: tensors of zeros, None for the rest."""
    return {name: blank(value.shape, str(value.dtype)[6:])
            if isinstance(value, torch.Tensor) else None for name, value in state.items()}


def check_equal(read: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert read.keys() == wanted.keys()
    for name, value in wanted.items():
        if isinstance(value, torch.Tensor):
            assert same(read[name], value), name
        else:
            assert read[name] == value and type(read[name]) is type(value), name


# ---- what torch writes, read by C ----------------------------------------------------------------


def read_by_c(folder: str) -> dict[str, Any]:
    """A checkpoint of FileSystemWriter, whole, through the C readers alone."""
    with open(f"{folder}/.metadata", "rb") as file:
        metadata = read_metadata(file.read())
    out: dict[str, Any] = {}
    for name, entry in metadata.entries.items():
        if entry is not None:
            out[name] = blank(entry.shape, entry.dtype)
    for place in metadata.stored:
        with open(f"{folder}/{place.path}", "rb") as file:
            file.seek(place.at)
            value = read_value(file.read(place.len))
        if place.offset is None:
            out[place.name] = value
            continue
        target = out[place.name]
        for dim, (at, size) in enumerate(zip(place.offset, value.shape)):
            target = target.narrow(dim, at, size)
        target.copy_(value)
    return out


def test_every_dtype_of_torch_save_is_read_by_c():
    for name in dtypes():
        matrix, out = filled(name, 6, 8), io.BytesIO()
        state = {"m": matrix, "v": matrix[1:4, 2:7], "t": matrix.t(), "0": filled(name),
                 "e": filled(name, 0, 3)}
        torch.save(state, out)
        check_equal(read_value(out.getvalue()), state)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_checkpoint_of_torch_is_read_by_c(tmp_path, threads):
    state = many_tensors() | ITEMS
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path, thread_count=threads),
             planner=dcp.DefaultSavePlanner(flatten_state_dict=False), no_dist=True)
    assert len(list(tmp_path.glob("*.distcp"))) == threads
    check_equal(read_by_c(str(tmp_path)), state)


def test_the_nested_names_of_torch_are_read_by_c(tmp_path):
    state = {"model": {"w": torch.ones(2)}, "l": [torch.zeros(1), {"x": torch.ones(3)}]}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path), no_dist=True)
    entries = read_metadata((tmp_path / ".metadata").read_bytes()).entries
    assert {name: entry.path for name, entry in entries.items()} == {
        "model.w": ("model", "w"), "l.0": ("l", 0), "l.1.x": ("l", 1, "x")}


# ---- what C writes, read by torch ----------------------------------------------------------------


def write_container() -> str:
    """The example program of the build that the library is of."""
    path = os.path.join(os.path.dirname(_ffi.library()._name), "..", "bin", "write_container")
    if not os.path.exists(path):
        pytest.skip(f"{path} is not built")
    return path


def test_a_checkpoint_of_a_c_program_is_loaded(base):
    root, job = os.path.split(base)
    said = subprocess.run([write_container(), root, job], timeout=60, check=True, text=True,
                          capture_output=True,
                          env=dict(os.environ)).stdout.strip()
    assert ht.latest(base) == said == f"{base}/step-1_ckpt"
    target = {"model": {"weight": torch.zeros(4, 3)}, "step": torch.zeros((), dtype=torch.int64),
              "optimizer": {"lr": 0.0}}
    dcp.load(target, checkpoint_id=said, storage_reader=HearthReader())
    assert torch.equal(target["model"]["weight"], torch.arange(12.0).view(4, 3) / 2)
    assert target["step"] == 1 and target["optimizer"] == {"lr": 0.25}


def write_with_c(job: Job, step: int, state: dict[str, Any]) -> None:
    """A save, and its `.metadata`, without any of the package's torch part."""
    tensors = {k: v for k, v in state.items() if isinstance(v, torch.Tensor)}
    pieces = [Piece(k.encode(), v.data_ptr(), str(v.dtype)[6:], tuple(v.shape),
                    None if v.is_contiguous() else v.stride()) for k, v in tensors.items()]
    items = [(k.encode(), encode_item(v)) for k, v in state.items() if k not in tensors]
    save = job.begin(step, save_bytes(pieces, items), name="data.distcp")
    save.add(pieces)
    save.add_bytes(items)
    metadata = MetadataWriter(f"{job.base}/step-{step}_ckpt")
    places = save.places()
    for piece, (at, length) in zip(pieces, places):
        metadata.piece(piece, "data.distcp", at, length)
    for (key, _), (at, length) in zip(items, places[len(pieces):]):
        metadata.bytes(key.decode(), "data.distcp", at, length)
    save.put_common(".metadata", metadata.finish())
    save.commit().wait("PROTECTED", 60)


def test_every_dtype_that_c_writes_is_loaded(base):
    state = many_tensors() | ITEMS
    write_with_c(_jobs.membership(base, {}).job, 4, state)
    target = empty_like(state)
    dcp.load(target, checkpoint_id=f"{base}/4", storage_reader=HearthReader())
    check_equal(target, state)


def test_a_metadata_of_c_is_the_one_torch_would_write(tmp_path):
    """Read back by both readers; torch's own classes see no difference."""
    writer = MetadataWriter("/root/job/step-3_ckpt")
    for at in (0, 2):
        writer.piece(Piece(b"model.w", 0, "bfloat16", (2, 5), None, (4, 5), (at, 0)), "a.distcp",
                     100 + at, 20)
    writer.bytes("l.1", "b.distcp", 5, 6)
    writer.nested("model.w", ["model", "w"])
    writer.nested("l.1", ["l", 1])
    data = writer.finish()
    metadata = load_metadata(data)
    entry = metadata.state_dict_metadata["model.w"]
    assert (entry.size, entry.properties.dtype) == (torch.Size([4, 5]), torch.bfloat16)
    assert [tuple(chunk.offsets) for chunk in entry.chunks] == [(0, 0), (2, 0)]
    assert metadata.planner_data == {"model.w": ("model", "w"), "l.1": ("l", 1)}
    (tmp_path / ".metadata").write_bytes(data)
    theirs = dcp.FileSystemReader(tmp_path).read_metadata()
    theirs.storage_meta.load_id = metadata.storage_meta.load_id
    assert vars(theirs) == vars(metadata)
    assert read_metadata(data).checkpoint_id == "/root/job/step-3_ckpt"


# ---- files of older programs ---------------------------------------------------------------------


def legacy_objects() -> list[dict[str, Any]]:
    with open(f"{DATA}/legacy/expected.json") as file:
        return json.load(file)["objects"]


def check_legacy(value: Any, item: dict[str, Any]) -> None:
    if item["kind"] == "bytes":
        assert value == item["value"]
        return
    assert str(value.dtype) == "torch." + item["dtype"] and list(value.shape) == item["shape"]
    digest = item.get("contiguous_sha256", item["payload_sha256"])
    assert hashlib.sha256(bits(value)).hexdigest() == digest


@pytest.mark.parametrize("read", [decode_item, read_value], ids=["package", "c"])
def test_every_legacy_item_is_read(read):
    count = 0
    for part in legacy_objects():
        with open(f"{DATA}/legacy/{part['name']}", "rb") as file:
            data = file.read()
        for item in part["items"]:
            check_legacy(read(data[BLOCK + item["offset"]:][:item["length"]]), item)
            count += 1
    assert count == 15


def test_a_container_of_legacy_objects_is_recovered_and_loaded(base):
    """All of them in one container, as files of rank 0, with a `.metadata` that C wrote."""
    container = f"{base}/step-9_ckpt"
    os.makedirs(container, 0o700)
    metadata, target, wanted = MetadataWriter(container), {}, {}
    for i, part in enumerate(legacy_objects()):
        file = f"__0_{i}.distcp"
        shutil.copy(f"{DATA}/legacy/{part['name']}", f"{container}/{file}")
        for item in part["items"]:
            name = f"{part['name']}/{item['key']}"
            wanted[name] = item
            if item["kind"] == "bytes":
                metadata.bytes(name, file, item["offset"], item["length"])
                target[name] = None
                continue
            piece = Piece(name.encode(), 0, item["dtype"], item["shape"])
            metadata.piece(piece, file, item["offset"], item["length"])
            target[name] = blank(item["shape"], item["dtype"])
    with open(f"{container}/.metadata", "wb") as file:
        file.write(metadata.finish())
    assert ht.latest(base) == container
    dcp.load(target, checkpoint_id=container, storage_reader=HearthReader())
    for name, item in wanted.items():
        check_legacy(target[name], item)


def dcp_expected(name: str) -> dict[str, Any]:
    with open(f"{DATA}/dcp/{name}/expected.json") as file:
        return json.load(file)


def plain(value: Any) -> Any:
    """A value as the JSON has it."""
    if isinstance(value, bytes):
        return {"bytes_hex": value.hex()}
    if isinstance(value, tuple):
        return {"tuple": [plain(child) for child in value]}
    if isinstance(value, torch.Tensor):
        return {"tensor": {"dtype": str(value.dtype)[6:], "shape": list(value.shape),
                           "sha256": hashlib.sha256(bits(value)).hexdigest()}}
    return value


def check_dcp(read: dict[str, Any], name: str) -> None:
    expected = dcp_expected(name)
    for tensor in expected["tensors"]:
        value = read[tensor["key"]]
        assert str(value.dtype) == "torch." + tensor["dtype"]
        assert hashlib.sha256(bits(value)).hexdigest() == tensor["sha256"], tensor["key"]
    for item in expected["bytes_items"]:
        value = item["value"]
        assert plain(read[item["key"]]) == value, item["key"]
    assert read.keys() == {i["key"] for i in expected["tensors"] + expected["bytes_items"]}


CHECKPOINTS = ["nested", "sharded4", "single"]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_dcp_checkpoint_is_read_by_c(name):
    check_dcp(read_by_c(f"{DATA}/dcp/{name}"), name)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_dcp_checkpoint_is_recovered_and_loaded(base, name):
    container = f"{base}/step-20_ckpt"
    shutil.copytree(f"{DATA}/dcp/{name}", container)
    for file in ("expected.json", "metadata.json"):
        os.remove(f"{container}/{file}")
    assert ht.latest(base) == container
    target = reshard_work.flat_target(container)
    dcp.load(target, checkpoint_id=container, storage_reader=HearthReader())
    check_dcp(target, name)


class _Coded(StreamTransformExtension):
    """Changes each byte; two of them do not commute."""

    @classmethod
    def registry_name(cls) -> str:
        return "test." + cls.__name__

    @classmethod
    def from_descriptor(cls, version: str) -> _Coded:
        return cls()

    def get_descriptor(self) -> str:
        return f"{self.registry_name()}/1"

    def transform_to(self, output: Any) -> Any:
        class Out(io.RawIOBase):
            def write(_, data: Any) -> int:
                output.write(bytes(map(self.there, bytes(data))))
                return len(memoryview(data).cast("B"))

        return Out()

    def transform_from(self, source: Any) -> Any:
        return io.BytesIO(bytes(map(self.back, source.read())))


class Add(_Coded):
    def there(self, byte: int) -> int:
        return (byte + 1) & 255

    def back(self, byte: int) -> int:
        return (byte - 1) & 255


class Xor(_Coded):
    def there(self, byte: int) -> int:
        return byte ^ 0x5a

    back = there


@pytest.mark.parametrize("extensions", [[Add()], [Add(), Xor()]], ids=["one", "two"])
def test_extensions_are_undone_the_last_first(base, extensions):
    """torch 2.13 undoes two in the wrong order, and cannot read its own file."""
    state = {"w": torch.arange(12.0).view(3, 4), "n": 7}
    container = f"{base}/step-2_ckpt"
    dcp.save(state, storage_writer=dcp.FileSystemWriter(container, _extensions=extensions))
    registry = ExtensionRegistry()
    for kind in (Add, Xor):
        registry.register(kind)
    target = {"w": torch.zeros(3, 4), "n": 0}
    with pytest.raises(CheckpointException, match="Unknown extension"):
        dcp.load(target, checkpoint_id=container, storage_reader=HearthReader())
    dcp.load(target, checkpoint_id=container,
             storage_reader=HearthReader(extension_registry=registry))
    check_equal(target, state)


# ---- over two nodes ------------------------------------------------------------------------------


@pytest.fixture
def job() -> str:
    """A name nobody has used."""
    return f"dcp{next(_numbers)}"


def test_a_plain_dcp_checkpoint_spread_over_nodes(two, job, folder):
    """Each node holds what its own rank wrote, and rank 0's node the `.metadata`."""
    wanted = two.run(reshard_work.save_plain_dcp, folder)
    two.run(reshard_work.spread, job, folder, "step-31_ckpt")
    found, pulled, reads = zip(*two.run(reshard_work.recover_and_read, job))
    assert set(found) == {"step-31_ckpt"} and pulled[0] + pulled[1] > 0
    for rank, states in enumerate(reads):
        for read in states:
            check_trees(read, wanted[rank])


def test_a_plain_dcp_checkpoint_with_a_part_lost_is_none_and_a_log_line_naming_it(
        two, job, folder):
    two.run(reshard_work.save_plain_dcp, folder)
    two.run(reshard_work.spread, job, folder, "step-31_ckpt", "__1_0.distcp")
    for found, text in two.run(reshard_work.latest_and_log, job):
        assert found is None and "__1_0.distcp" in text and "step 31" in text, text


# ---- other world sizes ---------------------------------------------------------------------------


def check_trees(read: Any, wanted: Any, path: str = "") -> None:
    assert type(read) is type(wanted), path
    if isinstance(wanted, dict):
        assert read.keys() == wanted.keys(), path
        for key in wanted:
            check_trees(read[key], wanted[key], f"{path}.{key}")
    elif isinstance(wanted, list):
        assert len(read) == len(wanted), path
        for i, (a, b) in enumerate(zip(read, wanted)):
            check_trees(a, b, f"{path}[{i}]")
    elif isinstance(wanted, torch.Tensor):
        assert same(read, wanted), path
    else:
        assert read == wanted, path


WAYS = ["fsdp", "hsdp", "tp", "fsdp+tp"]


@pytest.fixture(scope="module")
def same_nodes() -> Iterator[tuple[World, World]]:
    """A world of four ranks and one of two, on the same two nodes; one at a time is in the job."""
    path = tempfile.mkdtemp(prefix="hearth-torch-", dir="/dev/shm")
    with World(4, 2, path) as four, World(2, 2, path) as two:
        yield four, two
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("way", WAYS)
def test_a_model_and_adamw_go_to_other_world_sizes(same_nodes, way):
    """4 ranks save, cut in one way, and load, cut in all others; then 2 ranks load."""
    four, two = same_nodes
    wanted = four.run(reshard_work.train_and_save, way, 5)
    for other in WAYS:
        for read in four.run(reshard_work.load_and_gather, other, 5):
            check_trees(read, wanted[0])
    four.run(reshard_work.leave_keeping)
    for other in ("fsdp", "tp"):
        for read in two.run(reshard_work.load_and_gather, other, 5):
            check_trees(read, wanted[0])
    newer = two.run(reshard_work.train_and_save, "tp", 6)  # frees what four ranks had written
    two.run(reshard_work.leave_keeping)
    for read in four.run(reshard_work.load_and_gather, way, 6):
        check_trees(read, newer[0])
    four.run(work.leave)


def test_two_ranks_save_and_four_load(same_nodes):
    four, two = same_nodes
    wanted = two.run(reshard_work.train_and_save, "fsdp", 8)
    two.run(reshard_work.leave_keeping)
    for other in WAYS:
        for read in four.run(reshard_work.load_and_gather, other, 8):
            check_trees(read, wanted[0])
    four.run(work.leave)
