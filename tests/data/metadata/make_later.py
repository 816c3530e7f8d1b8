# SPDX-License-Identifier: Apache-2.0
"""Make the samples of torch 2.15 and of what may come after it, in this folder.

    python3 make_later.py

torch215_*: dcp.save of torch 2.15, as it is. edit_later_*: real classes of that torch, pickled with
fields, classes, dtypes and enum members that no torch has."""

import collections
import json
import os
import pickle
import sys
import tempfile
import types
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import metadata as md

warnings.simplefilter("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
MADE = {"torch": torch.__version__, "python": sys.version.split()[0]}


def entry(name, data, unknown):
    if name in unknown:
        return {"fqn": name, "type": "unknown", **dict(zip(("module", "name"), unknown[name]))}
    if type(data) is md.BytesStorageMetadata:
        return {"fqn": name, "type": "bytes"}
    p = data.properties
    return {"fqn": name, "type": "tensor", "dtype": str(p.dtype)[6:], "size": list(data.size),
            "layout": str(p.layout)[6:], "requires_grad": p.requires_grad,
            "memory_format": str(p.memory_format)[6:], "pin_memory": p.pin_memory,
            "chunks": [{"offsets": list(c.offsets), "sizes": list(c.sizes)} for c in data.chunks]}


def place(index, info):
    return {"fqn": index.fqn, "offset": None if index.offset is None else list(index.offset),
            "index": index.index, "relative_path": info.relative_path,
            "file_offset": info.offset, "length": info.length, "transform_descriptors": None}


def write(name, what, data, m, unknown=()):
    unknown = dict(unknown)
    meta = m.storage_meta
    lost = unknown.get(None, ())
    ident = None if "checkpoint_id" in lost else {"type": type(meta.checkpoint_id).__name__,
                                                  "value": str(meta.checkpoint_id)}
    says = {
        "what": what, "made_with": MADE, "version": m.version, "attributes": list(vars(m)),
        "storage_meta": {"checkpoint_id": ident, "save_id": meta.save_id, "load_id": meta.load_id,
                         "modules": meta.modules},
        "state_dict_metadata": [entry(n, d, unknown) for n, d in m.state_dict_metadata.items()],
        "planner_data": [{"fqn": n, "path": [] if n in unknown.get("no path", ()) else list(p)}
                         for n, p in m.planner_data.items()],
        "storage_data": [place(i, s) for i, s in m.storage_data.items()
                         if i.fqn not in unknown.get("no place", ())]}
    with open(os.path.join(HERE, name + ".metadata"), "wb") as f:
        f.write(data)
    with open(os.path.join(HERE, name + ".json"), "w") as f:
        json.dump(says, f, indent=1)
        f.write("\n")


def saved(state):
    with tempfile.TemporaryDirectory() as folder:
        dcp.save(state, checkpoint_id=folder, no_dist=True)
        with open(os.path.join(folder, ".metadata"), "rb") as f:
            data = f.read()
    m = pickle.loads(data)
    return data, m


def later(name, values, base=object):
    """A class of a module that nobody has."""
    module = sys.modules.setdefault("torch.later", types.ModuleType("torch.later"))
    if not hasattr(module, name):
        setattr(module, name, type(name, (base,), {"__module__": "torch.later"}))
    kind = getattr(module, name)
    made = kind.__new__(kind)
    made.__dict__.update(values)
    return made


class Named:
    """Pickled as a global: as dtypes are."""

    def __init__(self, module, name):
        self.module, self.name = module, name
        setattr(sys.modules[module], name, self)

    def __reduce__(self):
        return self.name

    @property
    def __module__(self):
        return self.module


def pickled(m):
    return pickle.dumps(m, 4)


def main():
    state = {"w": torch.arange(12.0).view(3, 4), "t": torch.ones(3, 4).t(), "n": 5, "e": torch.zeros(0)}
    data, m = saved(state)
    write("torch215_plain", "six fields of TensorProperties", data, m)

    data, m = saved({"w": torch.ones(4, dtype=torch.bfloat16), "q": torch.ones(2), "n": 1})
    m.state_dict_metadata["q"].properties.dtype = Named("torch", "float3_e1m1fn")
    write("edit_later_dtype", "a dtype that no torch has; one entry of three needs it", pickled(m), m,
          {"q": ("torch", "float3_e1m1fn")})

    data, m = saved({"w": torch.arange(6.0), "n": 1, "o": {"p": torch.ones(2, 2)}})
    anything = [later("Thing", {"a": [1, {2: 3}], "b": (None, 1.5)}),
                later("List", {}, list), later("Dict", {"z": 1}, dict), {1, 2}, frozenset({"x"}),
                b"bytes", bytearray(b"more"), 2**100, -(2**70), 1j, collections.OrderedDict(a=1)]
    anything[1] += [1, later("Thing", {})]
    anything[2]["key"] = later("Thing", {})
    for thing in (m, m.storage_meta, *m.state_dict_metadata.values(), *m.storage_data.values(),
                  *(c for d in m.state_dict_metadata.values() for c in getattr(d, "chunks", ()))):
        thing.__dict__["later"] = anything
        thing.__dict__["latest"] = {"x": later("Thing", {}), "y": anything[:3]}
    old = md.TensorProperties.__getstate__
    md.TensorProperties.__getstate__ = lambda self: (*old(self), anything, {"k": anything[0]}, None)
    data = pickled(m)
    md.TensorProperties.__getstate__ = old
    write("edit_later_fields", "fields of every kind behind those of every class", data, m)

    names = ("good", "props", "chunk", "size", "place", "kind", "path", "format")
    data, m = saved({name: torch.arange(4.0) for name in names})
    thing = later("Thing", {"x": 1})
    what = ("torch.later", "Thing")
    entries = m.state_dict_metadata
    clean = pickle.loads(data)
    entries["props"].properties = thing
    entries["chunk"].chunks.append(thing)
    entries["size"].size = thing
    entries["kind"] = thing
    m.planner_data["path"] = ("path", thing)
    for index, info in list(m.storage_data.items()):
        if index.fqn == "place":
            info.__dict__["offset"] = thing
    m.storage_meta.checkpoint_id = thing

    class Format(Named):
        def __reduce__(self):
            return md._MEM_FORMAT_ENCODING, (7,)

    def getstate(self):
        state = old(self)
        return (*state[:3], Format("torch", "later_format"), *state[4:]) if self is odd else state

    odd = entries["format"].properties
    md.TensorProperties.__getstate__ = getstate
    data = pickled(m)
    md.TensorProperties.__getstate__ = old
    unknown = {name: what for name in names[1:-1]}
    unknown["format"] = (md.__name__, "_MEM_FORMAT_ENCODING")
    write("edit_later_classes", "an object of a class that nobody has in every place that one may be",
          data, clean, {**unknown, None: ("checkpoint_id",), "no place": ("place",),
                        "no path": ("path",)})


if __name__ == "__main__":
    main()
