# SPDX-License-Identifier: Apache-2.0
"""Read what examples/write_container.c wrote, by its .metadata alone.

    read_container.py DIRECTORY
"""
import os
import pickle
import struct
import sys
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import standin  # noqa: E402


class TensorHeader:
    pass


def main(directory):
    header = types.ModuleType("ml_flashpoint.core.tensor_header")
    header.TensorHeader = TensorHeader
    sys.modules.update({"ml_flashpoint": header, "ml_flashpoint.core": header, header.__name__: header})
    md = pickle.load(open(f"{directory}/.metadata", "rb"))
    assert md.storage_meta.checkpoint_id == directory
    items = {}
    for index, info in md.storage_data.items():
        data = open(f"{directory}/{info.relative_path}", "rb").read()
        assert data[8:16] == b"MLF_TENS" and info.offset + info.length <= struct.unpack("<Q", data[:8])[0]
        item = data[4096 + info.offset:4096 + info.offset + info.length]
        entry = md.state_dict_metadata[index.fqn]
        if type(entry) is standin.BytesStorageMetadata:
            items[index.fqn] = item
            continue
        length, = struct.unpack("<I", item[:4])
        tensor = pickle.loads(item[4:4 + length])
        assert (tensor.dtype, tensor.shape) == (entry.properties.fields[0], entry.size), index.fqn
        form = {"float32": "f", "int64": "q"}[tensor.dtype.name]
        items[index.fqn] = [x for x, in struct.iter_unpack("<" + form, item[4 + length:])]
    assert items["model.weight"] == [i / 2 for i in range(12)], items
    assert items["step"] == [1], items
    assert items["optimizer.lr"].endswith(b"\x80\x02G" + struct.pack(">d", 0.25) + b".\x80\x02]q\x00."), items
    assert md.planner_data == {"model.weight": ("model", "weight"), "step": ("step",),
                               "optimizer.lr": ("optimizer", "lr")}, md.planner_data


main(sys.argv[1])
