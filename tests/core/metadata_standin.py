# SPDX-License-Identifier: Apache-2.0
"""Load a .metadata with pickle and stand-ins for torch's classes; print what it says, one line a thing.

    python3 metadata_standin.py FILE

The stand-ins take their attributes as torch's classes do: no arguments, and __dict__, or __setstate__.
"""
import pickle
import pickletools
import sys
import types

DCP = "torch.distributed.checkpoint."


class Plain:
    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)


class Metadata(Plain):
    pass


class TensorStorageMetadata(Plain):
    pass


class BytesStorageMetadata(Plain):
    pass


class ChunkStorageMetadata(Plain):
    pass


class StorageMeta(Plain):
    pass


class _StorageInfo(Plain):
    pass


class MetadataIndex:
    def __hash__(self):  # as torch's: needs the attributes when it becomes a key
        return hash((self.fqn, getattr(self, "offset", None)))

    def __eq__(self, other):
        return (self.fqn, getattr(self, "offset", None)) == (other.fqn, getattr(other, "offset", None))


class TensorProperties(Plain):
    def __setstate__(self, state):
        self.dtype, self.layout, self.requires_grad, self.memory_format, self.pin_memory = state


class Size(tuple):
    pass


class Name(str):
    pass


def modules():
    def make(name, **content):
        module = types.ModuleType(name)
        vars(module).update(content)
        sys.modules[name] = module

    make("torch", Size=Size, **{d: Name(d) for d in ("float32", "bfloat16", "int64", "uint8")})
    make("torch.serialization", _get_layout=lambda text: Name(text))
    make("torch.distributed")
    make("torch.distributed.checkpoint")
    make(DCP + "metadata", Metadata=Metadata, TensorStorageMetadata=TensorStorageMetadata,
         BytesStorageMetadata=BytesStorageMetadata, ChunkStorageMetadata=ChunkStorageMetadata,
         StorageMeta=StorageMeta, MetadataIndex=MetadataIndex, TensorProperties=TensorProperties,
         _MEM_FORMAT_ENCODING=lambda number: {0: Name("contiguous")}[number])
    make(DCP + "filesystem", _StorageInfo=_StorageInfo)


def main(path):
    data = open(path, "rb").read()
    pickletools.dis(data, out=open("/dev/null", "w"))  # frames, memo and stack are as they should be
    modules()
    md = pickle.loads(data)
    assert list(vars(md)) == ["state_dict_metadata", "planner_data", "storage_data", "storage_meta", "version"]
    print(md.version, vars(md.storage_meta))
    for name, entry in md.state_dict_metadata.items():
        if type(entry) is BytesStorageMetadata:
            assert not vars(entry)
            print("bytes", ascii(name))
            continue
        p = entry.properties
        assert type(entry.size) is Size and list(vars(entry)) == ["properties", "size", "chunks"]
        assert (p.layout, p.requires_grad, p.memory_format, p.pin_memory) == ("torch.strided", False, "contiguous", False)
        print("tensor", ascii(name), p.dtype, tuple(entry.size))
        for c in entry.chunks:
            assert type(c.offsets) is Size and type(c.sizes) is Size
            print(" chunk", tuple(c.offsets), tuple(c.sizes))
    for name, steps in md.planner_data.items():
        print("path", ascii(name), ascii(steps))
    for i, info in md.storage_data.items():
        print("stored", ascii(i.fqn), i.index, tuple(i.offset) if hasattr(i, "offset") else None, vars(info))
    assert len(set(map(id, md.state_dict_metadata.values()))) == len(md.state_dict_metadata)


if __name__ == "__main__":
    main(sys.argv[1])
