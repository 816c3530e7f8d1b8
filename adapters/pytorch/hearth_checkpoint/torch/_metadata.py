# SPDX-License-Identifier: Apache-2.0
"""Of a `.metadata`, what is not known here, and what a planner has put beside its fields.

The library's reader has proved the bytes before (_pickles.load_metadata): types, dimensions, names
of files. A class or dtype that it does not know spoils its own entry and nothing else.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from pathlib import PurePath
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo

from ..errors import HearthError

_MAX = 2**63 - 1
_LEAVES = frozenset({str, int, float, bool, bytes, bytearray, set, frozenset, type(None),
                     torch.Size, torch.dtype, torch.layout})
_RECORDS = frozenset({
    dcp.TensorStorageMetadata, dcp.ChunkStorageMetadata, dcp.BytesStorageMetadata,
    dcp.TensorProperties, dcp.MetadataIndex, dcp.StorageMeta, _StorageInfo,
    dcp._MEM_FORMAT_ENCODING})


# ---- what is not known here -------------------------------------------------------------------


class _Kind(type):
    what = "something"

    def __repr__(cls) -> str:
        return cls.what


class Unknown(metaclass=_Kind):
    """Stands for an object of a class that is not known here: takes what it is given, and drops
    it."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Unknown:
        return object.__new__(cls)

    def __setstate__(self, _state: Any) -> None:
        pass

    def __setitem__(self, _key: Any, _value: Any) -> None:
        pass

    append = extend = add = update = __setstate__


def stand_in(what: str) -> type[Unknown]:
    """The class Unknown, for one of this name."""
    return _Kind("Unknown", (Unknown,), {"what": what[:200]})


def is_stand_in(kind: Any) -> bool:
    """It is a class that stand_in() made."""
    return type(kind) is _Kind


def _what(value: Any) -> str | None:
    """The name of the class, if the value or one that it is made of stands for an unknown one."""
    for part in value if type(value) in (list, tuple) else (value,):
        if type(part) is _Kind:
            return part.what
        if isinstance(part, Unknown):
            return type(part).what
    return None


class Spoiled(metaclass=_Kind):
    """The entry of a tensor or byte item that is described by what is not known here. Whoever asks
    for what it holds gets an error that names both."""

    error = ""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise HearthError(self.error)


def _spoiled(name: str, what: str) -> Spoiled:
    """Its class says what, too: DCP names it where it is not what it expects."""
    return _Kind("Spoiled", (Spoiled,), {
        "what": f"{what}, which is not known here",
        "error": f"{name!r} cannot be loaded: its .metadata describes it by {what}, which is not "
                 "known here; load it with the torch that saved it"})()


_FIELDS = ("dtype", "layout", "requires_grad", "memory_format", "pin_memory")


def set_properties(owner: dcp.TensorProperties, state: Any) -> None:
    """TensorProperties from the state of any torch: the first five, those that this torch knows
    beyond them, and no others."""
    if type(state) is not tuple or len(state) < len(_FIELDS):
        raise TypeError("the state of TensorProperties is no tuple of five or more")
    try:
        known = len(state) == len(_FIELDS) and _known_values(state, tuple(map(type, state)))
    except TypeError:  # a part of it has no hash
        known = False
    vars(owner).update(known or _values(state))


def _values(state: tuple[Any, ...]) -> dict[str, Any]:
    """The attributes of TensorProperties that has this state."""
    known = state[:max(len(_FIELDS), len(dataclasses.fields(dcp.TensorProperties)))]
    if any(map(_what, known[:len(_FIELDS)])):
        return dict(zip(_FIELDS, known))
    later = [part if _is_strides(part) else None for part in known[len(_FIELDS):]]
    made = dcp.TensorProperties()
    made.__setstate__((*known[:len(_FIELDS)], *later))
    return vars(made)


@lru_cache(128)
def _known_values(state: tuple[Any, ...], _types: tuple[type, ...]) -> dict[str, Any]:
    """_values(): thousands of tensors have the same few states. 1 and True are equal, and so the
    types count as well."""
    return _values(state)


def _is_strides(value: Any) -> bool:
    return type(value) is tuple and all(type(n) is int and 0 <= n <= _MAX for n in value)


def _of_tensor(entry: Any) -> str | None:
    """What is not known of an entry."""
    if type(entry) is not dcp.TensorStorageMetadata:
        return _what(entry)
    parts = _parts(entry, ("size", "properties", "chunks"))
    if type(parts[1]) is dcp.TensorProperties:
        parts += _parts(parts[1], _FIELDS)
    for chunk in parts[2] if type(parts[2]) in (list, tuple) else ():
        if type(chunk) is dcp.ChunkStorageMetadata:
            parts += _parts(chunk, ("offsets", "sizes"))
    return next(filter(None, map(_what, parts)), None)


def _parts(value: Any, names: tuple[str, ...]) -> list[Any]:
    return [getattr(value, name, None) for name in names]


def settle(value: Any) -> None:
    """Where a `.metadata` holds what is not known, that is left out, and the entries that need it
    are Spoiled."""
    if type(value) is not dcp.Metadata:
        return
    spoiled: dict[str, str] = {}
    entries = value.state_dict_metadata
    for name, entry in entries.items() if type(entries) is dict else ():
        what = _of_tensor(entry)
        if what is not None and type(name) is str:
            spoiled[name] = what
    for field in ("planner_data", "storage_data", "storage_meta", "version"):
        if _what(getattr(value, field, None)):
            setattr(value, field, None)
    _settle_planner(value.planner_data, spoiled)
    _settle_stored(value.storage_data, spoiled)
    if type(value.storage_meta) is dcp.StorageMeta:
        for field, part in list(vars(value.storage_meta).items()):
            if _what(part):
                setattr(value.storage_meta, field, [] if field == "modules" else None)
    for name, what in spoiled.items():
        if name in entries:
            entries[name] = _spoiled(name, what)


def _settle_planner(paths: Any, spoiled: dict[str, str]) -> None:
    for name, path in list(paths.items()) if type(paths) is dict else ():
        what = _what(path)
        if what is not None and type(name) is str:
            spoiled[name] = what
            paths[name] = (name,)


def _settle_stored(places: Any, spoiled: dict[str, str]) -> None:
    for index, info in list(places.items()) if type(places) is dict else ():
        parts = [info, index]
        if type(info) is _StorageInfo:
            parts += _parts(info, ("relative_path", "offset", "length", "transform_descriptors"))
        if type(index) is dcp.MetadataIndex:
            parts += _parts(index, ("fqn", "index", "offset"))
        what = next(filter(None, map(_what, parts)), None)
        if what is None:
            continue
        name = getattr(index, "fqn", None)
        if type(name) is str:
            spoiled[name] = what
        del places[index]


# ---- what a planner has put beside the fields -------------------------------------------------


def _check_unknown(value: Any) -> None:
    """An attribute that nobody knows (Megatron adds one): data only, whatever its shape."""
    seen: set[int] = set()
    todo = [value]
    while todo:
        part = todo.pop()
        kind = type(part)
        if kind in _LEAVES:
            continue
        if kind in _RECORDS or isinstance(part, (PurePath, Unknown)) or is_stand_in(part):
            continue
        if kind not in (dict, list, tuple):
            raise ValueError(f"a value in an unknown attribute is a {kind.__name__}")
        if id(part) in seen:
            continue
        seen.add(id(part))
        if kind is dict:
            todo.extend(part.keys())
            todo.extend(part.values())
        else:
            todo.extend(part)


def more_of(value: dcp.Metadata) -> dict[str, Any]:
    """Attributes that a planner has put beside the fields, of those that are data alone (Megatron's
    mcore_data); plans, of which it caches all ranks', are left out."""
    out = {}
    for name in vars(value).keys() - {field.name for field in dataclasses.fields(value)}:
        try:
            _check_unknown(vars(value)[name])
            out[name] = vars(value)[name]
        except ValueError:
            pass
    return out
