# SPDX-License-Identifier: Apache-2.0
"""Saving and loading through torch.distributed.checkpoint, one process."""

from __future__ import annotations

import pickle
from typing import Any

import capi
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.testing._internal.two_tensor import TwoTensor

import hearth_checkpoint.torch as ht
from hearth_checkpoint.errors import HearthError
from hearth_checkpoint.torch import HearthReader, HearthWriter, _jobs
from hearth_checkpoint.torch import _stage
from hearth_checkpoint.torch._pickles import load_metadata


def state() -> dict:
    generator = torch.Generator().manual_seed(1)
    base = torch.randn(6, 8, generator=generator)
    return {
        "w": torch.randn(64, 32, generator=generator), "t": base.t(), "e": base[:1].expand(5, 8),
        "v": base[1:4, 2:6], "scalar": torch.tensor(3.5), "empty": torch.empty(0, 3),
        "half": torch.randn(3, generator=generator).to(torch.bfloat16),
        "bool": torch.tensor([True, False]), "c": torch.randn(3, dtype=torch.complex64).conj(),
        "neg": torch.randn(3, dtype=torch.complex64).conj().imag, "param": torch.nn.Parameter(base),
        "nested": {"a": [torch.arange(5), 3, {"b": "text"}], "none": None, "tuple": (1, 2.5)},
        "blob": b"", "step": 7, "lr": 1e-3, "name": "größe"}


def empty_like(value):
    if isinstance(value, torch.Tensor):
        return torch.zeros(value.shape, dtype=value.dtype)
    if isinstance(value, dict):
        return {k: empty_like(v) for k, v in value.items()}
    if isinstance(value, list):
        return [empty_like(v) for v in value]
    return type(value)() if value is not None else 0


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return (a.dtype == b.dtype and a.shape == b.shape
                and torch.equal(torch.Tensor.resolve_conj(a.detach()), b.detach()))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return type(a) is type(b) and a == b


def test_save_and_load(base):
    writer = HearthWriter(base)
    kept = state()
    for step in (1, 2, 3):
        dcp.save(kept, checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=writer)
    target = empty_like(kept)
    dcp.load(target, checkpoint_id=f"{base}/step-3_ckpt", storage_reader=HearthReader())
    assert same(kept, target)


def test_async_save_keeps_the_moment(base):
    writer = HearthWriter(base)
    kept = state()
    for step in (1, 2, 3):
        wanted = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in kept.items()}
        future = dcp.async_save(kept, checkpoint_id=f"{base}/{step}", storage_writer=writer)
        kept["w"].add_(1.0)
        future.result(60)
    target = empty_like(kept)
    dcp.load(target, checkpoint_id=f"{base}/3", storage_reader=HearthReader())
    assert same(wanted, target) and not torch.equal(target["w"], kept["w"])


def test_a_modules_state_is_staged_where_it_is_written(base):
    writer = HearthWriter(base)
    kept = {"model": torch.nn.Linear(3, 2).state_dict()}
    staged = writer.stage(kept)
    begin, size = writer._staged[0].staged.save.data()
    assert type(staged["model"]) is type(kept["model"])
    assert list(staged["model"]) == ["weight", "bias"]
    assert staged["model"]._metadata == kept["model"]._metadata
    for name, tensor in staged["model"].items():
        assert torch.equal(tensor, kept["model"][name])
        assert begin <= tensor.data_ptr() < begin + size
    writer.close()


def test_own_async_save(base):
    writer = HearthWriter(base)
    kept = {f"k{i}": torch.full((17,), float(i)) for i in range(50)} | {f"n{i}": i for i in range(50)}
    ht.async_save(kept, checkpoint_id=f"{base}/4", storage_writer=writer).result(60)
    target = empty_like(kept)
    ht.load(target, checkpoint_id=f"{base}/4")
    assert same(kept, target)


def test_a_tensor_made_of_others_is_staged_in_its_shape(base):
    """By torch's own stager, which in 2.8 forgets the shape."""
    one, two = torch.ones(3, 4), torch.full((3, 4), 2.0)
    writer, value = HearthWriter(base), TwoTensor(one, two)
    staged = writer.stage({"w": value})["w"]
    one.zero_()
    assert type(staged) is TwoTensor and staged.shape == (3, 4)
    assert [float(part.sum()) for part in (staged.a, staged.b)] == [12, 24]
    writer.close()


def test_staged_tensors_are_found_by_their_address(base, monkeypatch):
    writer = HearthWriter(base)
    asked = []
    real = _stage.piece_of
    monkeypatch.setattr(_stage, "piece_of", lambda source: asked.append(source) or real(source))
    dcp.async_save({"a": torch.ones(1000), "b": torch.zeros(3, 3)}, checkpoint_id=f"{base}/1",
                   storage_writer=writer).result(60)
    assert len(asked) == 2, "a tensor was copied twice: once staged, once written"


class Doubling(dcp.DefaultSavePlanner):
    """One tensor of a staged state is another in the checkpoint."""

    def resolve_data(self, item):
        value = super().resolve_data(item)
        return value * 2 if item.index.fqn == "b" else value


def test_a_planner_that_changes_a_staged_tensor_is_heard(base):
    kept = {"a": torch.ones(1000), "b": torch.ones(3, 3)}
    dcp.async_save(kept, checkpoint_id=f"{base}/1", planner=Doubling(),
                   storage_writer=HearthWriter(base)).result(60)
    target = empty_like(kept)
    ht.load(target, checkpoint_id=f"{base}/1")
    assert torch.equal(target["a"], kept["a"]) and torch.equal(target["b"], kept["b"] * 2)


def test_names_that_read_alike_are_kept_apart():
    def source(*path):
        return _stage.Source(path, torch.ones(2), None, None)

    long = "x" * 2000
    same = [source("a", 0), source("a", "0"), source("a.0"), source(long + "1" + long),
            source(long + "2" + long)]
    pieces = _stage.pieces_of(same)
    assert len({piece.key for piece in pieces}) == len(same)
    assert pieces[0].key == b"a.0" and all(0 < len(piece.key) <= 1024 for piece in pieces)
    assert len(set(_stage.keys_of(path[0] for path, *_ in same[3:]))) == 2
    halves = [_stage.Source(("a",), torch.ones(2), (4,), (at,)) for at in (0, 2)]
    assert {piece.key for piece in _stage.pieces_of(halves)} == {b"a"}


def test_restart_finds_the_newest(base):
    writer = HearthWriter(base, linger_s=30)
    kept = state()
    for step in (5, 6):
        dcp.save(kept, checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=writer)
    _jobs.forget(base)
    assert ht.latest(base, linger_s=5) == f"{base}/step-6_ckpt"
    target = empty_like(kept)
    ht.load(target, checkpoint_id=f"{base}/step-6_ckpt")
    assert same(kept, target)


def test_nothing_there_is_none(base):
    assert ht.latest(base) is None
    assert ht.load_latest({"a": torch.zeros(2)}, base=base) is None


@pytest.mark.parametrize("name", ["x", "step-_ckpt", "run-4", "4_ckpt", "step-4_ckpt.tmp", "-3"])
def test_ids_that_name_no_step(base, name):
    with pytest.raises(CheckpointException) as caught:
        dcp.save({"a": 1}, checkpoint_id=f"{base}/{name}", storage_writer=HearthWriter(base))
    error = caught.value.failures[0][0]
    assert isinstance(error, ValueError) and "step-<N>_ckpt, <N>" in str(error)


@pytest.mark.parametrize("bad, word", [
    (lambda: torch.empty(3, device="meta"), "meta"),
    (lambda: torch.eye(3).to_sparse(), "sparse")])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_tensors_without_bytes_are_named(base, bad, word, asynchronous):
    writer = HearthWriter(base)
    broken = {"good": torch.ones(2), "deep": {"bad": bad()}}
    with pytest.raises(CheckpointException) as caught:
        if asynchronous:
            dcp.async_save(broken, checkpoint_id=f"{base}/1", storage_writer=writer).result(60)
        else:
            dcp.save(broken, checkpoint_id=f"{base}/1", storage_writer=writer)
    assert "deep.bad" in str(caught.value) and word in str(caught.value)
    dcp.save({"good": torch.ones(2)}, checkpoint_id=f"{base}/1", storage_writer=writer)


def test_fallback_to_storage(base, folder):
    wanted = {"a": torch.arange(6.0), "n": 3}
    for step in (3, 12):
        wanted["n"] = step
        dcp.save(wanted, checkpoint_id=f"{folder}/disk/step-{step}_ckpt")
    target = {"a": torch.zeros(6), "n": 0}
    reader = dcp.FileSystemReader(f"{folder}/disk")
    assert ht.load_latest(target, base=base, fallback=reader) == 12
    assert target["n"] == 12 and torch.equal(target["a"], wanted["a"])


def test_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(HearthError("what", -102, "HEARTH_ENOENT", 2)))
    assert (str(error), error.code, error.name, error.native) == ("what", -102, "HEARTH_ENOENT", 2)


class Megatrons(dcp.DefaultSavePlanner):
    """Puts more into the metadata, as Megatron's planner did and its writer does."""

    def create_global_plan(self, plans: Any) -> Any:
        plans, metadata = super().create_global_plan(plans)
        metadata.mcore_data = {"w": {"nd_reformulated_orig_global_shape": (2, 2)}}
        metadata.all_local_plans = plans
        return plans, metadata


def test_data_that_a_planner_puts_beside_the_metadata_is_kept(base):
    state = {"w": torch.arange(4.0), "n": 3}
    dcp.save(state, checkpoint_id=f"{base}/1", storage_writer=HearthWriter(base),
             planner=Megatrons())
    with open(f"{base}/step-1_ckpt/.metadata", "rb") as file:
        data = file.read()
    for metadata in (pickle.loads(data), load_metadata(data)):
        assert metadata.mcore_data == {"w": {"nd_reformulated_orig_global_shape": (2, 2)}}
        assert not hasattr(metadata, "all_local_plans")  # of all ranks; for its own next save
    assert set(capi.read_metadata(data).entries) == {"w", "n"}
    target = {"w": torch.zeros(4), "n": 0}
    dcp.load(target, checkpoint_id=f"{base}/1", storage_reader=HearthReader())
    assert target["w"].tolist() == [0, 1, 2, 3] and target["n"] == 3
    with pytest.raises(CheckpointException, match="part w: its metadata has mcore_data"):
        dcp.save(state, checkpoint_id=f"{base}/2/w", planner=Megatrons(),
                 storage_writer=HearthWriter(base, parts=("w", "x")))
