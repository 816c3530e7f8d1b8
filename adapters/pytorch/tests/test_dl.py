# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint.load() with HearthReader: the checklist DL1 to DL18."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
import rank_work as work
import torch
import torch.distributed.checkpoint as dcp
from lacks import needs
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

from hearth_checkpoint.torch import HearthReader, HearthWriter

# torch 2.9 has an empty assertion where there is no metadata; hearth_checkpoint.torch.load() puts
# the error into it, of its own rank.
DCP_TELLS = "metadata is None" in inspect.getsource(state_dict_loader)


class Recording(HearthReader):
    """Notes the calls DCP makes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.calls: list[str] = []
        super().__init__(*args, **kwargs)

    def reset(self, checkpoint_id: Any = None) -> None:
        self.calls.append(f"reset({'id' if checkpoint_id else ''})")
        super().reset(checkpoint_id)


def _noting(name: str) -> Any:
    real = getattr(HearthReader, name)

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(name)
        return real(self, *args, **kwargs)

    wrapper.__signature__ = inspect.signature(real)
    return wrapper


for _name in ("read_metadata", "set_up_storage_reader", "prepare_local_plan",
              "prepare_global_plan", "read_data"):
    setattr(Recording, _name, _noting(_name))


class Box:
    """Stateful."""

    def __init__(self, value: float) -> None:
        self.tensor, self.loads, self.asks = torch.full((4,), value), 0, 0

    def state_dict(self) -> dict[str, Any]:
        self.asks += 1
        return {"t": self.tensor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loads += 1
        self.tensor = state["t"].clone()


@pytest.fixture
def saved(base):
    """A base with step 1 in it."""
    state = {"w": torch.arange(12.0).view(3, 4), "n": 5, "opt": {"state": {"x": torch.ones(2)}},
             "box": Box(9.0), "lst": [torch.zeros(1), {"k": 2}]}
    dcp.save(state, checkpoint_id=f"{base}/1", storage_writer=HearthWriter(base))
    return base


def test_DL1_load_fills_in_place_and_returns_none(saved):
    target = {"w": torch.zeros(3, 4)}
    tensor = target["w"]
    assert dcp.load(target, checkpoint_id=f"{saved}/1", storage_reader=HearthReader()) is None
    assert target["w"] is tensor and torch.equal(tensor, torch.arange(12.0).view(3, 4))


def test_DL2_without_a_group_it_is_one_process_and_a_warning(saved):
    with pytest.warns(UserWarning, match="single process"):
        dcp.load({"n": 0}, checkpoint_id=f"{saved}/1", storage_reader=HearthReader())
    target = {"n": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(target, checkpoint_id=f"{saved}/1", storage_reader=HearthReader(), no_dist=True)
    assert target["n"] == 5


def test_DL3_an_id_resets_the_reader(saved):
    reader = Recording()
    dcp.load({"n": 0}, checkpoint_id=f"{saved}/1", storage_reader=reader)
    assert reader.calls[0] == "reset(id)"
    reader = Recording(saved, step=1)
    dcp.load({"n": 0}, storage_reader=reader)
    assert not any(call.startswith("reset") for call in reader.calls)


def test_DL4_keys_are_taken_in_sorted_order(two):
    assert two.run(work.key_orders, 1) == [["a", "b", "c"]] * 2


def test_DL5_DL6_stateful_is_asked_and_told_and_not_replaced(saved):
    target = {"box": Box(0.0), "n": 0}
    box = target["box"]
    dcp.load(target, checkpoint_id=f"{saved}/1", storage_reader=HearthReader())
    assert target["box"] is box and (box.asks, box.loads) == (1, 1)
    assert torch.equal(box.tensor, torch.full((4,), 9.0)) and target["n"] == 5


def test_DL7_the_deprecated_call_resets_without_an_id(saved):
    reader = Recording(saved, step=1)
    target = {"w": torch.zeros(3, 4)}
    with pytest.warns(FutureWarning):
        dcp.load_state_dict(target, reader, no_dist=True)
    assert reader.calls[0] == "reset()" and target["w"][2, 3] == 11


def test_DL8_DL9_order_of_calls(saved):
    reader = Recording()
    dcp.load({"n": 0}, checkpoint_id=f"{saved}/1", storage_reader=reader)
    assert reader.calls == ["reset(id)", "read_metadata", "set_up_storage_reader",
                            "prepare_local_plan", "prepare_global_plan", "read_data"]


def test_DL9_the_coordinator_gets_a_plan_of_each_rank(four):
    assert four.run(work.global_plans, 1) == [4, 0, 0, 0]


@pytest.mark.parametrize("hook", ["read_metadata", "set_up_storage_reader", "prepare_local_plan",
                                  "prepare_global_plan", "read_data"])
def test_DL10_DL11_a_failure_on_one_rank_is_everyones(four, hook):
    at = 0 if hook == "prepare_global_plan" else 2
    for rank, text in enumerate(four.run(work.load_failing, hook, at, 1)):
        assert text.startswith(f"[{at}]"), text
        if rank == at or hook != "read_metadata" or DCP_TELLS:
            assert f"made to fail in {hook}" in text, text


def test_DL12_the_id_is_an_attribute(saved):
    reader = HearthReader()
    reader.reset(f"{saved}/1")
    assert reader.checkpoint_id == f"{saved}/1"


def test_DL13_what_read_metadata_found_wrong_is_in_the_error(saved):
    import hearth_checkpoint.torch as ht

    with pytest.raises(CheckpointException) as caught:
        ht.load({"n": 0}, checkpoint_id=f"{saved}/8")
    assert "8" in str(caught.value.failures[0][0])
    assert isinstance(caught.value.__cause__, FileNotFoundError)


@needs("use_collectives")
def test_DL13_metadata_of_each_rank_alone(four):
    assert four.run(work.without_collectives, 1) == [True] * 4


def _fails(base: str, target: dict[str, Any], **arguments: Any) -> BaseException:
    with pytest.raises(CheckpointException) as caught:
        dcp.load(target, checkpoint_id=f"{base}/1", storage_reader=HearthReader(), **arguments)
    return caught.value.failures[0][0]


def test_DL14_missing_key_wrong_size_other_dtype(saved):
    error = _fails(saved, {"nowhere": torch.zeros(2)})
    assert isinstance(error, RuntimeError) and "nowhere" in str(error)
    error = _fails(saved, {"w": torch.zeros(4, 4)})
    assert isinstance(error, ValueError) and "Size mismatch" in str(error)
    error = _fails(saved, {"w": 3})
    assert isinstance(error, ValueError)
    partial = dcp.DefaultLoadPlanner(allow_partial_load=True)
    target = {"nowhere": torch.ones(2), "n": 0}
    dcp.load(target, checkpoint_id=f"{saved}/1", storage_reader=HearthReader(), planner=partial)
    assert target["n"] == 5 and torch.equal(target["nowhere"], torch.ones(2))
    target = {"w": torch.zeros(3, 4, dtype=torch.float64)}
    dcp.load(target, checkpoint_id=f"{saved}/1", storage_reader=HearthReader())
    assert torch.equal(target["w"], torch.arange(12.0, dtype=torch.float64).view(3, 4))


def test_DL15_resharding_to_other_meshes(four):
    saved = four.run(work.save_sharded, 1, False)
    loaded = four.run(work.load_resharded, 1)
    for part in loaded:
        for name, tensor in part.items():
            assert torch.equal(tensor, saved[0][name]), name


def test_DL15_empty_shards_are_never_read_and_0_d_tensors_are(base):
    state = {"empty": torch.empty(0, 3), "scalar": torch.tensor(2.5)}
    dcp.save(state, checkpoint_id=f"{base}/1", storage_writer=HearthWriter(base))
    target = {"empty": torch.empty(0, 3), "scalar": torch.tensor(0.0)}
    dcp.load(target, checkpoint_id=f"{base}/1", storage_reader=HearthReader())
    assert target["scalar"] == 2.5


class OwnPlanner(dcp.DefaultLoadPlanner):
    """Not a stock planner: it wants its bytes as DCP gives them."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__()
        self.wrong, self.bytes, self.committed = wrong, 0, 0

    def load_bytes(self, read_item: Any, value: Any) -> None:
        assert value.tell() == 0
        self.bytes += 1
        super().load_bytes(read_item, value)

    def resolve_tensor(self, read_item: Any) -> torch.Tensor:
        tensor = super().resolve_tensor(read_item)
        return torch.zeros(1, 1) if self.wrong else tensor

    def commit_tensor(self, read_item: Any, tensor: torch.Tensor) -> None:
        self.committed += 1


def test_DL16_another_planner_is_called_as_dcp_says(saved):
    planner = OwnPlanner()
    target = {"w": torch.zeros(3, 4), "n": 0}
    dcp.load(target, checkpoint_id=f"{saved}/1", storage_reader=HearthReader(), planner=planner)
    assert (planner.bytes, planner.committed) == (1, 1) and target["n"] == 5
    planner = OwnPlanner(wrong=True)
    error = _fails(saved, {"w": torch.zeros(3, 4)}, planner=planner)
    assert isinstance(error, AssertionError) and "mismatch sizes" in str(error)
    assert planner.committed == 0


def test_DL17_keys_without_a_state_dict(saved):
    def keys(wanted: Any) -> dict[str, Any]:
        return _load_state_dict_from_keys(
            wanted, checkpoint_id=f"{saved}/1", storage_reader=HearthReader())

    assert torch.equal(keys("w")["w"], torch.arange(12.0).view(3, 4))
    assert torch.equal(keys({"opt.state"})["opt"]["state"]["x"], torch.ones(2))
    assert set(keys(None)) >= {"w", "n", "opt", "box"}
    assert keys(set()) == {} and keys({"no such"}) == {}


def test_DL18_other_insertion_orders_on_other_ranks(two):
    assert two.run(work.key_orders, 1) == [["a", "b", "c"]] * 2
