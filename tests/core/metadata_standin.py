# SPDX-License-Identifier: Apache-2.0
"""Load a .metadata with pickle and stand-ins for torch's classes; print what it says, one line a thing.

    python3 metadata_standin.py FILE
"""
import os
import pickle
import pickletools
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import standin as s  # noqa: E402


def main(path):
    data = open(path, "rb").read()
    pickletools.dis(data, out=open("/dev/null", "w"))  # frames, memo and stack are as they should be
    md = pickle.loads(data)
    assert list(vars(md)) == ["state_dict_metadata", "planner_data", "storage_data", "storage_meta", "version"]
    print(md.version, vars(md.storage_meta))
    for name, entry in md.state_dict_metadata.items():
        if type(entry) is s.BytesStorageMetadata:
            assert not vars(entry)
            print("bytes", ascii(name))
            continue
        dtype, layout, requires_grad, memory_format, pin_memory = entry.properties.fields
        assert type(entry.size) is s.Size and list(vars(entry)) == ["properties", "size", "chunks"]
        assert layout.name == "torch.strided"
        assert memory_format == s.Format.TORCH_CONTIGUOUS_FORMAT.value
        assert not requires_grad and not pin_memory
        print("tensor", ascii(name), dtype.name, tuple(entry.size))
        for c in entry.chunks:
            assert type(c.offsets) is s.Size and type(c.sizes) is s.Size
            print(" chunk", tuple(c.offsets), tuple(c.sizes))
    for name, steps in md.planner_data.items():
        print("path", ascii(name), ascii(steps))
    for i, info in md.storage_data.items():
        offset = tuple(i.offset) if "offset" in vars(i) else None
        print("stored", ascii(i.fqn), i.index, offset, vars(info))
    assert len(set(map(id, md.state_dict_metadata.values()))) == len(md.state_dict_metadata)


if __name__ == "__main__":
    main(sys.argv[1])
