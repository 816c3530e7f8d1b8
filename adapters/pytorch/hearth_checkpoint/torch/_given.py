# SPDX-License-Identifier: Apache-2.0
"""States that planners have, and DCP's walk over the top of a state does not see.

DCP looks at each key of a state for Stateful objects, a protocol that is compared by attributes,
and writes two lines of its log for each: of a flat state of thousands of tensors this is half of a
save. So DCP is given no keys, and its own planners are given the state.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, ReadItem, SavePlan
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor

from . import _asked
from ._again import Differs
from ._planned import Again, Planned, Plans, with_token
from ._stage import ATOMS
from ._unpickle import gc_paused

_NEVER = ATOMS | {torch.Tensor, torch.nn.Parameter, DTensor, dict, OrderedDict, list, tuple}


def is_stateful(value: Any) -> bool:
    """isinstance(value, Stateful), which takes 10 us of a tensor."""
    return type(value) not in _NEVER and isinstance(value, Stateful)


def state_of(value: Any) -> Any:
    """The state of a Stateful; any other value itself."""
    return value.state_dict() if is_stateful(value) else value


class _Keyless(dict):
    """In the place of a state. begin() runs when DCP comes to its keys, once: each rank has joined
    the job then, and an error is where DCP's own would be."""

    def __init__(self, begin: Callable[[], None]) -> None:
        super().__init__()
        self._begin: Callable[[], None] | None = begin

    def _begun(self) -> None:
        begin, self._begin = self._begin, None
        if begin is not None:
            begin()

    def items(self) -> Any:
        self._begun()
        return super().items()

    def keys(self) -> Any:
        self._begun()
        return super().keys()


class _Given:
    """A planner of a state that is given here. DCP is given `keyless` in place of that state."""

    def __init__(self, state: dict[str, Any]) -> None:
        super().__init__()
        self._state, self._plain = state, {}
        self.keyless: dict[str, Any] = _Keyless(self._begin)

    def _begin(self) -> None:
        self._plain = {key: state_of(value) for key, value in self._items()}

    def _items(self) -> Iterable[tuple[str, Any]]:
        return self._state.items()  # with which a staged state begins


class SavePlanner(_Given, DefaultSavePlanner):
    """DCP's own planner of a save, which uses the plans of the last save again where it can.

    plans  of the writer
    again  what it has planned for all ranks
    """

    def __init__(self, state: dict[str, Any], plans: Plans | None = None) -> None:
        super().__init__(state)
        self.plans = Plans() if plans is None else plans
        self.again: Again | None = None
        self._kept: Planned | None = None  # of this very state

    @gc_paused()
    def set_up_planner(self, state_dict: dict[str, Any], storage_meta: StorageMeta | None = None,
                       is_coordinator: bool = False) -> None:
        self._how = is_coordinator, torch.is_grad_enabled(), torch.__version__
        kept = self.plans.planned
        if kept is not None:
            try:
                self.state_dict = kept.flat(self._plain, self._how)
                self._kept, self.mappings = kept, kept.mappings
                self.is_coordinator = is_coordinator
                return
            except (Differs, RecursionError):
                self.plans.planned = None
        super().set_up_planner(self._plain, storage_meta, is_coordinator)

    @gc_paused()
    def create_local_plan(self) -> SavePlan:
        if self._kept is not None:
            self.plan = self._kept.plan
            return self.plan
        plan = with_token(super().create_local_plan())
        try:
            self.plans.planned = Planned(
                self._plain, self.state_dict, self.mappings, self._how, plan)
        except (Differs, RecursionError):
            self.plans.planned = None
            plan = dataclasses.replace(plan, token=None)  # so that no rank keeps what it is part of
        self.plan = plan
        return plan

    @gc_paused()
    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        again = self.plans.reuse(all_plans)
        if again is None:
            again = self.plans.keep(all_plans, *super().create_global_plan(all_plans))
        self.again = again
        self.global_plan, self.metadata = again.plans, again.metadata
        return again.plans, again.metadata


class LoadPlanner(_Given, DefaultLoadPlanner):
    """The same of a load. After it fill() makes of the state what dcp.load() does."""

    def _items(self) -> Iterable[tuple[str, Any]]:
        return sorted(self._state.items(), key=lambda item: item[0])

    @gc_paused()
    def set_up_planner(self, state_dict: dict[str, Any], metadata: Metadata | None = None,
                       is_coordinator: bool = False) -> None:
        try:
            self.state_dict, self.mappings = _asked.flatten(self._plain)
        except _asked.Alike:  # DCP has an error of that
            super().set_up_planner(self._plain, metadata, is_coordinator)
            return
        self.original_state_dict = self._plain
        self.metadata, self.is_coordinator = metadata, is_coordinator

    @gc_paused()
    def create_local_plan(self) -> LoadPlan:
        if self.metadata is None or self.metadata.state_dict_metadata.keys() - self.state_dict:
            return super().create_local_plan()  # which looks for keys as older torch had them
        return LoadPlan(_asked.items(self.state_dict, self.metadata))

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        tensor = self.state_dict.get(read_item.dest_index.fqn)
        if _asked.is_plain(tensor) and tensor.shape == read_item.lengths:
            return tensor
        return super().resolve_tensor(read_item)

    def forget(self) -> None:
        """The load is over, but for fill()."""
        self.state_dict, self.mappings, self.metadata = {}, {}, None

    def fill(self) -> None:
        """Each Stateful loads its state; other values are replaced."""
        for key, value in self._plain.items():
            of = self._state[key]
            if is_stateful(of):
                of.load_state_dict(value)
            else:
                self._state[key] = value
