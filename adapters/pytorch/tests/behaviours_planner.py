# SPDX-License-Identifier: Apache-2.0
"""Behaviours of planners of the user's own, of DCP's with other settings, and of failures, in one
process."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from behaviour import Place, behaviour, outcome, plain, zeros
from behaviours_alone import small
from torch.distributed.checkpoint.planner import SavePlanner


class Renaming(dcp.DefaultSavePlanner):
    """Keys get a prefix in the checkpoint."""

    def set_up_planner(self, state_dict: Any, storage_meta: Any = None,
                       is_coordinator: bool = False) -> None:
        super().set_up_planner({f"saved.{key}": value for key, value in state_dict.items()},
                               storage_meta, is_coordinator)


class RenamingBack(dcp.DefaultLoadPlanner):
    def set_up_planner(self, state_dict: Any, metadata: Any = None,
                       is_coordinator: bool = False) -> None:
        self.theirs = state_dict
        super().set_up_planner({f"saved.{key}": value for key, value in state_dict.items()},
                               metadata, is_coordinator)

    def load_bytes(self, item: Any, value: Any) -> None:
        self.theirs[item.dest_index.fqn.removeprefix("saved.")] = torch.load(value)


class Halving(dcp.DefaultSavePlanner):
    """Tensors are stored as float16."""

    def create_local_plan(self) -> Any:
        plan = super().create_local_plan()

        def as_half(item: Any) -> Any:
            if item.tensor_data is None:
                return item
            properties = dataclasses.replace(item.tensor_data.properties, dtype=torch.float16)
            return dataclasses.replace(
                item, tensor_data=dataclasses.replace(item.tensor_data, properties=properties))

        self.plan = dataclasses.replace(plan, items=[as_half(item) for item in plan.items])
        return self.plan

    def transform_object(self, write_item: Any, object: Any) -> Any:
        value = super().transform_object(write_item, object)
        return value.to(torch.float16) if isinstance(value, torch.Tensor) else value


class Negating(dcp.DefaultSavePlanner):
    def lookup_object(self, index: Any) -> Any:
        value = super().lookup_object(index)
        return -value if isinstance(value, (torch.Tensor, int, float)) else value


class Older(dcp.DefaultSavePlanner):
    """Of the time before storage_meta."""

    def set_up_planner(self, state_dict: Any,  # type: ignore[override]
                       is_coordinator: bool) -> None:
        super().set_up_planner(state_dict, None, is_coordinator)


class Choosing(dcp.DefaultSavePlanner):
    """Leaves out what is called opt."""

    def create_local_plan(self) -> Any:
        plan = super().create_local_plan()
        self.plan = dataclasses.replace(
            plan, items=[item for item in plan.items if not item.index.fqn.startswith("opt")])
        return self.plan


class Aside(dcp.DefaultLoadPlanner):
    """Tensors are read into others, and put where they belong when they are told to be done."""

    def resolve_tensor(self, read_item: Any) -> torch.Tensor:
        return torch.full_like(super().resolve_tensor(read_item), 99.0)

    def commit_tensor(self, read_item: Any, tensor: torch.Tensor) -> None:
        super().resolve_tensor(read_item).copy_(tensor + 1)


class Bytes(dcp.DefaultLoadPlanner):
    """Notes what byte items it is given, and how they are to be read."""

    def load_bytes(self, read_item: Any, value: Any) -> None:
        self.seen = getattr(self, "seen", [])
        assert value.tell() == 0
        self.seen.append((read_item.dest_index.fqn, torch.load(value)))


@behaviour()
def a_planner_may_rename(at: Place) -> Any:
    at.save(small(), planner=Renaming())
    keys = list(at.reader(1).read_metadata().state_dict_metadata)
    assert all(key.startswith("saved.") for key in keys)
    state = small(5)
    return keys, plain(at.load({"w": state["w"], "b": state["b"], "step": 0},
                               planner=RenamingBack()))


@behaviour()
def a_planner_may_store_another_dtype(at: Place) -> Any:
    at.save(small(), planner=Halving())
    stored = at.reader(1).read_metadata().state_dict_metadata["w"].properties.dtype
    assert stored is torch.float16
    return plain(at.load(zeros(small())))


@behaviour(cases=(Negating, Choosing))
def a_planner_may_change_and_choose(at: Place, kind: Any) -> Any:
    at.save(small(), planner=kind())
    return plain(at.load({"w": torch.zeros(4, 6), "step": 0}))


@behaviour()
def a_planner_of_an_older_torch_is_warned_of(at: Place) -> Any:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        at.save(small(), planner=Older())
    assert any("storage_meta" in str(each.message) for each in heard)
    return plain(at.load(zeros(small())))


@behaviour()
def a_planner_may_read_aside(at: Place) -> Any:
    at.save({"w": torch.arange(6.0).view(2, 3)})
    read = at.load({"w": torch.zeros(2, 3)}, planner=Aside())
    assert torch.equal(read["w"], torch.arange(6.0).view(2, 3) + 1)
    return read


@behaviour()
def a_planner_gets_byte_items_as_files_of_torch_save(at: Place) -> Any:
    at.save(small())
    planner = Bytes()
    at.load(zeros(small()), planner=planner)
    return sorted(planner.seen)


@behaviour(cases=((False, False), (True, False), (False, True)))
def nested_states_with_and_without_flattening(at: Place, flat: Any) -> Any:
    state = {"w": torch.ones(3), "deep": {"n": 4, "t": torch.arange(2.0)}}
    at.save(state, planner=dcp.DefaultSavePlanner(flatten_state_dict=flat[0]))
    keys = list(at.reader(1).read_metadata().state_dict_metadata)
    target: Any = {"w": torch.zeros(3), "deep": None}
    if flat == (True, False):
        target = {"w": torch.zeros(3), "deep.n": 0, "deep.t": torch.zeros(2)}
    found = outcome(lambda: plain(at.load(
        target, planner=dcp.DefaultLoadPlanner(flatten_state_dict=flat[1]))))
    return keys, found


@behaviour()
def plans_may_be_remembered_from_save_to_save(at: Place) -> Any:
    """The same state four times, another one, and the first again."""
    read = []
    for step, more in enumerate(({}, {}, {}, {"new": torch.ones(5)}, {}), start=1):
        state = {**small(step), **more}
        at.save(state, step, planner=dcp.DefaultSavePlanner(enable_plan_caching=True))
        read.append(plain(at.load(zeros(state), step)))
        assert read[-1]["step"] == step
    return read


@behaviour()
def a_failed_plan_is_not_remembered(at: Place) -> Any:
    class Refusing(dcp.DefaultSavePlanner):
        def create_global_plan(self, all_plans: Any) -> Any:
            raise ValueError("made to fail")

    found = outcome(lambda: at.save(small(), planner=Refusing(enable_plan_caching=True)))
    SavePlanner._cached_save_plan.pop("Refusing", None)
    at.save(small(), planner=dcp.DefaultSavePlanner(enable_plan_caching=True))
    return found, plain(at.load(zeros(small())))


# ---- failures ------------------------------------------------------------------------------------

SAVE_HOOKS = ("storage_meta", "set_up_storage_writer", "prepare_local_plan", "prepare_global_plan",
              "write_data", "finish", "the future of write_data")
LOAD_HOOKS = ("read_metadata", "set_up_storage_reader", "prepare_local_plan",
              "prepare_global_plan", "read_data", "the future of read_data")
SAVE_PLANNER_HOOKS = ("set_up_planner", "create_local_plan", "create_global_plan", "finish_plan",
                      "resolve_data")
LOAD_PLANNER_HOOKS = ("set_up_planner", "create_local_plan", "create_global_plan", "finish_plan",
                      "resolve_tensor", "commit_tensor", "load_bytes")


class Broken(Exception):
    """What a hook raises that is made to fail."""


class BrokenFuture:
    def __init__(self, then: Any) -> None:
        self._then = then

    def wait(self) -> None:
        self._then.wait()
        raise Broken("made to fail in the future")

    value = wait


def failing(thing: Any, hook: str) -> Any:
    """The same writer, reader or planner, whose hook raises."""
    if hook.startswith("the future of "):
        name = hook.split()[-1]
        real = getattr(thing, name)
        setattr(thing, name, lambda *args, **kwargs: BrokenFuture(real(*args, **kwargs)))
        return thing

    if hook == "set_up_planner" and isinstance(thing, SavePlanner):
        def broken(state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> Any:
            raise Broken(f"made to fail in {hook}")
    else:
        def broken(*args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
            raise Broken(f"made to fail in {hook}")

    setattr(thing, hook, broken)
    return thing


@behaviour(cases=SAVE_HOOKS)
def a_save_that_fails_in_a_writer_is_raised(at: Place, hook: str) -> Any:
    found = outcome(lambda: at.save(small(1), 1, storage_writer=failing(at.writer(), hook)))
    assert found.kinds[0][0] == "Broken", found
    at.save(small(2), 2)
    return found, plain(at.load(zeros(small()), 2))


@behaviour(cases=LOAD_HOOKS)
def a_load_that_fails_in_a_reader_is_raised(at: Place, hook: str) -> Any:
    at.save(small())
    found = outcome(lambda: at.load(zeros(small()), storage_reader=failing(at.reader(), hook)))
    return found, plain(at.load(zeros(small())))


@behaviour(cases=SAVE_PLANNER_HOOKS)
def a_save_that_fails_in_a_planner_is_raised(at: Place, hook: str) -> Any:
    planner = failing(dcp.DefaultSavePlanner(), hook)
    found = outcome(lambda: at.save(small(1), 1, planner=planner))
    assert found.kinds[0][0] == "Broken", found
    at.save(small(2), 2)
    return found, plain(at.load(zeros(small()), 2))


@behaviour(cases=LOAD_PLANNER_HOOKS)
def a_load_that_fails_in_a_planner_is_raised(at: Place, hook: str) -> Any:
    at.save(small())
    planner = failing(dcp.DefaultLoadPlanner(), hook)
    found = outcome(lambda: at.load(zeros(small()), planner=planner))
    assert found.kinds[0][0] == "Broken", found
    return found, plain(at.load(zeros(small())))
