# SPDX-License-Identifier: Apache-2.0
"""The plan of a save whose state is as the one before.

DCP plans each save anew: it flattens the state twice, makes an item of each tensor, removes
duplicates and validates the whole. Most states have the keys, dtypes, shapes and placements of the
state before. So a writer keeps what was planned last, and the next state is compared with it, leaf
by leaf. What DCP would take into account is compared, and nothing is kept of a state with tensors
of other classes or with attributes, with mappings of other classes, or with keys that are no names
and numbers.

A plan that was made anew has a token that no other plan has. The coordinator plans for all ranks
again unless each rank's plan has the token that it had in the save before.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, WriteItem
from torch.distributed.tensor import DTensor

from ._again import ATOMS, DICTS, KEYS, PLAIN, Differs, local_if_same
from ._dumped import Dumped

_LEAVES = ATOMS | {tuple}  # which DCP does not look into
_MOST_ITEMS = 1 << 16  # about 2 KB each, which the collector walks as well
_LEAF, _LEAF_LIST, _OBJECT = "leaf", "list", "object"


@dataclasses.dataclass(frozen=True)
class TokenPlan(SavePlan):
    """A local plan, which two plans of one token have the same of."""

    token: str | None = None


class _Tensor(NamedTuple):
    kind: type
    local: type  # of what it has here
    dtype: torch.dtype
    device: torch.device
    shape: torch.Size  # of what it has here
    stride: tuple[int, ...]  # torch 2.15 has them in the metadata
    requires_grad: tuple[bool, bool]  # of it, and of what it has here
    is_pinned: bool
    spec: Any  # of a DTensor


class _Dict(NamedTuple):
    kind: type
    keys: list[Any]
    types: list[type]  # of the keys: 1 and True are equal
    nodes: list[Any]


class _List(NamedTuple):
    nodes: list[Any]


# ---- a state as DCP flattens it ------------------------------------------------------------------


def _is_plain_list(value: list[Any]) -> bool:
    """DCP does not look into this list: it has no tensor and no mapping in it."""
    return all(type(child) in _LEAVES or (type(child) is list and _is_plain_list(child))
               for child in value)


def _is_object(value: Any) -> bool:
    """It becomes one byte item, whatever it is."""
    return not (isinstance(value, (Mapping, list, torch.Tensor))
                or hasattr(value, "__create_write_items__"))


def _node(value: Any) -> Any:
    """What is kept of a value. Raises Differs where nothing is."""
    kind = type(value)
    if kind in _LEAVES:
        return _LEAF
    if kind in DICTS:
        if not KEYS.issuperset(map(type, value)):
            raise Differs
        return _Dict(kind, list(value), list(map(type, value)), list(map(_node, value.values())))
    if kind is list:
        return _LEAF_LIST if _is_plain_list(value) else _List(list(map(_node, value)))
    if kind in PLAIN or kind is DTensor:
        return _node_of_tensor(value)
    if not _is_object(value):
        raise Differs
    return _OBJECT


def _node_of_tensor(value: torch.Tensor) -> _Tensor:
    kind = type(value)
    local = value._local_tensor if kind is DTensor else value
    if type(local) not in PLAIN or (kind is not DTensor and vars(value)) or (
            local.layout is not torch.strided or local.is_nested):
        raise Differs
    return _Tensor(kind, type(local), local.dtype, local.device, local.shape,
                   local.stride(), (value.requires_grad, local.requires_grad), local.is_pinned(),
                   value._spec if kind is DTensor else None)


def _compare(value: Any, node: Any, leaves: list[Any]) -> None:
    """Add the leaves of a value that is as its node. Raises Differs."""
    form = type(node)
    if form is _Tensor:
        _compare_tensor(value, node)
        leaves.append(value)
    elif form is _Dict:
        if (type(value) is not node.kind or list(map(type, value)) != node.types
                or list(value) != node.keys):
            raise Differs
        for child, want in zip(value.values(), node.nodes):
            _compare(child, want, leaves)
    elif form is _List:
        if type(value) is not list or len(value) != len(node.nodes):
            raise Differs
        for child, want in zip(value, node.nodes):
            _compare(child, want, leaves)
    else:
        kind = type(value)
        is_same = (kind in _LEAVES if node is _LEAF else
                   kind is list and _is_plain_list(value) if node is _LEAF_LIST else
                   kind not in _LEAVES and _is_object(value))
        if not is_same:
            raise Differs
        leaves.append(value)


def _compare_tensor(value: Any, want: _Tensor) -> None:
    local = local_if_same(value, want)
    if ((value.requires_grad, local.requires_grad) != want.requires_grad
            or local.is_pinned() != want.is_pinned):
        raise Differs


# ---- what is kept --------------------------------------------------------------------------------


class Planned:
    """What was planned of a state.

    names, mappings  of its leaves: the flat state's keys, in order, and each one's path
    plan             this rank's, with a token
    """

    def __init__(self, state: dict[str, Any], flat: dict[str, Any], mappings: dict[str, Any],
                 how: tuple[Any, ...], plan: TokenPlan) -> None:
        """Raises Differs for a state of which nothing is kept."""
        if len(flat) > _MOST_ITEMS:
            raise Differs
        self._top = _node(state)
        self._how = how
        self.names, self.mappings, self.plan = list(flat), mappings, plan
        leaves: list[Any] = []
        _compare(state, self._top, leaves)
        if len(leaves) != len(flat) or any(
                a is not b for a, b in zip(leaves, flat.values())):
            raise Differs

    def flat(self, state: dict[str, Any], how: tuple[Any, ...]) -> dict[str, Any]:
        """The flat state of one that is as this one was. Raises Differs.

        how  what else counts
        """
        if how != self._how:
            raise Differs
        leaves: list[Any] = []
        _compare(state, self._top, leaves)
        return dict(zip(self.names, leaves))


class _Global(NamedTuple):
    """What was planned for all ranks, of local plans of these tokens."""

    tokens: tuple[str, ...]
    plans: list[SavePlan]
    metadata: Metadata
    dumped: Dumped


class Again(NamedTuple):
    """What a save gets of a plan for all ranks.

    metadata  its own, to change
    dumped    of all saves of this plan; None: the plan is not kept
    """

    plans: list[SavePlan]
    metadata: Metadata
    dumped: Dumped | None


class Plans:
    """What a writer keeps of its last save, by any thread.

    planned   this rank's plan
    together  where this rank coordinates: all ranks' plans
    written   what write_data() has made of the plan
    staged    likewise, of a staged save
    """

    def __init__(self) -> None:
        self.planned: Planned | None = None
        self.together: _Global | None = None
        self.written: Any = None
        self.staged: Any = None

    def knows(self, items: list[WriteItem]) -> bool:
        """Whether these very items are those of a plan that may be used again here."""
        together = self.together
        return (self.planned is not None and together is not None
                and any(plan.items is items for plan in together.plans))

    def is_written(self, plan: SavePlan) -> bool:
        """Whether these very items were written before."""
        return any(made is not None and made.items is plan.items
                   for made in (self.written, self.staged))

    def reuse(self, plans: list[SavePlan]) -> Again | None:
        """What was planned for all ranks, where each has the same plan again."""
        kept = self.together
        if kept is None or kept.tokens != _tokens(plans):
            return None
        made = [dataclasses.replace(old, storage_data=new.storage_data)
                for old, new in zip(kept.plans, plans)]
        return Again(made, _copy(kept.metadata), kept.dumped)

    def keep(self, plans: list[SavePlan], made: list[SavePlan], metadata: Metadata) -> Again:
        """What was planned for all ranks, of their local plans. Returns what the caller gets."""
        tokens = _tokens(plans)
        is_kept = None not in tokens and sum(len(plan.items) for plan in plans) <= _MOST_ITEMS
        if not is_kept:
            self.together = None
            return Again(made, metadata, None)
        self.together = _Global(tokens, made, metadata, Dumped())
        return Again(made, _copy(metadata), self.together.dumped)


def _twin(record: Any) -> Any:
    """A copy of a record. copy.copy() would pickle it."""
    out = object.__new__(type(record))
    vars(out).update(vars(record))
    return out


def _tokens(plans: list[SavePlan]) -> tuple[Any, ...]:
    return tuple([getattr(plan, "token", None) for plan in plans])


def _copy(metadata: Metadata) -> Metadata:
    """It is the caller's to change: items of the plan have the same properties and chunks."""
    entries = {key: TensorStorageMetadata(
                   _twin(entry.properties), entry.size, list(map(_twin, entry.chunks)))
               if type(entry) is TensorStorageMetadata else entry
               for key, entry in metadata.state_dict_metadata.items()}
    return dataclasses.replace(metadata, state_dict_metadata=entries,
                               planner_data=dict(metadata.planner_data))


def with_token(plan: SavePlan) -> TokenPlan:
    """A plan that was made anew."""
    fields = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    return TokenPlan(**fields, token=uuid.uuid4().hex)
