# SPDX-License-Identifier: Apache-2.0
"""Staging: a copy of a state whose tensors lie in pool memory, made with one C call.

    walk the state, note its tensors -> one hearth_save_stage() -> walk again, put the copies in

dict, OrderedDict, list, tuple and atoms are rebuilt here; tensors, DTensors and the local shards of
ShardedTensors are copied by the library; what is none of these is pickled when it is saved, and
copied so (_copied.py). A staged tensor is valid until its save is committed.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor
from torch.distributed.tensor import DTensor

from .._ffi import DTYPES
from ..errors import HearthError
from ..job import Job, Piece, Pieces, Save, save_bytes
from . import _gpu
from ._again import ATOMS, DICTS, PLAIN, Differs, Layout, Taken
from ._copied import copy_of, has_memory
from ._copies import Copies, abort, copyable, on_gpus

_BYTES_PER_LEAF = 512  # room kept for each leaf that is no tensor
_SLACK = 64 << 10

Path = tuple[Any, ...]


class Source(NamedTuple):
    """A tensor to be copied, and how it is called."""

    path: Path
    tensor: torch.Tensor  # local, as copyable() gives it
    global_shape: tuple[int, ...] | None
    global_offset: tuple[int, ...] | None


def object_name(rank: int, index: int) -> str:
    """Of a rank's objects in a save, as DCP and ml-flashpoint name them."""
    return f"__{rank}__{index}_src{rank}.distcp"


class Place(NamedTuple):
    """Where the item of a staged tensor lies in the object, and what its header says of it."""

    offset: int
    length: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor at its address is this one, and no view of other kind or shape."""
        return (tensor.dtype == self.dtype and tensor.shape == self.shape
                and tensor.is_contiguous())


@dataclasses.dataclass
class StagedCopy:
    """A state's copy, and the save that its tensors lie in.

    build   makes the copied state
    base    address of the object's data
    places  by distance from there
    room    bytes left for what is added later
    copies  out of GPU memory, before whose wait() the tensors have no values
    """

    build: Callable[[], Any]
    save: Save
    base: int
    places: dict[int, Place]
    room: int
    copies: Copies | None = None

    @functools.cached_property
    def state(self) -> Any:
        """The copied state. Made when it is asked for first, which may be beside training."""
        return self.build()


def key_of(path: Path) -> bytes:
    """The name of a leaf, as DCP's planner makes it of the path; cut to what a key may be."""
    key = ".".join(map(str, path)).encode("utf-8", "surrogatepass")
    return key if 0 < len(key) <= 1024 else b"\0" + key[:500] + b"..." + key[-500:]


def keys_of(names: Iterable[str]) -> list[bytes]:
    """Of items at the top of a state, each another."""
    keys = [key_of((name,)) for name in names]
    if len(set(keys)) < len(keys):  # where they were cut
        keys = [b"\0%d " % number + key[:1000] for number, key in enumerate(keys)]
    return keys


def refuse(path: Path, tensor: torch.Tensor) -> None:
    """Raise for tensors that have no bytes of their own to keep."""
    what = None
    if tensor.device.type == "meta":
        what = "a meta tensor has no bytes"
    elif tensor.layout != torch.strided:
        what = f"{tensor.layout} is not kept, only strided tensors are"
    elif tensor.is_quantized:
        what = "a quantized tensor is not kept"
    elif tensor.is_nested:
        what = "a nested tensor is not kept"
    elif dtype_name(tensor.dtype) not in DTYPES:
        what = (f"dtype {tensor.dtype} is not among those that this version stores: save it as "
                "another, or its bytes as torch.uint8")
    elif not has_memory(tensor):
        what = (f"a {type(tensor).__module__}.{type(tensor).__qualname__} has no memory of its own "
                "to be kept: save the tensors that it is made of")
    if what:
        raise HearthError(f"{_named(path)}: {what}")


def _named(path: Path) -> str:
    return ".".join(map(str, path)) or "the state"


def dtype_name(dtype: torch.dtype) -> str:
    """"float32" of torch.float32."""
    return str(dtype)[6:]


class ShardOffsets:
    """Where a DTensor's local part lies in the whole, remembered by mesh and placements."""

    def __init__(self) -> None:
        self._known: dict[tuple, tuple] = {}

    def shape_and_offset(self, tensor: DTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        spec = tensor._spec
        key = (id(spec.mesh), spec.placements, tuple(spec.shape))
        if key not in self._known:
            from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

            _, offset = compute_local_shape_and_global_offset(
                spec.shape, spec.mesh, spec.placements)
            self._known[key] = (tuple(spec.shape), tuple(offset), spec.mesh)
        return self._known[key][:2]


class _Walk:
    """Both walks over a state: they meet the same leaves in the same order."""

    def __init__(self, shards: ShardOffsets) -> None:
        self.shards = shards
        self.sources: list[Source] = []
        self.leaves = 0
        self.size = 0  # of strings among the leaves
        self.index: dict[int, int] = {}  # id of a tensor -> its source
        self._tuples = 0  # around a value: DCP pickles a tuple, with the classes in it

    def note(self, value: Any, path: Path) -> None:
        kind = type(value)
        if kind in ATOMS:
            self.leaves += 1
            if kind is str or kind is bytes:
                self.size += 4 * len(value)
        elif kind in DICTS:
            for key, child in value.items():
                self.note(child, (*path, key))
        elif kind is list or kind is tuple:
            self._tuples += kind is tuple
            for i, child in enumerate(value):
                self.note(child, (*path, i))
            self._tuples -= kind is tuple
        elif self._is_tensor(value):
            self._note_tensor(value, path)
        elif kind is ShardedTensor:
            for shard in value.local_shards():
                self._note_shard(shard, tuple(value.size()), path)
        else:
            self.leaves += 8

    def _note_shard(self, shard: Shard, whole: tuple[int, ...], path: Path) -> None:
        """A part of a ShardedTensor, which may be one itself."""
        if type(shard.tensor) in PLAIN and self._is_tensor(shard.tensor):
            self._note_tensor(shard.tensor, path, whole, tuple(shard.metadata.shard_offsets))
        else:
            self.note(shard.tensor, path)

    def _note_tensor(self, value: torch.Tensor, path: Path, whole: tuple[int, ...] | None = None,
                     offset: tuple[int, ...] | None = None) -> None:
        if id(value) in self.index:
            return
        self.index[id(value)] = len(self.sources)
        local = value
        if isinstance(value, DTensor):
            local = value._local_tensor
            whole, offset = self.shards.shape_and_offset(value)
        refuse(path, local)
        self.sources.append(Source(path, copyable(local.detach()), whole, offset))

    def _is_tensor(self, value: Any) -> bool:
        """Tensors whose numbers are copied here: plain ones, Parameters and DTensors of them. Also
        others that have memory, unless class and attributes are pickled with them."""
        kind = type(value)
        if kind is DTensor:
            return type(value._local_tensor) in PLAIN
        if kind in PLAIN and not vars(value):
            return True
        return (isinstance(value, torch.Tensor) and not isinstance(value, (DTensor, ShardedTensor))
                and not self._tuples and has_memory(value)
                and not hasattr(value, "__create_write_items__"))

    def build(self, value: Any, copies: list[torch.Tensor]) -> Any:
        kind = type(value)
        if kind in ATOMS:
            return value
        if kind in DICTS:
            return self._build_dict(value, copies)
        if kind is list:
            return [self.build(child, copies) for child in value]
        if kind is tuple:
            self._tuples += 1
            children = tuple([self.build(child, copies) for child in value])
            self._tuples -= 1
            return children
        if self._is_tensor(value):
            staged = copies[self.index[id(value)]]
            if isinstance(value, DTensor):
                return DTensor(staged, value._spec, requires_grad=False)
            if self._tuples and kind is torch.nn.Parameter:
                return torch.nn.Parameter(staged, value.requires_grad)
            return staged
        if kind is ShardedTensor:
            return _sharded(value, [self.build(shard.tensor, copies)
                                    for shard in value.local_shards()])
        return copy_of(value)

    def _build_dict(self, value: dict, copies: list[torch.Tensor]) -> dict:
        pairs = {key: self.build(child, copies) for key, child in value.items()}
        if type(value) is dict:
            return pairs
        out = OrderedDict(pairs)
        out.__dict__.update(value.__dict__)  # the _metadata of a module's state_dict()
        return out


def _sharded(value: ShardedTensor, parts: list[torch.Tensor]) -> ShardedTensor:
    """The same with other local shards. What it knows of all ranks' is shared, not made again: its
    own constructor looks at every shard of every tensor."""
    shards = []
    for shard, part in zip(value.local_shards(), parts):
        metadata = shard.metadata
        if metadata.placement is not None and metadata.placement.device() != part.device:
            metadata = copy.deepcopy(metadata)
            metadata.placement._device = part.device
        shards.append(Shard(part, metadata))
    out = torch.Tensor._make_wrapper_subclass(
        ShardedTensor, value.size(), dtype=value.dtype, device=value.device)
    out.__dict__.update(value.__dict__, _local_shards=shards, _init_rrefs=False,
                        _sharded_tensor_id=None)
    return out


def lies_in(save: Save, tensors: Iterable[torch.Tensor]) -> bool:
    """Whether any of these has its memory in the object being written."""
    base, size = save.data()
    return any(base <= tensor.data_ptr() < base + size for tensor in tensors)


def piece_of(source: Source) -> Piece:
    """What the library is told of a tensor."""
    tensor = source.tensor
    shape = tuple(tensor.shape)
    return Piece(key_of(source.path), tensor.data_ptr(), dtype_name(tensor.dtype), shape,
                 None if tensor.is_contiguous() else tensor.stride(), source.global_shape,
                 source.global_offset, _gpu.is_gpu(tensor))


def pieces_of(sources: Iterable[Source], *, again: bool = False) -> list[Piece]:
    """The same of many, each box of a key once, as the library wants it: paths that read alike get
    a number. again: beside a copy that was staged under the same names."""
    known = set()
    pieces = []
    for source in sources:
        piece = piece_of(source)
        key, count = piece.key, 2 if again else 1
        while True:
            if count > 1:
                piece = piece._replace(key=b"\0%d " % count + key[:1000])
            shape = tuple(piece.shape)
            box = (piece.key, shape, tuple(piece.global_offset or (0,) * len(shape)))
            if box not in known:
                break
            count += 1
        known.add(box)
        pieces.append(piece)
    return pieces


def views(addresses: Iterable[int], kinds: Iterable[tuple[torch.dtype, tuple[int, ...]]]
          ) -> Iterator[torch.Tensor]:
    """The copies, of a dtype and shape each, as tensors over the library's memory, which they do
    not own."""
    rows = [(at, dtype, shape, math.prod(shape) * dtype.itemsize)
            for at, (dtype, shape) in zip(addresses, kinds)]
    first = min((at for at, _, _, size in rows if size), default=0)
    last = max((at + size for at, _, _, size in rows if size), default=1)
    memory = memoryview((ctypes.c_char * (last - first)).from_address(first)) if first else None
    for at, dtype, shape, size in rows:
        yield tensor_over(memory, at - first if size else None, dtype, shape)


def tensor_over(memory: memoryview | None, offset: int | None, dtype: torch.dtype,
                shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor whose bytes lie at `offset` of the memory; None: it has none."""
    if memory is None or offset is None:
        return torch.empty(shape, dtype=dtype, device="cpu")
    flat = torch.frombuffer(memory, dtype=dtype, count=math.prod(shape), offset=offset)
    return flat.view(shape)


class Layouts:
    """The layout of a writer's last copy."""

    def __init__(self) -> None:
        self.shards = ShardOffsets()
        self._last: Layout | None = None

    def taken(self, state: Any, path: Path) -> tuple[Layout, Taken] | None:
        """The last layout, where this state is as that has it."""
        layout = self._last
        if layout is not None and layout.path == path:
            try:
                return layout, layout.take(state)
            except Differs:
                self._last = None
        return None

    def keep(self, *args: Any) -> None:
        """A layout of these, if any is kept of such a state."""
        try:
            self._last = Layout(*args)
        except Differs:
            self._last = None


def _room(leaves: int, size: int) -> int:
    return leaves * _BYTES_PER_LEAF + size + _SLACK


Begin = Callable[[int, "list[torch.Tensor]"], Save]
Kinds = Iterable["tuple[torch.dtype, tuple[int, ...]]"]


def on_host(sources: Iterable[Source]) -> list[Source]:
    """For a job that is off: the library copies nothing of GPU memory then, and the state that is
    staged can be read all the same."""
    return [source._replace(tensor=_gpu.on_host(source.tensor)) if _gpu.is_gpu(source.tensor)
            else source for source in sources]


def copy_in(save: Save, pieces: Pieces, gpu: list[torch.Tensor],
            kinds: Kinds) -> tuple[list[int], Copies | None]:
    """Copy the pieces in; the addresses of the copies.

    gpu    the tensors among them in GPU memory, which are copied later
    kinds  (dtype, shape) of each piece
    """
    if not len(pieces):
        return [], None
    if not gpu:
        return save.stage(pieces), None
    before = len(save.places())
    save.add(pieces)
    copies = Copies(save, gpu)
    base, _ = save.data()
    return [base + offset + length - math.prod(shape) * dtype.itemsize
            for (offset, length), (dtype, shape) in zip(save.places()[before:], kinds)], copies


def stage(layouts: Layouts, state: Any, *, begin: Begin, path: Path = (),
          off: bool = False) -> StagedCopy:
    """Copy a state into a new object of a save. Tensors in GPU memory are copied beside training.

    begin  makes it, of that many bytes and for these tensors in GPU memory
    path   in front of the names of what is in it
    off    the job is: on_host()
    """
    again = None if off else layouts.taken(state, path)
    if again is not None:
        return _stage_again(*again, begin)
    walk = _Walk(layouts.shards)
    walk.note(state, path)
    if off:
        walk.sources = on_host(walk.sources)
    pieces = Pieces(pieces_of(walk.sources))
    room, nbytes = _room(walk.leaves, walk.size), save_bytes(pieces)
    gpu = on_gpus(source.tensor for source in walk.sources)
    save = begin(nbytes + room, gpu)
    copies: Copies | None = None
    try:
        kinds = [(source.tensor.dtype, source.tensor.shape) for source in walk.sources]
        addresses, copies = copy_in(save, pieces, gpu, kinds)
        base = save.data()[0]
        places = _places(save, base, addresses, kinds)
        copied = walk.build(state, list(views(addresses, kinds)))
        layouts.keep(state, path, walk.index, [source.tensor for source in walk.sources], pieces,
                     nbytes, [at - base for at in addresses], places)
        return StagedCopy(lambda: copied, save, base, places, room, copies)
    except BaseException:
        abort(save)
        raise


def _places(save: Save, base: int, addresses: list[int],
            kinds: Iterable[tuple[torch.dtype, tuple[int, ...]]]) -> dict[int, Place]:
    return {at - base: Place(offset, length, dtype, tuple(shape))
            for at, (offset, length), (dtype, shape) in zip(addresses, save.places(), kinds)
            if 0 not in shape}


def _stage_again(layout: Layout, taken: Taken, begin: Begin) -> StagedCopy:
    """A copy as the last one."""
    room = _room(taken.count, taken.size)
    save = begin(layout.nbytes + room, taken.gpu)
    copies: Copies | None = None
    try:
        with layout.lock:
            layout.pieces.point_to(taken.data)
            addresses, copies = copy_in(save, layout.pieces, taken.gpu, layout.kinds)
        base = save.data()[0]
        places = layout.places
        if [at - base for at in addresses] != layout.distances:
            places = _places(save, base, addresses, layout.kinds)
        taken.done()
        return StagedCopy(lambda: layout.build(taken, list(views(addresses, layout.kinds))),
                          save, base, places, room, copies)
    except BaseException:
        abort(save)
        raise
