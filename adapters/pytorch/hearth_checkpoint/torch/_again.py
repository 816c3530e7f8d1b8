# SPDX-License-Identifier: Apache-2.0
"""The copy of a state that is made as the last one was.

Most states have the layout of the state before, with other numbers. The layout of a copy is kept:
the description of each tensor for the library, and the place of each copy. The next state is
compared with it, leaf by leaf. If keys, kinds, dtypes, shapes, strides, devices, placements and the
sharing of tensors are the same, only the addresses are put in anew.

No layout is kept of a state with tensors in tuples, ShardedTensors, tensors of other classes or
with attributes, or with keys that are no names and numbers: it is walked each time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor

from ..job import Pieces
from ._copied import copy_of
from ._copies import copyable, on_gpus

ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.Size,
                   torch.device})
DICTS = frozenset({dict, OrderedDict})
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
# Of one of these types, keys that are equal read the same, and comparing them runs no other code.
KEYS = frozenset({str, int, bool, type(None)})
_FORMS = ATOMS | DICTS | {list, tuple}
_ATOM, _OBJECT = "atom", "object"


class Differs(Exception):
    """The state is not as the layout has it, or of a kind of which none is kept."""


def local_if_same(value: Any, want: Any) -> torch.Tensor:
    """What a tensor has here, if it is as `want` describes it. Raises Differs.

    want  kind, local, dtype, device, shape, stride, spec: as of a _Tensor
    """
    if type(value) is not want.kind:
        raise Differs
    local = value
    if want.spec is not None:
        spec, local = value._spec, value._local_tensor
        if spec is not want.spec and (
                spec.mesh is not want.spec.mesh or spec.placements != want.spec.placements
                or list(map(type, spec.placements)) != list(map(type, want.spec.placements))
                or spec.shape != want.spec.shape):
            raise Differs
    elif value.__dict__:
        raise Differs
    if (type(local) is not want.local or local.dtype is not want.dtype
            or local.layout is not torch.strided or local.is_nested
            or local.device != want.device or local.shape != want.shape
            or local.stride() != want.stride):
        raise Differs
    return local


class _Tensor(NamedTuple):
    number: int  # of the tensors in the order of their copies; the same tensor has one
    kind: type
    local: type  # of what it has here
    dtype: torch.dtype
    device: torch.device
    shape: torch.Size
    stride: tuple[int, ...]
    is_itself: bool  # the library reads it, and not a copy (copyable())
    copied: tuple[int, ...]  # the strides of what the library reads
    spec: Any  # of a DTensor


class _Dict(NamedTuple):
    kind: type
    keys: list[Any]
    types: list[type]  # of the keys: 1 and True are equal
    nodes: list[Any]


class _Row(NamedTuple):
    kind: type
    nodes: list[Any]


class _Object(NamedTuple):
    value: Any  # which is pickled when the whole state was found the same


class Taken:
    """What a copy needs of a state that is as its layout.

    data    addresses of the tensors
    leaves  values that are no tensors, copied, and attributes of OrderedDicts, in order
    specs   of DTensors, by number
    """

    def __init__(self) -> None:
        self.locals: list[torch.Tensor] = []
        self.data: list[int] = []
        self.leaves: list[Any] = []
        self.specs: dict[int, Any] = {}
        self.count = self.size = 0  # as _stage._Walk counts leaves
        self.index: dict[int, int] = {}  # id of a tensor -> its number
        self.sources: list[torch.Tensor] = []  # that the library reads, by number
        self.gpu: list[torch.Tensor] = []  # those of them in GPU memory

    def done(self) -> None:
        """The tensors are copied."""
        self.locals, self.data, self.index, self.sources, self.gpu = [], [], {}, [], []


class Layout:
    """Of a copy that was made.

    pieces     of its tensors
    nbytes     that they take in an object
    distances  of the copies from the object's data; places: _stage.Place by distance
    kinds      (dtype, shape) of each copy
    """

    def __init__(self, state: Any, path: tuple[Any, ...], numbers: dict[int, int],
                 sources: Sequence[torch.Tensor], pieces: Pieces, nbytes: int,
                 distances: list[int], places: dict[int, Any]) -> None:
        """Raises Differs for a state of which none is kept.

        numbers, sources  what the walk has made of it: each tensor's number by id, and what the
                          library reads
        """
        self.path, self.pieces, self.nbytes = path, pieces, nbytes
        self.distances, self.places = distances, places
        self.kinds = [(source.dtype, source.shape) for source in sources]
        self._has_gpu = bool(on_gpus(sources))
        self.lock = threading.Lock()  # of the pieces, which two threads must not point elsewhere
        self._top = self._node(state, numbers, sources, False)

    # ---- made ----------------------------------------------------------------------------------

    def _node(self, value: Any, numbers: dict[int, int], sources: Sequence[torch.Tensor],
              in_tuple: bool) -> Any:
        kind = type(value)
        if kind in ATOMS:
            return _ATOM
        if kind in DICTS:
            if not KEYS.issuperset(map(type, value)):
                raise Differs
            return _Dict(kind, list(value), list(map(type, value)),
                         [self._node(child, numbers, sources, in_tuple)
                          for child in value.values()])
        if kind is list or kind is tuple:
            return _Row(kind, [self._node(child, numbers, sources, in_tuple or kind is tuple)
                               for child in value])
        if not isinstance(value, torch.Tensor):
            return _OBJECT
        local = value._local_tensor if kind is DTensor else value
        if in_tuple or type(local) not in PLAIN or (kind is not DTensor and vars(value)):
            raise Differs
        number = numbers[id(value)]
        source = sources[number]
        return _Tensor(number, kind, type(local), local.dtype, local.device, local.shape,
                       local.stride(), source.data_ptr() == local.data_ptr()
                       and source.stride() == local.stride(), source.stride(),
                       value._spec if kind is DTensor else None)

    # ---- compared ------------------------------------------------------------------------------

    def take(self, state: Any) -> Taken:
        """What a copy of this state needs. Raises Differs, before anything is copied."""
        taken = Taken()
        tensors: list[_Tensor] = []
        self._take(state, self._top, taken, tensors)
        for local, want in zip(taken.locals, tensors):
            source = local if want.is_itself else copyable(local.detach())
            if source.stride() != want.copied:
                raise Differs
            taken.sources.append(source)
            taken.data.append(source.data_ptr())
        if self._has_gpu:
            taken.gpu = on_gpus(taken.sources)
        taken.leaves = [copy_of(leaf.value) if type(leaf) is _Object else leaf
                        for leaf in taken.leaves]
        return taken

    def _take(self, value: Any, node: Any, taken: Taken, tensors: list[_Tensor]) -> None:
        form = type(node)
        if form is _Tensor:
            self._take_tensor(value, node, taken, tensors)
        elif form is _Dict:
            if (type(value) is not node.kind or list(map(type, value)) != node.types
                    or list(value) != node.keys):
                raise Differs
            if node.kind is not dict:
                taken.leaves.append(dict(vars(value)))
            for child, want in zip(value.values(), node.nodes):
                if type(want) is _Tensor:
                    self._take_tensor(child, want, taken, tensors)
                else:
                    self._take(child, want, taken, tensors)
        elif form is _Row:
            if type(value) is not node.kind or len(value) != len(node.nodes):
                raise Differs
            for child, want in zip(value, node.nodes):
                self._take(child, want, taken, tensors)
        else:
            self._take_leaf(value, node, taken)

    def _take_leaf(self, value: Any, node: Any, taken: Taken) -> None:
        kind = type(value)
        if node is _ATOM:
            if kind not in ATOMS:
                raise Differs
            taken.count += 1
            if kind is str or kind is bytes:
                taken.size += 4 * len(value)
        else:
            if kind in _FORMS or isinstance(value, torch.Tensor):
                raise Differs
            taken.count += 8
            value = _Object(value)
        taken.leaves.append(value)

    @staticmethod
    def _take_tensor(value: Any, want: _Tensor, taken: Taken, tensors: list[_Tensor]) -> None:
        number = taken.index.get(id(value))
        if number is not None:
            if number != want.number:
                raise Differs
            return
        if want.number != len(tensors):
            raise Differs
        local = local_if_same(value, want)
        if local.is_conj() or local.is_neg() or (not local.data_ptr() and 0 not in want.shape):
            raise Differs
        if want.spec is not None:
            taken.specs[want.number] = value._spec
        taken.index[id(value)] = want.number
        taken.locals.append(local)
        tensors.append(want)

    # ---- put together --------------------------------------------------------------------------

    def build(self, taken: Taken, copies: Sequence[torch.Tensor]) -> Any:
        """The state, of these copies of its tensors."""
        return self._build(self._top, iter(taken.leaves), taken.specs, copies)

    def _build(self, node: Any, leaves: Iterator[Any], specs: dict[int, Any],
               copies: Sequence[torch.Tensor]) -> Any:
        form = type(node)
        if form is _Tensor:
            copy = copies[node.number]
            return copy if node.spec is None else DTensor(
                copy, specs[node.number], requires_grad=False)
        if form is _Dict:
            more = None if node.kind is dict else next(leaves)
            out = node.kind(zip(node.keys, [self._build(child, leaves, specs, copies)
                                            for child in node.nodes]))
            if more:
                out.__dict__.update(more)
            return out
        if form is _Row:
            return node.kind([self._build(child, leaves, specs, copies) for child in node.nodes])
        return next(leaves)
