#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Python pickles as a Metadata, Hearth reads as the same; and what Hearth reads of a damaged
one, Python reads as the same.

usage: metadata_differential.py DUMP-PROGRAM [CASES [SEED]]"""

import io
import json
import os
import pathlib
import pickle
import pickletools
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import standin as s  # noqa: E402

NAMES = ("w", "layers.0.weight", "", "nul\0name", "gr\u00fc\u00df", "\U0001f525", "x" * 300, "a b/..")
LAST = 2**63 - 1


class Later:
    """Of a module that no reader knows."""

    def __init__(self, value):
        self.value = value


class LaterList(list):
    pass


class LaterDict(dict):
    def __getnewargs_ex__(self):
        return (), {"key": len(self)}

    def __new__(cls, *_args, **_named):
        return dict.__new__(cls)


for later in (Later, LaterList, LaterDict):
    later.__module__ = "later"
sys.modules["later"] = sys.modules[__name__]


class Case:
    """A Metadata made by chance."""

    def __init__(self, rng):
        self.rng = rng
        self.shared = rng.random() < 0.5  # texts and sizes that are one object
        self.sizes = {}

    def some(self, p=0.2):
        return self.rng.random() < p

    def number(self):
        return self.rng.randrange(2 ** self.rng.choice((1, 8, 9, 16, 17, 31, 32, 40, 61)))

    def text(self, text):
        return text if self.shared else (text + "?")[:-1]

    def size(self, dims):
        dims = tuple(dims)
        return self.sizes.setdefault(dims, s.Size(dims)) if self.shared else s.Size(dims)

    def tensor(self):
        rng = self.rng
        shape = [rng.randrange(0, 2 ** rng.choice((1, 3, 9, 14))) for _ in range(rng.randrange(5))]
        count = rng.choice((0, 1, 3, 10)) if self.some() else 2
        if self.some(0.01):
            count = rng.choice((999, 1000, 1001, 2500))
        chunks = []
        for _ in range(count if shape else 1):
            offset = [rng.randint(0, dim) for dim in shape]
            sizes = [rng.randint(0, dim - at) for dim, at in zip(shape, offset)]
            chunks.append(s.ChunkStorageMetadata(self.size(offset), self.size(sizes)))
        of = s.LegacyProperties if self.some() else s.TensorProperties
        layout = s.LAYOUTS[rng.choice(list(s.LAYOUTS))]
        properties = of(
            rng.choice(s.DTYPES), layout, self.some(), rng.randrange(3), self.some(),
            rng.choice(((), (None,), ((1, 2),), (self.junk(), self.junk()))),
        )
        return s.TensorStorageMetadata(properties, self.size(shape), chunks)

    def path(self, name):
        steps = [self.text(p) for p in name.split(".")]
        for _ in range(self.rng.randrange(3)):
            steps.append(self.rng.choice((0, 7, -1, 300, 2**40, "0", self.text(name))))
        return tuple(steps) if not self.some(0.1) else tuple(range(self.rng.randrange(4)))

    def junk(self, depth=0):
        """Of an attribute that no one asks for."""
        rng = self.rng
        leaf = (None, True, -1, 1.5, "text", 2**40, (), [], {}, s.Size((1, 2)), s.DTYPES[0])
        if depth == 4 or self.some(0.4):
            return rng.choice(leaf)
        parts = [self.junk(depth + 1) for _ in range(rng.randrange(8 if self.some() else 4))]
        as_dict = {str(i): p for i, p in enumerate(parts)}
        return rng.choice((tuple(parts), parts, as_dict, Later(parts), LaterList(parts),
                           LaterDict(as_dict), {1, "x"}, frozenset((2,)), b"bytes", 2**100))

    def info(self, at):
        info = s.StorageInfo(f"__{self.rng.randrange(4)}_0.distcp", at, self.number())
        if self.some(0.1):
            info.relative_path = "sub/" + info.relative_path + self.rng.choice(("", "\u00e4", ".x y"))
        if self.some(0.1):
            info.transform_descriptors = self.rng.choice(
                (["zstd/1"], ("zstd/1", "x/2"), (), [], ["a"] * 3)
            )
        if self.some(0.05):
            info.later = self.junk()
        return info

    def checkpoint_id(self):
        return self.rng.choice(
            (
                None,
                "ckpt",
                pathlib.PurePosixPath("/a/b c"),
                pathlib.PosixPath("."),
                pathlib.PurePosixPath("a//b/"),
                pathlib.PureWindowsPath("C:/a/b"),
            )
        )

    def storage_meta(self):
        meta = s.StorageMeta(
            self.checkpoint_id(),
            self.rng.choice((None, "save")),
            self.rng.choice((None, "load")),
            ["m"] * self.rng.choice((0, 0, 1, 5)),
        )
        if self.some():
            del meta.modules
        return meta

    def make(self):
        rng, entries, planner, places = self.rng, {}, {}, {}
        several = rng.choice((0, 1, 3, 8, 12)) if self.some(0.3) else 4
        if self.some(0.01):
            several = 1500  # more than pickle puts into one batch
        for i in range(several):
            name = rng.choice(NAMES) + (str(i) if self.some(0.8) else "")
            if name in entries:
                continue
            data = s.BytesStorageMetadata() if self.some(0.4) else self.tensor()
            if several < 1000 and self.some(0.1) and entries:
                data = rng.choice(list(entries.values()))  # one object, two names
            entries[name] = data
            planner[self.text(name)] = self.path(name)
            chunks = getattr(data, "chunks", [None])
            for hint, chunk in enumerate(chunks):
                index = s.MetadataIndex(
                    self.text(name),
                    chunk and (chunk.offsets if self.shared else self.size(chunk.offsets)),
                    rng.choice((None, hint)),
                )
                places[index] = self.info(self.number())
        items = list(places.items())
        rng.shuffle(items)
        metadata = s.Metadata(
            entries,
            rng.choice((planner, planner, None)),
            rng.choice((dict(items), dict(items), None)),
            rng.choice((self.storage_meta(), self.storage_meta(), None)),
            rng.choice(("1.0.0", None)),
        )
        for name in ("version", "storage_meta"):
            if self.some(0.1):
                delattr(metadata, name)
                if name == "version":
                    metadata.version = None  # the class has a default of its own
                    del metadata.__dict__["version"]
        if self.some():
            metadata.mcore_data = {n: {"shape": (1, 2, 3.5), "x": self.junk()} for n in entries}
        if self.some():
            metadata.later = self.junk()
        return metadata


def pickled(rng, metadata):
    protocol = rng.choice((4, 5))
    if rng.random() < 0.3:
        out = io.BytesIO()
        pickle._Pickler(out, protocol).dump(metadata)
        data = out.getvalue()
    else:
        data = pickle.dumps(metadata, protocol)
    return pickletools.optimize(data) if rng.random() < 0.3 else data


def by_getattr(member):
    return (getattr, (type(member), member.name))


def normal(path):
    """A path of one spelling: from Python 3.12 on a Path is pickled as it was given, and Hearth joins
    what it finds."""
    if isinstance(path, str):
        return path
    return str(pathlib.PurePosixPath(str(path).replace("\\", "/")))


def normalised(got):
    cid = got and got["storage_meta"].get("checkpoint_id")
    if cid and cid["path"]:
        cid["value"] = normal(pathlib.PurePosixPath(cid["value"]))
    return got


def meaning(m):
    """As metadata_json() of the tests gives it."""

    def place(index, info):
        offset = index.__dict__.get("offset")
        return {
            "fqn": index.fqn,
            "offset": None if offset is None else list(offset),
            "index": index.__dict__.get("index"),
            "relative_path": info.relative_path,
            "file_offset": info.offset,
            "length": info.length,
            "transforms": len(info.__dict__.get("transform_descriptors") or ()),
        }

    def entry(name, data):
        if isinstance(data, s.BytesStorageMetadata):
            return {"fqn": name, "type": "bytes"}
        dtype, layout, requires_grad, memory_format, pin_memory = data.properties.fields
        return {
            "fqn": name,
            "type": "tensor",
            "dtype": dtype.name,
            "size": list(data.size),
            "layout": layout.name[len("torch.") :],
            "requires_grad": requires_grad,
            "memory_format": ("contiguous_format", "channels_last", "preserve_format")[
                memory_format
            ],
            "pin_memory": pin_memory,
            "chunks": [{"offsets": list(c.offsets), "sizes": list(c.sizes)} for c in data.chunks],
        }

    d = m.__dict__
    meta = getattr(d.get("storage_meta"), "__dict__", {})
    cid, planner, places = meta.get("checkpoint_id"), d.get("planner_data"), d.get("storage_data")
    return {
        "version": d.get("version"),
        "storage_meta": {
            "checkpoint_id": None
            if cid is None
            else {"path": not isinstance(cid, str), "value": normal(cid)},
            "save_id": meta.get("save_id"),
            "load_id": meta.get("load_id"),
            "modules": len(meta.get("modules") or ()),
        },
        "state_dict_metadata": [entry(*e) for e in m.state_dict_metadata.items()],
        "planner_data": None
        if planner is None
        else [
            {"fqn": name, "path": list(planner.get(name, ()))} for name in m.state_dict_metadata
        ],
        "storage_data": None if places is None else [place(*p) for p in places.items()],
    }


class Careful(pickle.Unpickler):
    """Nothing but the stand-ins, whatever a damaged pickle asks for."""

    def find_class(self, module, name):
        if (module, name) == ("builtins", "getattr"):
            return lambda cls, member: {s.Format: s.Format, s.LegacyFormat: s.LegacyFormat}[cls][
                member
            ]
        if module in ("pathlib", "pathlib._local"):
            known = {p.__name__: p for p in s.PATHS}
            if name in known:
                return known[name]
        if module.startswith("torch") and not name.startswith("_module") and "." not in name:
            if module in sys.modules and name in sys.modules[module].__dict__:
                return sys.modules[module].__dict__[name]
        raise pickle.UnpicklingError(NOT_KNOWN)


NOT_KNOWN = "a class that is not known: Hearth skips it, and says so of its entry"


def dump(program, files):
    """What the program says of each: its meaning, or None and a sentence."""
    said = []
    for at in range(0, len(files), 200):
        run = subprocess.run(
            [program] + files[at : at + 200], check=True, stdout=subprocess.PIPE, timeout=600
        )
        said += run.stdout.decode().splitlines()
    return [(None, line) if line.startswith("null ") else (json.loads(line), "") for line in said]


def damaged(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(data))
        way = rng.randrange(4)
        if way == 0:
            data[at] = rng.randrange(256)
        elif way == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif way == 2:
            n = rng.randrange(1, 12)
            other = rng.randrange(len(data))
            data[at : at + n] = data[other : other + n]
        else:
            data[at] = rng.choice(b"h)\x94\x85\x86\x87RbuK(}]aestN")
    return bytes(data)


def write(folder, datas):
    files = []
    for i, data in enumerate(datas):
        files.append(os.path.join(folder, str(i)))
        with open(files[-1], "wb") as f:
            f.write(data)
    return files


def main():
    program = sys.argv[1]
    cases = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    rng = random.Random(seed)
    wanted, datas = [], []
    for i in range(cases):
        if rng.random() < 0.3:  # as Python 3.11.0 to 3.11.3 does
            s.Format.__reduce_ex__ = s.LegacyFormat.__reduce_ex__ = lambda m, p: by_getattr(m)
        else:
            s.Format.__reduce_ex__ = s.LegacyFormat.__reduce_ex__ = lambda m, p: (
                type(m),
                (m.value,),
            )
        metadata = Case(rng).make()
        wanted.append(meaning(metadata))
        datas.append(pickled(rng, metadata))
    bad = read = 0
    with tempfile.TemporaryDirectory() as folder:
        for i, (got, why) in enumerate(dump(program, write(folder, datas))):
            if normalised(got) != wanted[i]:
                bad += 1
                print(f"case {i} of seed {seed}: {why or 'read as something else'}")
                if got:
                    for key in got:
                        if got[key] != wanted[i][key]:
                            print(f"  {key}: {got[key]!r:.500}\n  wanted {wanted[i][key]!r:.500}")
        small = [d for d in datas if len(d) < 4000]
        hurt = [damaged(rng, rng.choice(small)) for _ in range(20 * cases)]
        for i, (got, _) in enumerate(dump(program, write(folder, hurt))):
            if got is None:
                continue
            read += 1
            try:
                theirs = meaning(Careful(io.BytesIO(hurt[i])).load())
            except Exception as e:
                theirs = repr(e)
            if NOT_KNOWN in theirs or '"unknown"' in json.dumps(got):
                continue
            if "unhashable" in theirs and "TypeError" in theirs:
                continue  # a key in an attribute that Hearth skips
            if normalised(got) != theirs:
                bad += 1
                print(f"damaged {i} of seed {seed}: {got!r:.1500}\n  Python: {theirs!r:.1500}")
    print(f"{cases} cases, {len(hurt)} damaged of which {read} were read, {bad} differ")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
