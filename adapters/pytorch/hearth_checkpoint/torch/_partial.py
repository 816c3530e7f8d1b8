# SPDX-License-Identifier: Apache-2.0
"""Filling a nested state from a stored one: what is asked for is read, in place where it can be.

The stored state comes as containers whose tensors are TensorRefs. The whole target is compared with
it first; bytes are read, and the target is changed, only when all of it fits. So a state that does
not fit is left as it was.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch.distributed.tensor import DTensor
from torch.serialization import _get_restore_location

from . import _targets

_log = logging.getLogger(__name__)
_LISTED = 10  # missing keys that a warning spells out


@dataclass(eq=False, slots=True)
class TensorRef:
    """A stored tensor whose bytes were not read.

    shape, nbytes  as stored; of a DTensor, its local part
    location       where it was when it was saved: "cpu", "cuda:0"
    whole          shape of the whole DTensor; None: no DTensor
    place          the source's own
    """

    dtype: torch.dtype
    shape: torch.Size
    location: str
    place: Any
    whole: torch.Size | None = None

    @property
    def nbytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize


Pairs = Sequence[tuple[TensorRef, torch.Tensor]]


class Source(Protocol):
    """A stored state. root: dicts, lists and tuples of TensorRefs and of anything else."""

    root: Any

    def read(self, pairs: Pairs) -> int:
        """Fill tensors on any device from their refs, of equal shape and dtype; the bytes read."""
        ...


def join(path: str | None, key: Any) -> Any:
    """The path of a dict's entry: "a.b"; a key of the root as it is."""
    return key if path is None else f"{path}.{key}"


def _item(path: str | None, index: int) -> str:
    return f"[{index}]" if path is None else f"{path}[{index}]"


def _ordered(old: OrderedDict, new: Callable[[Any], Any]) -> OrderedDict:
    out = OrderedDict((key, new(value)) for key, value in old.items())
    out.__dict__.update(new(vars(old)))  # the _metadata of a module's state_dict()
    return out


# What a stored state may hold tensors in, made again of what new() makes of them.
_AGAIN: dict[type, Callable[[Any, Callable[[Any], Any]], Any]] = {
    dict: lambda old, new: {key: new(value) for key, value in old.items()},
    OrderedDict: _ordered,
    list: lambda old, new: list(map(new, old)),
    tuple: lambda old, new: tuple(map(new, old)),
    defaultdict: lambda old, new: defaultdict(old.default_factory, new(dict(old))),
    Counter: lambda old, new: Counter(new(dict(old))),
    deque: lambda old, new: deque(map(new, old), old.maxlen),
    SimpleNamespace: lambda old, new: SimpleNamespace(**new(vars(old))),
    Namespace: lambda old, new: Namespace(**new(vars(old))),
}


class _Plan:
    """What is to be read where, and which entries change then."""

    def __init__(self, map_location: Any) -> None:
        self.pairs: list[tuple[TensorRef, torch.Tensor]] = []
        self.entries: list[tuple[dict, Any, Any]] = []
        self.missing: list[Any] = []
        self._restore: Callable[[Any, str], Any] = _get_restore_location(map_location)
        self._devices: dict[str, torch.device] = {}
        self._new: dict[int, torch.Tensor] = {}
        self._open: set[int] = set()  # containers that are being made again

    def value(self, target: Any, source: Any, path: Any) -> Any:
        """What the target's place holds afterwards."""
        if target is None:
            return self.fresh(source)
        is_tensor = isinstance(source, TensorRef)
        if not isinstance(target, torch.Tensor if is_tensor else type(source)):
            kind = torch.Tensor if is_tensor else type(source)
            raise RuntimeError(f"Target value {path} is set to {type(target)}, but source value "
                               f"is {kind}")
        if is_tensor:
            return self._tensor(target, source, path)
        if isinstance(source, dict):
            return self._dict(target, source, path)
        if isinstance(source, list):
            pairs = zip_longest(target, source, fillvalue=None)
            return [self.value(mine, stored, _item(path, i))
                    for i, (mine, stored) in enumerate(pairs)]
        return self.fresh(source)

    def _dict(self, target: dict, source: dict, path: Any) -> dict:
        for key in list(target):
            where = join(path, key)
            if key in source:
                self.entries.append((target, key, self.value(target[key], source[key], where)))
            else:
                self.missing.append(where)
        return target

    def _tensor(self, target: torch.Tensor, source: TensorRef, path: Any) -> torch.Tensor:
        size = source.shape
        into = target
        if isinstance(target, DTensor):
            into = target._local_tensor
            size = source.shape if source.whole is None else source.whole
        if target.size() != size or target.dtype != source.dtype:
            raise RuntimeError(
                f"Target tensor size={target.size()} dtype={target.dtype} does not match "
                f"source tensor size={size} dtype={source.dtype} for key {path}")
        if into.size() != source.shape:
            raise RuntimeError(
                f"Target tensor's local size={into.size()} does not match the local size="
                f"{source.shape} that was saved, for key {path}: this reader does not reshard")
        if into.layout != torch.strided or any(
                size > 1 and not stride for size, stride in zip(into.size(), into.stride())):
            raise RuntimeError(f"Target tensor for key {path} cannot be written: its elements "
                               "share memory, or its layout is not strided")
        self.pairs.append((source, into))
        return target

    def fresh(self, source: Any) -> Any:
        """The stored value, its tensors new. A tensor that was stored once stays one."""
        kind = type(source)
        if kind is TensorRef:
            return self._new_tensor(source)
        again = _AGAIN.get(kind)
        if again is None or id(source) in self._open:  # one that holds itself stays what it is
            return source
        self._open.add(id(source))
        try:
            return again(source, self.fresh)
        finally:
            self._open.discard(id(source))

    def _new_tensor(self, source: TensorRef) -> torch.Tensor:
        new = self._new.get(id(source))
        if new is None:
            new = torch.empty(source.shape, dtype=source.dtype, device=self._device(source))
            self._new[id(source)] = new
            self.pairs.append((source, new))
        return new

    def _device(self, source: TensorRef) -> torch.device:
        """Where torch.load would put it."""
        known = self._devices.get(source.location)
        if known is None:
            known = self._restore(torch.UntypedStorage(0, device="cpu"), source.location).device
            self._devices[source.location] = known
        return known


def _warn(missing: list[Any]) -> None:
    if len(missing) > _LISTED:
        _log.warning("Missing %s keys from checkpoint: %s... (and %s more)", len(missing),
                     missing[:_LISTED], len(missing) - _LISTED)
    elif missing:
        _log.warning("Missing %s keys from checkpoint: %s", len(missing), missing)


def fill(target: Any, source: Source, *, map_location: Any = None) -> tuple[Any, list[Any], int]:
    """Fill `target` from `source`.

    target        dicts are changed in place, tensors filled in place, lists replaced by new ones,
                  None becomes what is stored; tuples and everything else are as stored
    map_location  as torch.load's, for new tensors

    Returns the state (the same object if it is a dict), the paths that are in the target alone, and
    the bytes read. Raises RuntimeError, before anything is changed, where the two do not fit.
    """
    plan = _Plan(map_location)
    result = plan.value(target, source.root, None)
    _targets.write_to(into for _, into in plan.pairs)
    with torch.no_grad():
        count = source.read(plan.pairs)
    for container, key, value in plan.entries:
        container[key] = value
    _warn(plan.missing)
    return result, plan.missing, count
