# SPDX-License-Identifier: Apache-2.0
"""A save proves itself: what it wrote is read back by the reader that a load will use."""

from __future__ import annotations

import dataclasses
import io
import logging
import threading
from typing import Any

import proof_work
import pytest
import torch
import torch.distributed.checkpoint as dcp
from proof_work import Own
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.api import CheckpointException

import hearth_checkpoint.torch as ht
from hearth_checkpoint.errors import HearthError
from hearth_checkpoint.torch import HearthReader, HearthWriter, _rank_local


def save(base: str, step: int, state: dict[str, Any], asynchronous: bool = False,
         **arguments: Any) -> None:
    writer = HearthWriter(base)
    if asynchronous:
        dcp.async_save(state, checkpoint_id=f"{base}/{step}", storage_writer=writer,
                       **arguments).result(60)
    else:
        dcp.save(state, checkpoint_id=f"{base}/{step}", storage_writer=writer, **arguments)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [r.getMessage() for r in caplog.records
             if r.name == "hearth_checkpoint" and r.levelno == logging.WARNING
            and "trust" in r.getMessage()]
    caplog.clear()
    return lines


class Changed(dcp_metadata.BytesStorageMetadata):
    """As a newer torch might have it: pickled by a function that no reader takes."""

    def __reduce__(self) -> Any:
        return complex, (1, 2)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_metadata_that_cannot_be_loaded_fails_the_save(base, monkeypatch, asynchronous):
    from torch.distributed.checkpoint import default_planner

    save(base, 1, {"w": torch.ones(3)})
    with monkeypatch.context() as patched:
        patched.setattr(default_planner, "BytesStorageMetadata", Changed)
        with pytest.raises(CheckpointException) as caught:
            save(base, 2, {"w": torch.zeros(3), "n": 1}, asynchronous)
    text = str(caught.value.failures[0][0])
    assert "step 2" in text and ".metadata" in text and "complex" in text, text
    assert torch.__version__ in text
    assert ht.latest(base) == f"{base}/step-1_ckpt"
    save(base, 2, {"w": torch.zeros(3), "n": 1})


def test_all_ranks_hear_of_metadata_that_cannot_be_loaded(two):
    for refused, after in two.run(proof_work.refused_metadata, 3):
        assert refused.startswith("[0]") and ".metadata" in refused and not after, (refused, after)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_item_that_nobody_will_decode_fails_the_save_on_all_ranks(two, asynchronous):
    for heard in two.run(proof_work.never_decoded, 3, asynchronous):
        assert heard.startswith("[1]") and "deep.bad" in heard and "even with trust" in heard, heard


def test_an_item_that_needs_trust_is_said_once_by_its_key(base, caplog):
    state = {"w": torch.ones(3), "mine": {"a": Own(1)}, "n": 4}
    with caplog.at_level(logging.WARNING, "hearth_checkpoint"):
        save(base, 1, state)
        (line,) = warnings_of(caplog)
        assert "mine.a" in line and "Own" in line and "trust=True" in line
        assert "n (" not in line
        for step in (2, 3):
            state["mine"]["a"] = Own(step)
            save(base, step, state, asynchronous=step == 3)
            assert warnings_of(caplog) == []
        save(base, 4, {**state, "more": Own(5)})
        (line,) = warnings_of(caplog)
        assert "more" in line and "mine.a" not in line
    target: dict[str, Any] = {"mine": {"a": None}}
    ht.load(target, checkpoint_id=f"{base}/4", trust=True)
    assert target["mine"]["a"].value == 3


def test_many_items_that_need_trust_are_one_line(base, caplog):
    with caplog.at_level(logging.WARNING, "hearth_checkpoint"):
        save(base, 1, {f"k{i}": Own(i) for i in range(50)})
    (line,) = warnings_of(caplog)
    assert "k0" in line and "40 more" in line


@pytest.fixture
def proofs(monkeypatch) -> dict[str, int]:
    """How often each reader was asked by a proof."""
    from hearth_checkpoint.torch import _proof

    count = {"metadata": 0, "item": 0, "header": 0}
    for name, kind in (("load_metadata", "metadata"), ("judge_item", "item"),
                       ("read_header", "header")):
        def counted(*args: Any, _real: Any = getattr(_proof, name), _kind: str = kind) -> Any:
            count[_kind] += 1
            assert threading.current_thread() is not threading.main_thread() or not blocked
            return _real(*args)

        monkeypatch.setattr(_proof, name, counted)
    blocked: list[bool] = []
    count["blocked"] = blocked  # type: ignore[assignment]
    return count


def taken(proofs: dict[str, int]) -> tuple[int, int, int]:
    out = proofs["metadata"], proofs["item"], proofs["header"]
    proofs.update(metadata=0, item=0, header=0)
    return out


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_proof_runs_again_when_the_structure_has_changed_only(base, proofs, asynchronous):
    state: dict[str, Any] = {"w": torch.ones(3), "v": torch.ones(2, 2), "h": torch.ones(3).half(),
                             "n": 1, "lr": 0.5, "o": Own(1)}
    if asynchronous:
        proofs["blocked"].append(True)
    save(base, 1, state, asynchronous)
    metadata, items, headers = taken(proofs)
    assert metadata == 1 and items == 3 and headers == 3  # a header of each dtype and shape's form
    for step in (2, 3):
        state.update({"w": torch.zeros(3), "n": 70000, "lr": 1e-9, "o": Own(2)})
        save(base, step, state, asynchronous)
        assert taken(proofs) == (0, 0, 0), step
    state["n"] = "text"
    save(base, 4, state, asynchronous)
    assert taken(proofs) == (0, 1, 0)  # of that item; `.metadata` does not say what it is
    state["more"] = 7
    save(base, 5, state, asynchronous)
    assert taken(proofs) == (1, 1, 0)
    state["w"] = torch.ones(3, dtype=torch.float64)
    save(base, 6, state, asynchronous)
    assert taken(proofs) == (1, 0, 1)
    state["w"] = torch.ones(4, dtype=torch.float64)
    save(base, 7, state, asynchronous)
    assert taken(proofs)[0] == 1


def test_a_structure_is_proved_again_by_another_torch(base, proofs, monkeypatch):
    state = {"w": torch.ones(3), "n": 1}
    save(base, 1, state)
    assert taken(proofs) == (1, 1, 1)
    monkeypatch.setattr(torch, "__version__", "99.0")
    save(base, 2, state)
    assert taken(proofs) == (1, 1, 1)


def test_staging_proves_nothing(base, proofs):
    """The trainer waits for it."""
    writer = HearthWriter(base)
    staged = writer.stage({"w": torch.ones(3), "n": 1, "o": Own(1)})
    assert taken(proofs) == (0, 0, 0)
    dcp.save(staged, checkpoint_id=f"{base}/1", storage_writer=writer)
    assert taken(proofs) == (1, 2, 1)
    stager = _rank_local.Stager(base=base)
    again = stager.stage({"w": torch.ones(3), "o": Own(1)})
    assert taken(proofs) == (0, 0, 0)
    _rank_local.Writer().write(f"{base}/2", again)
    assert taken(proofs)[1] > 0


class Raw(dcp.DefaultSavePlanner):
    """Byte items that no torch.save wrote, for a load planner of its own."""

    def resolve_data(self, item: Any) -> Any:
        value = super().resolve_data(item)
        return value if isinstance(value, torch.Tensor) else io.BytesIO(b"raw bytes")


def test_bytes_of_another_planner_are_said_and_kept(base, caplog):
    """HearthReader(trust=True) hands them to the planner as they are."""
    with caplog.at_level(logging.WARNING, "hearth_checkpoint"):
        save(base, 1, {"w": torch.ones(3), "n": 1}, planner=Raw())
        (line,) = warnings_of(caplog)
        assert "n" in line.split() or "n:" in line or "n " in line


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_header_that_cannot_be_read_fails_the_save(base, monkeypatch, asynchronous):
    """What lies in the pool in front of a tensor is not what a reader wants."""
    from hearth_checkpoint.torch import _proof

    real = _proof.read_header

    def damaged(data: bytes) -> Any:
        return real(data.replace(b"TensorHeader", b"TensorNeader"))

    with monkeypatch.context() as patched:
        patched.setattr(_proof, "read_header", damaged)
        with pytest.raises(CheckpointException, match="(?s)w: .*header"):
            save(base, 1, {"w": torch.ones(3)}, asynchronous)
    save(base, 1, {"w": torch.ones(3)}, asynchronous)


class Viewing(dcp.DefaultSavePlanner):
    """Stores w as another kind, or in another shape. says: in the plan as well."""

    def __init__(self, view: Any, says: bool) -> None:
        super().__init__()
        self._view, self._says = view, says

    def create_local_plan(self) -> Any:
        plan = super().create_local_plan()
        if self._says:
            self.plan = dataclasses.replace(plan, items=[
                self._as_viewed(item) if item.index.fqn == "w" else item for item in plan.items])
        return self.plan

    def lookup_object(self, index: Any) -> Any:
        return self.state_dict[index.fqn]

    def _as_viewed(self, item: Any) -> Any:
        value = self._view(self.state_dict[item.index.fqn])
        data = dataclasses.replace(
            item.tensor_data, size=value.size(),
            chunk=dcp_metadata.ChunkStorageMetadata(
                torch.Size([0] * value.dim()), value.size()),
            properties=dataclasses.replace(item.tensor_data.properties, dtype=value.dtype))
        return dataclasses.replace(item, index=dataclasses.replace(
            item.index, offset=data.chunk.offsets), tensor_data=data)

    def transform_object(self, write_item: Any, object: Any) -> Any:
        return self._view(object) if write_item.index.fqn == "w" else object


VIEWS = {"int32": lambda t: t.view(torch.int32), "flat": lambda t: t.view(-1),
         "float64": lambda t: t.to(torch.float64), "other sizes": lambda t: t.view(3, 2)}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("view", VIEWS)
def test_what_a_planner_stores_is_as_its_plan_says(base, view, asynchronous):
    w = torch.arange(6.0).view(2, 3)
    wanted = VIEWS[view](w)
    state = {"first of its kind": wanted.clone(), "w": w}  # whose header the proof reads
    save(base, 1, state, asynchronous, planner=Viewing(VIEWS[view], True))
    target = {"w": torch.zeros_like(wanted)}
    dcp.load(target, checkpoint_id=f"{base}/1", storage_reader=HearthReader())
    assert torch.equal(target["w"], wanted)
    with pytest.raises(CheckpointException, match="(?s)w: .*the plan has"):
        save(base, 2, state, asynchronous, planner=Viewing(VIEWS[view], False))
    assert ht.latest(base) == f"{base}/step-1_ckpt"


def test_what_memory_has_afterwards_is_looked_at(base, monkeypatch):
    """The committed save is opened as a load would open it: here it gives another `.metadata`."""
    from hearth_checkpoint.job import Checkpoint

    real = Checkpoint.common
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "common", lambda self, name: real(self, name)[:-1])
        for step in (1, 2):  # what was not found to be right is looked at again
            with pytest.raises(CheckpointException, match=f"step {step}.*.metadata"):
                save(base, step, {"w": torch.ones(3)})
    save(base, 3, {"w": torch.ones(3)})


# ---- rank-local saves -----------------------------------------------------------------------------


def test_the_rank_local_writer_proves_itself(base, caplog, monkeypatch):
    state = {"w": torch.ones(3), "deep": [{"o": Own(1)}], "n": 2}
    with caplog.at_level(logging.WARNING, "hearth_checkpoint"):
        for step in (1, 2):
            _rank_local.Writer().write(f"{base}/{step}", state)
        (line,) = warnings_of(caplog)
        assert "deep[0].o" in line and "Own" in line
    with pytest.raises(HearthError, match=r"(?s)deep\[0\]\.o.*trust=True"):
        _rank_local.Reader().read(f"{base}/2", {"deep": None})
    assert _rank_local.Reader(trust=True).read(f"{base}/2", None)[0]["deep"][0]["o"].value == 1
    from hearth_checkpoint.torch import _skeleton

    real = _skeleton.encode_item
    with monkeypatch.context() as patched:
        patched.setattr(_skeleton, "encode_item",
                        lambda v: real(v)[:-1] if isinstance(v, set) else real(v))
        with pytest.raises(HearthError, match="(?s)deep.x.*even with trust"):
            _rank_local.Writer().write(f"{base}/3", {"deep": {"x": {1, 2}}})
    _rank_local.Writer().write(f"{base}/3", {"deep": {"x": {1, 2}}})


def test_a_proof_changes_nothing_of_what_is_written(base):
    state = {"w": torch.arange(6.0).view(2, 3), "n": 3, "o": {"x": (1, "a")}}
    for step in (1, 2):
        save(base, step, state, asynchronous=step == 2)
        target: dict[str, Any] = {"w": torch.zeros(2, 3), "n": 0, "o": {"x": None}}
        dcp.load(target, checkpoint_id=f"{base}/{step}", storage_reader=HearthReader())
        assert torch.equal(target["w"], state["w"]) and target["n"] == 3
        assert target["o"] == {"x": (1, "a")}
