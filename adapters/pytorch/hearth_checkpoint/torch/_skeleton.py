# SPDX-License-Identifier: Apache-2.0
"""A nested state in one object: its tensors as pieces, the rest as an item, the skeleton.

    {"version": 1, "kinds": [(dtype, shape, location, whole)...], "tensors": [kind...],
     "objects": [...], "tree": ...}

A node of the tree is an atom, a list of nodes, or a tuple: ("t", n) a tensor, ("o", n) an object
that encode_item() made bytes of, ("u", [...]) a tuple, ("d", {...}) a dict, ("D", {...}) an
OrderedDict, ("A", [{...}, {...}]) one that has attributes, as a module's state_dict(). So the item
is made of plain containers alone, and a reader needs nothing but decode_item(). A second item says
where the tensors lie: u64 each, little-endian, bytes from 4096.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from ..errors import HearthCorrupt, HearthError, HearthRefused
from ..job import Box, Checkpoint
from . import _gpu, _stage, _targets
from ._copies import copyable, in_order
from ._partial import Pairs, TensorRef
from ._pickles import PickleRefused, decode_item, dtypes, encode_item
from ._proof import Blob, short

# No tensors' keys: those that begin with a NUL go on with a digit, or are long.
_SKELETON, _PLACES = b"\0skeleton", b"\0places"
_VERSION = 1
_ATOMS = frozenset({int, float, bool, str, bytes, type(None)})


def _keys(part: str | None) -> tuple[bytes, bytes]:
    """Of the skeleton and the places: of a part its own, since a rank's keys differ."""
    more = b"" if part is None else b" " + part.encode()
    return _SKELETON + more, _PLACES + more


Kind = tuple[str, tuple[int, ...], str, "tuple[int, ...] | None"]


class Skeleton:
    """A state taken apart. sources: its tensors, in order, for the library."""

    def __init__(self, state: Any, shards: _stage.ShardOffsets, part: str | None = None) -> None:
        self._keys = _keys(part)
        self.sources: list[_stage.Source] = []
        self._shards = shards
        self._kinds: dict[Kind, int] = {}
        self._tensors: list[int] = []
        self._objects: list[Blob] = []
        self._index: dict[Any, int] = {}
        self._open: set[int] = set()
        self.tree = self._node(state, ())

    def _node(self, value: Any, path: _stage.Path) -> Any:
        kind = type(value)
        if kind in _ATOMS:
            return value
        if kind is dict or kind is OrderedDict or kind is list or kind is tuple:
            return self._container(kind, value, path)
        if isinstance(value, DTensor) or kind is torch.Tensor or kind is torch.nn.Parameter:
            return "t", self._tensor(value, path)
        self._objects.append(Blob(_where(path), encode_item(value), kind))
        return "o", len(self._objects) - 1

    def _container(self, kind: type, value: Any, path: _stage.Path) -> Any:
        if id(value) in self._open:
            raise HearthError(f"{'.'.join(map(str, path))}: a container that holds itself")
        self._open.add(id(value))
        try:
            if kind is dict or kind is OrderedDict:
                return self._dict(kind, value, path)
            nodes = [self._node(child, (*path, i)) for i, child in enumerate(value)]
            return nodes if kind is list else ("u", nodes)
        finally:
            self._open.discard(id(value))

    def _dict(self, kind: type, value: dict, path: _stage.Path) -> Any:
        if not _ATOMS.issuperset(map(type, value)):
            raise HearthError(f"{'.'.join(map(str, path)) or 'the state'}: keys must be text, "
                              "numbers, bytes, booleans or None")
        nodes = {key: self._node(child, (*path, key)) for key, child in value.items()}
        if kind is dict:
            return "d", nodes
        own = {key: self._node(child, (*path, key)) for key, child in vars(value).items()}
        return ("A", [nodes, own]) if own else ("D", nodes)

    def _tensor(self, value: torch.Tensor, path: _stage.Path) -> int:
        """Its number. What is one tensor in memory is stored once; a DTensor and its own local part
        are two."""
        local = value._local_tensor if isinstance(value, DTensor) else value
        _stage.refuse(path, local)
        whole, offset = (self._shards.shape_and_offset(value) if isinstance(value, DTensor)
                         else (None, None))
        same = (local.data_ptr() or id(local), local.dtype, local.shape, local.stride(),
                local.device, local.is_conj(), local.is_neg(), whole)
        known = self._index.get(same)
        if known is not None:
            return known
        self._index[same] = len(self.sources)
        kind = (_stage.dtype_name(local.dtype), tuple(local.shape), _location(local), whole)
        self._tensors.append(self._kinds.setdefault(kind, len(self._kinds)))
        self.sources.append(
            _stage.Source(path, copyable(local.detach()), whole, offset))
        return len(self.sources) - 1

    def items(self) -> list[tuple[bytes, bytes]]:
        """What to add to the object behind the tensors; the places are not known yet."""
        skeleton = {"version": _VERSION, "kinds": list(self._kinds), "tensors": self._tensors,
                    "objects": [data for _, data, _ in self._objects], "tree": self.tree}
        keys = self._keys
        return [(keys[0], encode_item(skeleton)), (keys[1], bytes(8 * len(self._tensors)))]

    def rebuild(self, tensors: Sequence[Any]) -> Any:
        """The state with these in place of its tensors."""
        return rebuild(self.tree, tensors, [data for _, data, _ in self._objects], trust=True)

    def blobs(self, items: Sequence[tuple[bytes, bytes]]) -> list[Blob]:
        """What a reader has to decode, for the proof: the objects, and of items() the skeleton."""
        return [*self._objects, Blob("its skeleton", items[0][1], dict)]


def _where(path: _stage.Path) -> str:
    """As join() has it: "a.b[2].c"."""
    return "".join(f"[{step}]" if type(step) is int else f".{step}" for step in path).lstrip(".")


def with_places(items: list[tuple[bytes, bytes]],
                places: Sequence[tuple[int, int]]) -> list[tuple[bytes, bytes]]:
    """items() with the places, (offset, length) of each tensor in the object."""
    offsets = [offset for offset, _ in places]
    return [items[0], (items[1][0], struct.pack(f"<{len(offsets)}Q", *offsets))]


def _location(tensor: torch.Tensor) -> str:
    """As torch.save writes it: "cpu", "cuda:0"."""
    device = tensor.device
    return device.type if device.index is None else f"{device.type}:{device.index}"


def rebuild(tree: Any, tensors: Sequence[Any], objects: Sequence[bytes], *, trust: bool,
            map_location: Any = None) -> Any:
    """A tree of nodes as the containers that it was made of.

    map_location  for tensors in objects
    """

    def object_(n: Any, path: _stage.Path) -> Any:
        try:
            return decode_item(objects[n], trust=trust, map_location=map_location)
        except PickleRefused as error:
            how = "" if trust else " safely; trust=True unpickles it, whatever it does"
            raise HearthRefused(
                f"{_where(path)}: this object cannot be decoded{how}: {short(error)}") from error

    def list_(nodes: Any, path: _stage.Path) -> list:
        return [build(node, (*path, i)) for i, node in enumerate(nodes)]

    def dict_(nodes: Any, path: _stage.Path) -> dict:
        return {key: build(node, (*path, key)) for key, node in nodes.items()}

    def with_attributes(both: Any, path: _stage.Path) -> OrderedDict:
        nodes, own = both
        out = OrderedDict(dict_(nodes, path))
        out.__dict__.update(dict_(own, path))
        return out

    kinds: dict[str, Callable[[Any, _stage.Path], Any]] = {
        "t": lambda n, _: tensors[n],
        "o": object_,
        "u": lambda nodes, path: tuple(list_(nodes, path)),
        "d": dict_,
        "D": lambda nodes, path: OrderedDict(dict_(nodes, path)),
        "A": with_attributes,
    }

    def build(node: Any, path: _stage.Path) -> Any:
        if type(node) is tuple:
            kind, value = node
            return kinds[kind](value, path)
        if type(node) is list:
            return list_(node, path)
        return node

    return build(tree, ())


class StoredState:
    """A state in an object of a checkpoint, as fill()'s source. part: that it is. map_location: for
    tensors in objects, which are made here; fill() makes the others."""

    def __init__(self, checkpoint: Checkpoint, name: str, *, part: str | None = None,
                 trust: bool = False, map_location: Any = None) -> None:
        self._checkpoint, self._name, self._trust = checkpoint, name, trust
        self._map_location = map_location
        self._keys = _keys(part)
        self.root = self._decode(*self._items())

    def _items(self) -> list[bytes]:
        """Skeleton and places."""
        for everywhere in (False, True):
            found = {item.key: item for item in self._checkpoint.items(everywhere)
                     if item.object == self._name and item.key in self._keys}
            if len(found) == 2:
                return self._checkpoint.read_ranges([
                    (item.object, item.offset, item.nbytes)
                    for item in map(found.__getitem__, self._keys)])
        raise HearthCorrupt(f"{self._checkpoint.path}/{self._name} has no skeleton: it was not "
                            "written by hearth_checkpoint.torch.experimental")

    def _decode(self, data: bytes, places: bytes) -> Any:
        try:
            skeleton = decode_item(data)
            if skeleton["version"] != _VERSION:
                raise HearthError(f"{self._checkpoint.path}/{self._name}: version "
                                  f"{skeleton['version']} is not known here")
            kinds = [(dtypes()[dtype], torch.Size(shape), location,
                      None if whole is None else torch.Size(whole))
                     for dtype, shape, location, whole in skeleton["kinds"]]
            offsets = struct.unpack(f"<{len(skeleton['tensors'])}Q", places)
            refs = [TensorRef(*kinds[kind][:3], (self._name, offset), kinds[kind][3])
                    for kind, offset in zip(skeleton["tensors"], offsets)]
            return rebuild(skeleton["tree"], refs, skeleton["objects"], trust=self._trust,
                           map_location=self._map_location)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError,
                struct.error) as error:
            raise PickleRefused(f"{self._checkpoint.path}/{self._name}: the skeleton is damaged: "
                                f"{type(error).__name__}: {error}") from None

    def read(self, pairs: Pairs) -> int:
        """Fill each tensor, on the host and on GPUs directly; the bytes read."""
        boxes, copies = [], []
        for ref, into in pairs:
            if not ref.nbytes:
                continue
            host = into
            is_near = into.device.type == "cpu" or _gpu.is_gpu(into)
            if not is_near or into.is_conj() or into.is_neg():
                host = _targets.on_host(ref.shape, ref.dtype)
                copies.append((into, host))
            boxes.append(Box(
                *ref.place, _stage.dtype_name(ref.dtype), (0,) * len(ref.shape),
                tuple(ref.shape), host.data_ptr(),
                None if host.is_contiguous() else host.stride(), _gpu.is_gpu(host)))
        if boxes:
            in_order(into for _, into in pairs)
            self._checkpoint.read_boxes(boxes)
        for into, host in copies:
            into.copy_(host)
        return sum(ref.nbytes for ref, _ in pairs)


class StoredParts(StoredState):
    """The same of a state that was written in parts, each behind its name.

    names  of the parts' objects
    """

    def __init__(self, checkpoint: Checkpoint, names: Mapping[str, str], **how: Any) -> None:
        self._checkpoint = checkpoint
        self.root = {part: StoredState(checkpoint, name, part=part, **how).root
                     for part, name in names.items()}
