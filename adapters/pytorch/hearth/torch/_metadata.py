# SPDX-License-Identifier: Apache-2.0
"""What a decoded `.metadata` must be before anybody uses it: types, dimensions, names of files.

Offsets and sizes are read by code that indexes memory and files with them, so a chunk lies within
its tensor, a product fits 63 bits, and a file's name leads nowhere but into the container.
"""

from __future__ import annotations

import dataclasses
from pathlib import PurePath
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo

from ..errors import HearthError

_MAX = 2**63 - 1
_MAX_PATH = 4096
_MISSING = object()
_TEXT_OR_NONE = (str, type(None))
_KNOWN = ("state_dict_metadata", "planner_data", "storage_data", "storage_meta", "version")
_LEAVES = frozenset({str, int, float, bool, bytes, bytearray, set, frozenset, type(None), torch.Size,
                     torch.dtype, torch.layout})
_RECORDS = frozenset({
    dcp.TensorStorageMetadata, dcp.ChunkStorageMetadata, dcp.BytesStorageMetadata,
    dcp.TensorProperties, dcp.MetadataIndex, dcp.StorageMeta, _StorageInfo,
    dcp._MEM_FORMAT_ENCODING})


def _refuse(what: str, value: Any) -> None:
    raise ValueError(f"{what} is a {type(value).__name__}")


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
    known = state[:max(len(_FIELDS), len(dataclasses.fields(dcp.TensorProperties)))]
    if any(map(_what, known[:len(_FIELDS)])):
        vars(owner).update(zip(_FIELDS, known))
        return
    later = [part if _is_strides(part) else None for part in known[len(_FIELDS):]]
    dcp.TensorProperties.__setstate__(owner, (*known[:len(_FIELDS)], *later))


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


# ---- checks -----------------------------------------------------------------------------------


def _dims(value: Any, what: str) -> Any:
    """A tuple of numbers from 0 on."""
    if type(value) is not torch.Size and type(value) is not tuple:
        _refuse(what, value)
    for dim in value:
        if type(dim) is not int or not 0 <= dim <= _MAX:
            raise ValueError(f"{what} holds {dim!r}"[:200])
    return value


def _check_chunk(chunk: Any, size: Any, name: str) -> None:
    if type(chunk) is not dcp.ChunkStorageMetadata:
        _refuse(f"a chunk of {name!r}", chunk)
    offsets = _dims(chunk.offsets, f"offsets of {name!r}")
    sizes = _dims(chunk.sizes, f"sizes of {name!r}")
    if len(offsets) != len(size) or len(sizes) != len(size):
        raise ValueError(f"a chunk of {name!r} has {len(offsets)} and {len(sizes)} dimensions, "
                         f"the tensor {len(size)}")
    for offset, length, whole in zip(offsets, sizes, size):
        if offset + length > whole:
            raise ValueError(f"a chunk of {name!r} reaches outside of the tensor")


def _check_tensor(entry: dcp.TensorStorageMetadata, name: str) -> None:
    properties = entry.properties
    if type(properties) is not dcp.TensorProperties:
        _refuse(f"properties of {name!r}", properties)
    kinds = (torch.dtype, torch.layout, bool, torch.memory_format, bool)
    for field, kind in zip(_FIELDS, kinds):
        if type(getattr(properties, field)) is not kind:
            _refuse(f"{field} of {name!r}", getattr(properties, field))
    size = _dims(entry.size, f"size of {name!r}")
    if type(entry.chunks) is not list and type(entry.chunks) is not tuple:
        _refuse(f"chunks of {name!r}", entry.chunks)
    for chunk in entry.chunks:
        _check_chunk(chunk, size, name)


def _check_entries(entries: Any) -> None:
    if type(entries) is not dict:
        _refuse("state_dict_metadata", entries)
    for name, entry in entries.items():
        if type(name) is not str:
            _refuse("a name in state_dict_metadata", name)
        if type(entry) is dcp.TensorStorageMetadata:
            _check_tensor(entry, name)
        elif type(entry) is not dcp.BytesStorageMetadata and not isinstance(entry, Spoiled):
            _refuse(f"the entry of {name!r}", entry)


def _check_planner(paths: Any) -> None:
    if paths is None:
        return
    if type(paths) is not dict:
        _refuse("planner_data", paths)
    for name, path in paths.items():
        if type(name) is not str:
            _refuse("a name in planner_data", name)
        if type(path) is not tuple:
            _refuse(f"the path of {name!r}", path)
        for step in path:
            if type(step) is not str and type(step) is not int:
                _refuse(f"a step of the path of {name!r}", step)


def _check_file(path: Any) -> None:
    """A name that leads nowhere but into the container."""
    if type(path) is not str:
        _refuse("relative_path", path)
    parts = path.split("/")
    if (not path or len(path) > _MAX_PATH or "\0" in path or path.startswith("/") or path == "."
            or ".." in parts):
        raise ValueError(f"relative_path {path[:100]!r} is not a name in the container")


def _check_stored(stored: Any) -> None:
    if stored is None:
        return
    if type(stored) is not dict:
        _refuse("storage_data", stored)
    known: set[str] = set()
    for index, info in stored.items():
        if type(index) is not dcp.MetadataIndex:
            _refuse("a key of storage_data", index)
        if type(index.fqn) is not str:
            _refuse("fqn of an index", index.fqn)
        if index.offset is not None:
            _dims(index.offset, f"offset of the index of {index.fqn!r}")
        if index.index is not None and type(index.index) is not int:
            _refuse(f"hint of the index of {index.fqn!r}", index.index)
        if type(info) is not _StorageInfo:
            _refuse(f"the place of {index.fqn!r}", info)
        _check_info(info, index.fqn, known)


def _check_info(info: _StorageInfo, name: str, known: set[str]) -> None:
    path = info.relative_path
    if type(path) is not str or path not in known:
        _check_file(path)
        known.add(path)
    for number in (info.offset, info.length):
        if type(number) is not int or number < 0:
            raise ValueError(f"offset or length of {name!r} is {number!r}"[:200])
    if info.offset + info.length > _MAX:
        raise ValueError(f"offset and length of {name!r} are over 2^63")
    transforms = info.transform_descriptors
    if transforms is not None:
        if type(transforms) is not list and type(transforms) is not tuple:
            _refuse(f"transform_descriptors of {name!r}", transforms)
        for transform in transforms:
            if type(transform) is not str:
                _refuse(f"a transform of {name!r}", transform)


def _check_meta(meta: Any) -> None:
    if meta is None:
        return
    if type(meta) is not dcp.StorageMeta:
        _refuse("storage_meta", meta)
    if not isinstance(meta.checkpoint_id, (str, PurePath, type(None))):
        _refuse("checkpoint_id", meta.checkpoint_id)
    for field in ("save_id", "load_id"):
        if not isinstance(getattr(meta, field), _TEXT_OR_NONE):
            _refuse(field, getattr(meta, field))
    modules = getattr(meta, "modules", None)
    if modules is None:  # before torch 2.7
        return
    if type(modules) is not list or any(type(name) is not str for name in modules):
        raise ValueError("modules of storage_meta is not a list of names")


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
            _refuse("a value in an unknown attribute", part)
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


def _check_huge(value: dcp.Metadata) -> None:
    """Of a tensor of more than 2^63 bytes as many must be stored as one dimension has elements:
    else it is an attack on whoever multiplies."""
    huge = {}
    for name, entry in value.state_dict_metadata.items():
        if type(entry) is dcp.TensorStorageMetadata:
            total = entry.properties.dtype.itemsize
            for dim in sorted(entry.size):  # 0 first: then the product is 0
                total *= dim
            if total > _MAX:
                huge[name] = 0
    for index, info in (value.storage_data or {}).items() if huge else ():
        if index.fqn in huge:
            huge[index.fqn] += _MAX if info.transform_descriptors else info.length
    for name, stored in huge.items():
        if max(value.state_dict_metadata[name].size) > stored:
            raise ValueError(f"{name!r} has more than 2^63 bytes, of which {stored} are stored")


def check_metadata(value: Any) -> None:
    """Raise ValueError, TypeError or AttributeError unless `value` is a sound Metadata."""
    if type(value) is not dcp.Metadata:
        _refuse("the root", value)
    _check_entries(value.state_dict_metadata)
    _check_planner(value.planner_data)
    _check_stored(value.storage_data)
    _check_huge(value)
    _check_meta(value.storage_meta)
    for name, attribute in vars(value).items():
        if name not in _KNOWN:
            _check_unknown(attribute)
    if not isinstance(getattr(value, "version", None), (str, int, type(None))):
        _refuse("version", value.version)
