# SPDX-License-Identifier: Apache-2.0
"""Write the items of this folder and expected.json: python make.py (torch 2.13, CPU)."""
import collections
import hashlib
import io
import json
import pickle

import torch


def raw(t):
    """The elements as they lie in the storage, in C order."""
    t = t.detach()
    t = t.conj() if t.is_conj() else t
    t = torch._neg_view(t) if t.is_neg() else t
    return bytes(t.contiguous().reshape(-1).view(torch.uint8).tolist()) if t.numel() else b""


def tree(v, storages):
    if isinstance(v, torch.Tensor):
        key = v.untyped_storage()._cdata
        return {"kind": "tensor", "dtype": str(v.dtype)[6:], "shape": list(v.shape),
                "sha256": hashlib.sha256(raw(v)).hexdigest(), "requires_grad": v.requires_grad,
                "conj": v.is_conj(), "neg": v.is_neg(),
                "storage": storages.setdefault(key, len(storages))}
    if isinstance(v, torch.dtype):
        return {"kind": "dtype", "value": str(v)[6:]}
    if isinstance(v, dict):
        return {"kind": "dict", "value": [[tree(k, storages), tree(x, storages)] for k, x in v.items()]}
    for kind, type_ in ("size", torch.Size), ("tuple", tuple), ("list", list):
        if isinstance(v, type_):
            return {"kind": kind, "value": [tree(x, storages) for x in v]}
    if v is None:
        return {"kind": "none"}
    if isinstance(v, bool):
        return {"kind": "bool", "value": int(v)}
    if isinstance(v, int):
        return {"kind": "int", "value": str(v)}
    if isinstance(v, float):
        return {"kind": "float", "value": v.hex()}
    if isinstance(v, str):
        return {"kind": "text", "hex": v.encode().hex()}
    return {"kind": "bytes", "hex": bytes(v).hex()}


def module_state():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).state_dict()


def attributes():
    t = torch.arange(4.0)
    t.tag = "x"
    return [t]


base = torch.arange(24, dtype=torch.float32)
z = torch.tensor([1 + 2j, 3 - 4j, -5 + 0.5j])
plain = {
    "none": None, "flags": (True, False), "ints": [0, 1, 255, 256, 65535, 65536, -1, 2**31, -2**63, 2**63 - 1],
    "floats": [0.0, -0.0, 0.1, 1e300, float("inf"), -float("inf")], "text": "a\0b é 漢 😀", "": "",
    "bytes": b"", "more bytes": bytes(range(256)), "array": bytearray(b"\x00\x7f\x80\xff"), "no array": bytearray(),
    "nested": {"list": [[], [[]], ()], 3: {True: (1,)}, (1, 2): "key"}, "size": torch.Size([2, 3]),
    "dtypes": [torch.float32, torch.bfloat16, torch.uint16], "long": list(range(1100)),
    "ordered": collections.OrderedDict([("z", 1), ("a", 2)]),
}
tensors = {
    "transposed": base.reshape(4, 6).t(), "view": base[8:16].reshape(2, 4), "expanded": base[:1].expand(3, 5),
    "same": base, "scalar": torch.tensor(7), "empty": torch.empty(0, 5), "past": torch.empty(2, 3)[2:, 3:],
    "bool": torch.tensor([True, False]), "half": torch.ones(3, dtype=torch.float16),
    "bfloat16": torch.ones(3, dtype=torch.bfloat16), "double": torch.ones(2, 2, dtype=torch.float64),
    "int8": torch.tensor([-1, 1], dtype=torch.int8), "uint8": torch.tensor([255], dtype=torch.uint8),
    "int16": torch.tensor([-2], dtype=torch.int16), "int32": torch.tensor([-3], dtype=torch.int32),
    "complex": torch.tensor([1 + 2j], dtype=torch.complex128), "conj": z.conj(), "neg": torch._neg_view(torch.tensor([1.5, -2])),
    "uint16": torch.tensor([1, 65535], dtype=torch.uint16), "uint64": torch.tensor([2**63], dtype=torch.uint64),
    "float8": torch.ones(5).to(torch.float8_e4m3fn), "wide": base.reshape(2, 3, 2, 2),
    "parameter": torch.nn.Parameter(torch.ones(2, 3)), "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False),
    "grad": torch.ones(2, requires_grad=True),
}
objects = {"plain": plain, "tensors": tensors, "module": module_state(), "attributes": attributes(),
           "scalar": 0.25, "tuple": (0.9, 0.999)}
expected = {"objects": {}, "files": []}


def keep(file, data, back, value):
    """The older form has fewer tensors: its object is another one."""
    want = tree(value, {})
    assert tree(back, {}) == want, file
    name = file.replace(".", "_") if want != expected["objects"].get(file.split(".")[0], want) else file.split(".")[0]
    expected["objects"][name] = want
    expected["files"].append({"file": file, "object": name})
    open(file, "wb").write(data)


for name, value in objects.items():
    forms = [("zip", {}), ("zip4", {"pickle_protocol": 4}),
             ("older", {"_use_new_zipfile_serialization": False}),
             ("older5", {"_use_new_zipfile_serialization": False, "pickle_protocol": 5})]
    for form, how in forms:
        # torch writes untyped storages in the older form too, but does not read them.
        untyped = "uint16", "uint64", "float8"
        if name == "tensors" and "older" in form:
            value = {k: v for k, v in value.items() if k not in untyped}
        out = io.BytesIO()
        torch.save(value, out, **how)
        keep(f"{name}.{form}", out.getvalue(), torch.load(io.BytesIO(out.getvalue()), weights_only=False), value)
    for protocol in () if name in ("tensors", "module", "attributes") else (2, 3, 4, 5):
        data = pickle.dumps(value, protocol)
        keep(f"{name}.pickle{protocol}", data, pickle.loads(data), value)
json.dump(expected, open("expected.json", "w"), separators=(",", ":"))
