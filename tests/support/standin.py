# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the classes of torch that a `.metadata` holds.

They carry the real modules' and classes' names and pickle the same way, so that files can be
written and read where there is no torch. Importing this module puts them into sys.modules.
"""

import dataclasses
import enum
import pathlib
import sys
import types


def _module(name):
    module = types.ModuleType(name)
    sys.modules[name] = module
    return module


torch = _module("torch")
serialization = _module("torch.serialization")
_module("torch.distributed")
_module("torch.distributed.checkpoint")
metadata = _module("torch.distributed.checkpoint.metadata")
filesystem = _module("torch.distributed.checkpoint.filesystem")
_module("torch.distributed._shard")
_module("torch.distributed._shard.sharded_tensor")
legacy = _module("torch.distributed._shard.sharded_tensor.metadata")


def _in(module):
    """The class or function is one of `module`."""

    def put(thing):
        thing.__module__ = module.__name__
        thing.__qualname__ = thing.__name__
        setattr(module, thing.__name__, thing)
        return thing

    return put


@_in(torch)
class Size(tuple):
    def __reduce__(self):
        return (Size, (tuple(self),))


@_in(torch)
class dtype:
    def __init__(self, name):
        self.name = name
        setattr(torch, name, self)

    def __reduce__(self):
        return self.name


DTYPES = [
    dtype(name)
    for name in (
        "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool "
        "complex64 float8_e4m3fn float8_e5m2 qint8"
    ).split()
]


class _Layout:
    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return (_get_layout, (self.name,))


LAYOUTS = {name: _Layout(name) for name in ("torch.strided", "torch.sparse_coo")}


@_in(serialization)
def _get_layout(name):
    assert name.startswith("torch.")  # Hearth does not know them all either
    return LAYOUTS.get(name) or _Layout(name)


_FORMATS = {
    "TORCH_CONTIGUOUS_FORMAT": 0,
    "TORCH_CHANNELS_LAST": 1,
    "TORCH_PRESERVE_FORMAT": 2,
}
Format = _in(metadata)(enum.Enum("_MEM_FORMAT_ENCODING", _FORMATS))
LegacyFormat = _in(legacy)(enum.Enum("MEM_FORMAT_ENCODING", _FORMATS))


class _Properties:
    def __init__(self, dtype, layout, requires_grad, memory_format, pin_memory, later=()):
        self.fields = (dtype, layout, requires_grad, memory_format, pin_memory)
        self.later = later

    def __getstate__(self):
        dtype, layout, requires_grad, memory_format, pin_memory = self.fields
        return (dtype, layout, requires_grad, self.FORMAT(memory_format), pin_memory, *self.later)

    def __setstate__(self, state):
        dtype, layout, requires_grad, memory_format, pin_memory, *_ = state
        self.fields = (dtype, layout, requires_grad, memory_format.value, pin_memory)


@_in(metadata)
class TensorProperties(_Properties):
    FORMAT = Format


class LegacyProperties(_Properties):
    FORMAT = LegacyFormat


LegacyProperties.__name__ = "TensorProperties"
_in(legacy)(LegacyProperties)


@_in(metadata)
@dataclasses.dataclass
class BytesStorageMetadata:
    pass


@_in(metadata)
@dataclasses.dataclass
class ChunkStorageMetadata:
    offsets: Size
    sizes: Size


@_in(metadata)
@dataclasses.dataclass
class TensorStorageMetadata:
    properties: TensorProperties
    size: Size
    chunks: list


@_in(metadata)
@dataclasses.dataclass(frozen=True)
class MetadataIndex:
    fqn: str
    offset: Size = None
    index: int = dataclasses.field(hash=False, compare=False, default=None)

    def __init__(self, fqn, offset=None, index=None):
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "index", index)
        if offset is not None:
            object.__setattr__(self, "offset", Size(offset))


@_in(metadata)
@dataclasses.dataclass
class StorageMeta:
    checkpoint_id: object = None
    save_id: str = None
    load_id: str = None
    modules: list = dataclasses.field(default_factory=list)


@_in(metadata)
@dataclasses.dataclass
class Metadata:
    state_dict_metadata: dict
    planner_data: object = None
    storage_data: object = None
    storage_meta: StorageMeta = None
    version: str = "1.0.0"


@_in(filesystem)
@dataclasses.dataclass
class _StorageInfo:
    relative_path: str
    offset: int
    length: int
    transform_descriptors: object = None

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if v is not None}


StorageInfo = _StorageInfo
PATHS = (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath)
