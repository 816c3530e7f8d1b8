# SPDX-License-Identifier: Apache-2.0
"""Tensors as a pickle spells them: calls of torch's functions, with storages that lie beside it.

Before torch is called, the arguments of a call are checked against the bytes that are there. So no
tensor reaches out of its storage, and no tensor is larger than its stored bytes.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import FunctionType
from typing import Any

import torch
from torch.storage import TypedStorage

from ._harmless import exact, harmless
from ._unpickle import GlobalRefused, PickleRefused, Strict, Table, attributes

_BITS = frozenset({"conj", "neg"})
_MOST = 1 << 62
_INT = frozenset({int})


@lru_cache(None)
def dtypes() -> dict[str, torch.dtype]:
    """Every dtype of torch by its name, "float32"."""
    return {str(v)[6:]: v for v in vars(torch).values() if isinstance(v, torch.dtype)}


@lru_cache(None)
def layouts() -> dict[str, torch.layout]:
    """Every layout by its name, "torch.strided"."""
    return {str(v): v for v in vars(torch).values() if isinstance(v, torch.layout)}


def layout(name: Any) -> torch.layout:
    """torch.serialization._get_layout()"""
    return layouts()[name]


def size(dims: Any) -> torch.Size:
    """torch.Size()"""
    if type(dims) is not tuple or not _INT.issuperset(map(type, dims)):
        raise TypeError(f"a size is made of a {type(dims).__name__}")
    return torch.Size(dims)


def _device(*args: Any) -> torch.device:
    exact(args[0], str, "a device")
    return torch.device(*[exact(arg, int, "a device's number") if i else arg
                          for i, arg in enumerate(args[:2])])


# ---- arguments --------------------------------------------------------------------------------


def numbers(values: Any) -> tuple[int, ...]:
    """Sizes or strides."""
    if type(values) not in (tuple, torch.Size) or not all(
            type(v) is int and 0 <= v < _MOST for v in values):
        raise ValueError("sizes and strides are numbers from 0 on")
    return tuple(values)


def check_extent(offset: Any, shape: Any, stride: Any, width: int, held: int) -> None:
    """A tensor of elements of `width` bytes stays within `held` bytes."""
    shape, stride = numbers(shape), numbers(stride)
    (offset,) = numbers((offset,))
    if len(shape) != len(stride) or len(shape) > 64:
        raise ValueError("a tensor with too few strides")
    last = offset + sum((n - 1) * step for n, step in zip(shape, stride))
    if 0 not in shape and (last + 1) * width > held:
        raise ValueError(f"a tensor reaches out of its storage of {held} bytes")
    if 0 in shape and offset * width > held:
        raise ValueError(f"an empty tensor lies behind its storage of {held} bytes")


def check_bits(flags: Any) -> None:
    """What a tensor of the host can have set beside its numbers."""
    if flags is None:
        return
    if type(flags) is not dict or not set(flags) <= _BITS or not all(
            type(bit) is bool for bit in flags.values()):
        raise GlobalRefused("a tensor with more than conj and neg bits; trust=True unpickles it")


def check_storage(name: Any) -> tuple[torch.dtype, str, str, int]:
    """What a persistent id says: dtype, key, location, elements."""
    if type(name) is not tuple or len(name) not in (5, 6) or name[0] != "storage":
        raise ValueError("this names no storage")
    _, dtype, key, location, elements = name[:5]
    if len(name) == 6 and name[5] is not None:
        raise ValueError("a view of a storage")
    numbers((elements,))
    if type(dtype) is not torch.dtype or type(key) is not str or type(location) is not str:
        raise ValueError("a storage without dtype, name or location")
    return dtype, key, location, elements


# ---- calls ------------------------------------------------------------------------------------


def _view(storage: Any, offset: Any, shape: Any, stride: Any, dtype: Any, grad: Any,
          flags: Any) -> torch.Tensor:
    if type(storage) is not TypedStorage or type(dtype) is not torch.dtype:
        raise ValueError("a tensor without storage or dtype")
    check_bits(flags)
    held = storage._untyped_storage.nbytes()
    check_extent(offset, shape, stride, dtype.itemsize, held)
    return torch._utils._rebuild_tensor_v3(
        storage, offset, tuple(shape), tuple(stride), exact(grad, bool, "requires_grad"),
        OrderedDict(), dtype, flags)


def _tensor_v2(storage: Any, offset: Any, shape: Any, stride: Any, grad: Any = False,
               _hooks: Any = None, flags: Any = None) -> torch.Tensor:
    dtype = storage.dtype if type(storage) is TypedStorage else None
    return _view(storage, offset, shape, stride, dtype, grad, flags)


def _tensor_v3(storage: Any, offset: Any, shape: Any, stride: Any, grad: Any, _hooks: Any,
               dtype: Any, flags: Any = None) -> torch.Tensor:
    return _view(storage, offset, shape, stride, dtype, grad, flags)


def _parameter(data: Any, grad: Any = True, _hooks: Any = None, state: Any = None) -> torch.Tensor:
    if not isinstance(data, torch.Tensor):
        raise ValueError("a parameter without tensor")
    made = torch.nn.Parameter(data, exact(grad, bool, "requires_grad"))
    attributes(made, state)
    return made


def _quantized(storage: Any, offset: Any, shape: Any, stride: Any, how: Any, grad: Any,
               _hooks: Any = None) -> torch.Tensor:
    if type(storage) is not TypedStorage or type(how) is not tuple:
        raise ValueError("a quantized tensor without storage")
    width, held = storage.dtype.itemsize, storage._untyped_storage.nbytes()
    check_extent(offset, shape, stride, width, held)
    if torch.Size(shape).numel() * width > held:
        raise ValueError(f"a quantized tensor of more than its {held} bytes")
    for part in how:
        if not isinstance(part, (torch.qscheme, torch.Tensor, int, float)):
            raise ValueError("a quantized tensor of unknown parameters")
    return torch._utils._rebuild_qtensor(
        storage, offset, tuple(shape), tuple(stride), how, exact(grad, bool, "requires_grad"),
        OrderedDict())


def _sparse(kind: Any, data: Any) -> torch.Tensor:
    exact(data, tuple, "a sparse tensor")
    if kind == torch.sparse_coo:
        indices, values, shape, *coalesced = data
        numbers(shape)
        return torch.sparse_coo_tensor(indices, values, shape, dtype=values.dtype,
                                       device=values.device, check_invariants=True,
                                       is_coalesced=coalesced[0] if coalesced else None)
    if kind not in layouts().values() or kind == torch.strided:
        raise ValueError("a sparse tensor of no such layout")
    at, plain, values, shape = data
    numbers(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.sparse_compressed_tensor(at, plain, values, shape, dtype=values.dtype,
                                              device=values.device, layout=kind,
                                              check_invariants=True)


def _meta(dtype: Any, shape: Any, stride: Any, grad: Any) -> torch.Tensor:
    return torch.empty_strided(
        numbers(shape), numbers(stride), dtype=exact(dtype, torch.dtype, "a tensor"),
        device="meta", requires_grad=exact(grad, bool, "requires_grad"))


def _moved(data: Any, dtype: Any, device: Any, grad: Any) -> torch.Tensor:
    if not isinstance(data, torch.Tensor) or data.dtype != dtype:
        raise ValueError("a tensor that changes its dtype on the way")
    return torch._utils._rebuild_device_tensor_from_cpu_tensor(
        data, dtype, exact(device, str, "a device"), exact(grad, bool, "requires_grad"))


def _wrapper(kind: Any, *args: Any) -> torch.Tensor:
    """Of a subclass that holds tensors, like DTensor."""
    if kind not in _allowed():
        raise GlobalRefused("a subclass of Tensor; trust=True unpickles it")
    return torch._utils._rebuild_wrapper_subclass(kind, *args)


def _typed(make: Any, kind: Any, args: Any, state: Any) -> Any:
    """A tensor with attributes, or of a class that the user allowed."""
    if make not in _MAKERS or type(args) is not tuple:
        raise ValueError("a tensor made by what makes no tensor")
    made = make(*args)
    if kind is _parameter:
        made = made if isinstance(made, torch.nn.Parameter) else _parameter(made)
    elif kind in _allowed() and isinstance(kind, type):
        made = made if type(made) is kind else made.as_subclass(kind)
        if kind.__setstate__ is not torch.Tensor.__setstate__:  # type: ignore[attr-defined]
            made.__setstate__(state)
            return made
    elif kind is not _tensor_class:
        raise GlobalRefused("a subclass of Tensor; trust=True unpickles it")
    attributes(made, state[0] if type(state) is tuple and state[1:] in ((), (None,), ({},))
               else state)
    return made


def _tensor_class(*_args: Any) -> Any:
    raise PickleRefused("torch.Tensor is not called")


_MAKERS = frozenset({_tensor_v2, _tensor_v3, _parameter, _wrapper, _quantized, _sparse})


# ---- the tables -------------------------------------------------------------------------------


def _allowed() -> frozenset:
    """What the user gave to torch.serialization.add_safe_globals()."""
    return frozenset(value[0] if isinstance(value, tuple) else value
                     for value in torch.serialization.get_safe_globals())


def _allowed_names() -> dict[tuple[str, str], Any]:
    names = {}
    for value in torch.serialization.get_safe_globals():
        if isinstance(value, tuple):
            module, _, name = value[1].rpartition(".")
            names[module, name] = value[0]
        else:
            names[value.__module__, value.__qualname__] = value
    return names


def storage_names() -> Iterable[tuple[str, torch.dtype]]:
    """Classes of storages, and the dtypes of their elements."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, kind in list(vars(torch).items()):
            if name.endswith("Storage") and isinstance(getattr(kind, "dtype", None), torch.dtype):
                yield name, kind.dtype
    yield "UntypedStorage", torch.uint8


@lru_cache(None)
def _plain_names() -> dict[tuple[str, str], Any]:
    """Values, storages, tensors that are nothing but a part of one, and what makes them."""
    names: dict[tuple[str, str], Any] = {
        ("torch", "Size"): size, ("torch", "device"): _device,
        ("torch.serialization", "_get_layout"): layout,
        ("torch._utils", "_rebuild_tensor"): _tensor_v2,
        ("torch._utils", "_rebuild_tensor_v2"): _tensor_v2,
        ("torch._utils", "_rebuild_tensor_v3"): _tensor_v3,
        ("torch._utils", "_rebuild_parameter"): _parameter,
        ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
        ("torch._tensor", "_rebuild_from_type_v2"): _typed,
        ("torch", "Tensor"): _tensor_class, ("torch.nn.parameter", "Parameter"): _parameter,
        ("torch.storage", "UntypedStorage"): torch.uint8}
    names.update({("torch", name): dtype for name, dtype in dtypes().items()})
    names.update({("torch", name): value for name, value in vars(torch).items()
                  if isinstance(value, torch.qscheme)})
    names.update({("torch", name): dtype for name, dtype in storage_names()})
    return {**harmless().names, **names}


@lru_cache(None)
def _names() -> dict[tuple[str, str], Any]:
    return {**_plain_names(),
            ("torch._utils", "_rebuild_qtensor"): _quantized,
            ("torch._utils", "_rebuild_sparse_tensor"): _sparse,
            ("torch._utils", "_rebuild_meta_tensor_no_storage"): _meta,
            ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): _moved,
            ("torch._utils", "_rebuild_wrapper_subclass"): _wrapper}


TORCH_KEYS = frozenset({torch.dtype, torch.device, torch.layout})


@lru_cache(None)
def plain_table() -> Table:
    """What is made of the pickle alone, whatever bytes lie in the storages beside it."""
    own = harmless()
    return Table(_plain_names(), own.new, own.states, own.keys | TORCH_KEYS, hashing=own.hashing)


def item_table() -> Table:
    """What an item may be made of, its tensors included."""
    return _item_table(tuple(torch.serialization.get_safe_globals()))


@lru_cache(4)
def _item_table(_allowed_now: tuple) -> Table:
    own = harmless()
    allowed = _allowed_names()
    names = {**allowed, **_names()} if allowed else _names()
    classes = frozenset(value for value in allowed.values() if type(value) is not FunctionType)
    return Table(names, own.new, own.states, own.keys | TORCH_KEYS | classes, classes, own.hashing)


class Values(Strict):
    """The pickle of an item. storage(key): its bytes, which may be written to."""

    def __init__(self, file: Any, table: Table, storage: Callable[[str], Any],
                 restore: Callable[[Any, str], Any] | None = None) -> None:
        super().__init__(file, table)
        self._storage, self._restore = storage, restore
        self._made: dict[str, tuple[TypedStorage, tuple]] = {}

    def persistent_load(self, name: Any) -> TypedStorage:
        """A storage of as many elements as it says and has."""
        dtype, key, location, elements = said = check_storage(name)
        if key in self._made:
            made, before = self._made[key]
            if said != before:
                raise ValueError(f"storage {key[:50]!r} is used for two different storages")
            return made
        data = self._storage(key)
        if len(data) != elements * dtype.itemsize:
            raise ValueError(f"storage {key[:50]!r} of {elements} elements has {len(data)} bytes")
        whole = (torch.frombuffer(data, dtype=torch.uint8) if len(data)
                 else torch.empty(0, dtype=torch.uint8, device="cpu"))
        untyped = whole.untyped_storage()
        if self._restore is not None:
            untyped = self._restore(untyped, location)
        self._made[key] = TypedStorage(
            wrap_storage=untyped, dtype=dtype, _internal=True), said
        return self._made[key][0]
