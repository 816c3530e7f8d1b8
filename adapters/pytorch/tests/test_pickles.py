# SPDX-License-Identifier: Apache-2.0
"""`.metadata` and items: what is good is read right, what is hostile is refused, nothing is run."""

from __future__ import annotations

import gc
import io
import json
import os
import pickle
import random
import re
import resource
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import metadata as dcp

from hearth_checkpoint.errors import HearthCorrupt, HearthError
from hearth_checkpoint.torch import _pickles
from hearth_checkpoint.torch._metadata import Spoiled
from hearth_checkpoint.torch._pickles import PickleRefused, decode_item, encode_item, load_metadata

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("HEARTH_TEST_DATA", HERE.parents[2] / "tests" / "data"))
SAMPLES = sorted([*(DATA / "metadata").glob("*.metadata"),
                  *(DATA / "metadata" / "standin").glob("*.pkl")])
HOSTILE = [line.split("\t") for line in
           (DATA / "hostile" / "index.tsv").read_text().splitlines()[1:]]


def _entry(name, entry):
    if type(entry) is dcp.BytesStorageMetadata:
        return {"fqn": name, "type": "bytes"}
    if isinstance(entry, Spoiled):
        return {"fqn": name, "type": "unknown"}
    p = entry.properties
    return {
        "fqn": name, "type": "tensor", "dtype": str(p.dtype)[6:], "size": list(entry.size),
        "layout": str(p.layout)[6:], "requires_grad": p.requires_grad,
        "memory_format": str(p.memory_format)[6:], "pin_memory": p.pin_memory,
        "chunks": [{"offsets": list(c.offsets), "sizes": list(c.sizes)} for c in entry.chunks]}


def _place(index, info):
    transforms = info.__dict__.get("transform_descriptors")
    return {
        "fqn": index.fqn, "offset": None if index.offset is None else list(index.offset),
        "index": index.index, "relative_path": info.relative_path, "file_offset": info.offset,
        "length": info.length, "transform_descriptors": None if transforms is None
        else list(transforms)}


def _meta(meta):
    if meta is None:
        return None
    ident = meta.checkpoint_id
    if ident is not None:
        kind = "str" if isinstance(ident, str) else type(ident).__name__
        ident = {"type": kind, "value": str(ident)}
    modules = {"modules": meta.modules} if hasattr(meta, "modules") else {}
    return {"checkpoint_id": ident, "save_id": meta.save_id, "load_id": meta.load_id, **modules}


def _as_json(md):
    """A Metadata as the lists beside the samples write it."""
    return {
        "version": getattr(md, "version", None), "attributes": list(vars(md)),
        "storage_meta": _meta(md.storage_meta),
        "state_dict_metadata": [_entry(*e) for e in md.state_dict_metadata.items()],
        "planner_data": None if md.planner_data is None else [
            {"fqn": n, "path": list(p)} for n, p in md.planner_data.items()],
        "storage_data": None if md.storage_data is None else [
            _place(*e) for e in md.storage_data.items()]}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_every_sample_decodes_to_the_list_beside_it(path):
    expected = json.loads(path.with_suffix(".json").read_text())
    got = _as_json(load_metadata(path.read_bytes()))
    unknown = set()
    for entry in expected["state_dict_metadata"]:
        if entry["type"] == "unknown":
            unknown.add(entry["fqn"])
            del entry["module"], entry["name"]
    for paths in (expected["planner_data"], got["planner_data"]) if unknown else ():
        paths[:] = [p for p in paths if p["fqn"] not in unknown]
    for field, value in got.items():
        assert value == expected[field], field


def test_megatrons_attribute_is_kept():
    sample = DATA / "metadata" / "edit_mcore.metadata"
    expected = json.loads(sample.with_suffix(".json").read_text())["mcore_data"]
    got = load_metadata(sample.read_bytes()).mcore_data
    assert json.loads(json.dumps(got)) == expected


def test_what_is_not_known_spoils_its_own_entry_alone():
    """Asking for it names the entry and the class; the others load."""
    md = load_metadata((DATA / "metadata" / "edit_later_dtype.metadata").read_bytes())
    assert md.state_dict_metadata["w"].properties.dtype == torch.bfloat16
    assert md.state_dict_metadata["w"].chunks[0].sizes == torch.Size([4])
    with pytest.raises(HearthError, match=r"'q' cannot .* torch\.float3_e1m1fn"):
        md.state_dict_metadata["q"].chunks
    with pytest.raises(HearthError, match=r"'q' cannot .* torch\.float3_e1m1fn"):
        md.state_dict_metadata["q"].size


def test_a_memory_format_that_is_not_known_spoils_its_own_entry_alone(tmp_path, monkeypatch):
    """It is a number, so no class of the pickle is unknown."""
    monkeypatch.setattr(dcp._MEM_FORMAT_ENCODING, "__reduce_ex__",  # in Python 3.11 it is a name
                        lambda self, _protocol: (type(self), (self.value,)))
    torch.distributed.checkpoint.save(
        {"q": torch.ones(2), "n": 1}, checkpoint_id=tmp_path, no_dist=True)
    data = (tmp_path / ".metadata").read_bytes()
    changed = re.sub(rb"(?s)(_MEM_FORMAT_ENCODING.{0,9}?)K\0", rb"\1Kc", data, count=1)
    assert changed != data
    md = load_metadata(changed)
    assert type(md.state_dict_metadata["n"]) is dcp.BytesStorageMetadata
    with pytest.raises(HearthError, match="'q' cannot .* torch.memory_format 99"):
        md.state_dict_metadata["q"].size


def test_a_load_that_asks_for_what_is_not_known_says_what(tmp_path, monkeypatch):
    """Through DCP itself; and the others are loaded."""
    folder = tmp_path / "ckpt"
    state = {"q": torch.ones(2), "w": torch.arange(4.0)}
    torch.distributed.checkpoint.save(state, checkpoint_id=folder, no_dist=True)
    data = (folder / ".metadata").read_bytes()
    md = pickle.loads(data)
    md.state_dict_metadata["q"].properties.dtype = later = _Later()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "float3_e1m1fn", later, raising=False)
        (folder / ".metadata").write_bytes(pickle.dumps(md, 4))

    class Ours(torch.distributed.checkpoint.FileSystemReader):
        def read_metadata(self):
            return load_metadata((folder / ".metadata").read_bytes())

    target = {"w": torch.zeros(4)}
    torch.distributed.checkpoint.load(target, storage_reader=Ours(folder), no_dist=True)
    assert torch.equal(target["w"], state["w"])
    for wanted in ({"q": torch.zeros(2)}, {"q": 1}):
        with pytest.raises(BaseException, match=r"q.*float3_e1m1fn"):
            torch.distributed.checkpoint.load(wanted, storage_reader=Ours(folder), no_dist=True)


class _Later:
    """Pickled as a dtype of torch that there is none of."""

    __module__ = "torch"

    def __reduce__(self):
        return "float3_e1m1fn"


def test_samples_are_there():
    assert len(SAMPLES) > 80 and len(HOSTILE) > 300


@pytest.mark.parametrize(
    "name,verdict", [(r[0], r[3]) for r in HOSTILE if r[1] in ("metadata", "both")])
def test_hostile_metadata(name, verdict):
    """Refused where it must be, read where it must be; one or the other else."""
    data = (DATA / "hostile" / name).read_bytes()
    if verdict == "refuse":
        with pytest.raises(PickleRefused):
            load_metadata(data)
    elif verdict.startswith("ok"):
        assert type(load_metadata(data)) is dcp.Metadata
    else:
        try:
            assert type(load_metadata(data)) is dcp.Metadata
        except PickleRefused:
            pass


def test_every_prefix_is_refused():
    data = (DATA / "hostile" / "m_ok_plain.pkl").read_bytes()
    for length in range(len(data)):
        with pytest.raises(PickleRefused):
            load_metadata(data[:length])


def test_the_error_is_of_both_kinds():
    with pytest.raises(PickleRefused) as caught:
        load_metadata((DATA / "hostile" / "m_utf8_invalid.pkl").read_bytes())
    assert isinstance(caught.value, pickle.UnpicklingError)
    assert isinstance(caught.value, HearthCorrupt)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is type(caught.value) and str(copy) == str(caught.value)


def test_a_class_is_never_given_a_state():
    """BUILD with slots on the class itself would change the class for the whole process."""
    good = (DATA / "hostile" / "m_ok_plain.pkl").read_bytes()
    build = pickle.dumps(dcp.Metadata, 4)[:-1] + b"N}\x8c\x07versionK\x07s\x86b."
    with pytest.raises(PickleRefused):
        load_metadata(build)
    assert getattr(dcp.Metadata, "version", None) is None  # torch 2.8 has no such field
    assert type(load_metadata(good)) is dcp.Metadata


def test_a_number_in_the_memo_asks_for_no_memory():
    """LONG_BINPUT 2^32-1 makes Python's own C unpickler ask for 64 GiB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        load_metadata(b"\x80\x04Nr\xff\xff\xff\xff.")
    except PickleRefused:
        pass
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


def test_the_collector_is_as_it_was():
    data = (DATA / "hostile" / "m_ok_plain.pkl").read_bytes()
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            load_metadata(data)
            with pytest.raises(PickleRefused):
                load_metadata(data[:-1])
            assert gc.isenabled() is enabled
        finally:
            gc.enable()


def test_flipped_bytes_never_do_more_than_raise():
    data = (DATA / "hostile" / "m_ok_plain.pkl").read_bytes()
    rng = random.Random(7)
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            assert type(load_metadata(bytes(damaged))) is dcp.Metadata
        except PickleRefused:
            pass


# ---- items ------------------------------------------------------------------------------------

ATOMS = [None, True, False, 0, 1, -1, 255, 256, 2**31, -2**40, 2**100, 0.0, -0.0, 1e-8, 0.9,
         float("inf"), "", "lr", "p1 r c i", "gr\u00fcn \U0001f600", b"", b"\x00\xff", b"abc",
         (), (0.9, 0.999), [], [1, [2, (3,)]], {}, {"a": {"b": [None, 1.5]}, 3: (True,)},
         ["x"] * 300, list(range(1000)), "c" * 5000, tuple("p%d" % i for i in range(400))]


@pytest.mark.parametrize("value", ATOMS, ids=lambda v: repr(v)[:30])
def test_an_atom_is_what_torch_save_makes_of_it(value):
    out = io.BytesIO()
    torch.save(value, out, _use_new_zipfile_serialization=False)
    data = encode_item(value)
    assert data == out.getvalue()
    decoded = decode_item(data)
    assert decoded == value and type(decoded) is type(value)
    assert torch.load(io.BytesIO(data), weights_only=False) == value


def test_nan_and_signs_survive():
    assert str(decode_item(encode_item([float("nan"), -0.0]))) == "[nan, -0.0]"


@pytest.mark.parametrize("value", [
    {1, 2}, OrderedDict(a=1), torch.float32, torch.Size([2, 3]), 1 + 2j, torch.device("cpu"),
    OrderedDict(b=[{}])], ids=repr)
def test_other_harmless_values_survive(value):
    assert decode_item(encode_item(value)) == value
    out = io.BytesIO()
    torch.save(value, out, _use_new_zipfile_serialization=False)
    assert decode_item(out.getvalue()) == value


def test_shared_and_recursive_containers():
    inner = [1]
    value = decode_item(encode_item([inner, inner]))
    assert value[0] is value[1]
    loop: list = []
    loop.append(loop)
    again = decode_item(encode_item(loop))
    assert again[0] is again


def test_tensors_and_subclasses_go_through_torch():
    class Sub(int):
        pass

    assert not _pickles.is_plain([Sub(1)]) and not _pickles.is_plain({Sub(1): 1})
    assert not _pickles.is_plain({(1,): 1}) or decode_item(encode_item({(1,): 1})) == {(1,): 1}
    tensor = torch.arange(6.0).view(2, 3)
    data = encode_item({"t": tensor, "n": 1})
    assert data[:2] == b"PK"
    assert torch.equal(decode_item(data)["t"], tensor)


class _Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("zip_form", [True, False])
def test_an_item_is_never_executed(tmp_path, zip_form):
    """DCP's own load_bytes would run it."""
    flag = tmp_path / "executed"
    out = io.BytesIO()
    torch.save({"x": _Trap(flag)}, out, _use_new_zipfile_serialization=zip_form)
    with pytest.raises(PickleRefused, match="mkdir"):
        decode_item(out.getvalue())
    assert not flag.exists()
    decode_item(out.getvalue(), trust=True)
    assert flag.exists(), "the trap is none"


@pytest.mark.parametrize("row", [r for r in HOSTILE if r[1] == "both"], ids=lambda r: r[0])
def test_hostile_pickles_in_the_plain_form(row):
    body = (DATA / "hostile" / row[0]).read_bytes()
    data = _pickles.PREFIX + body + _pickles.SUFFIX
    try:
        decode_item(data)  # data only is no harm: the deep tuple
    except PickleRefused:
        return
    assert row[0] == "a_billion.pkl"


@pytest.mark.parametrize("zip_form", [False, True])
def test_nested_keys_do_not_end_the_process(zip_form):
    """The hash of a tuple recurses without a check: torch.load ends in SIGSEGV on this."""
    body = b"\x80\x02}" + b")" + b"\x85" * 1_000_000 + b"K\x01s."
    for pickled in (body, body.replace(b"}", b"}cfoo\nbar\n0", 1)):
        with pytest.raises(PickleRefused):
            if zip_form:
                decode_item(_zip_with(pickled))
            else:
                decode_item(_pickles.PREFIX + pickled + _pickles.SUFFIX)


@pytest.mark.parametrize("form", ["plain", "global", "zip", "old"])
def test_a_key_of_shared_tuples_does_not_take_years(form):
    """Each holds the one before twice, and the hash goes through all 2^30."""
    shared = b")q\0" + b"".join(
        b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(30))
    body = b"\x80\x02}" + shared + b"K\x01s."
    if form == "zip":
        data = _zip_with(body)
    elif form == "old":
        wrote = pickle.dumps({**_pickles._WROTE, "little_endian": True, "by": "torch"}, 2)
        parts = (pickle.dumps(0x1950A86A20F9469CFC6C, 2), pickle.dumps(1001, 2), wrote)
        data = b"".join(parts) + body + _pickles.SUFFIX
    else:
        made = b"}c_codecs\nencode\n0" if form == "global" else b"}"
        data = _pickles.PREFIX + body.replace(b"}", made, 1) + _pickles.SUFFIX
    with pytest.raises(PickleRefused):
        decode_item(data)


@pytest.mark.parametrize("extra", [{}, {"long": "x" * 5000}, {"tensor": torch.zeros(2)}])
def test_keys_of_a_few_nested_tuples_are_read(extra):
    part = (0, "s")
    value = {((part, part), (2.5, ())): "this and that", torch.Size([2, 3]): 1, **extra}
    assert list(decode_item(encode_item(value))) == list(value)


def _zip_with(pickled: bytes) -> bytes:
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return out.getvalue()


def test_what_is_too_long_and_good_is_read():
    value = {"k%d" % i: [float(i)] * 10 for i in range(2000)}
    assert decode_item(encode_item(value)) == value
    class_free = OrderedDict(("k%d" % i, torch.zeros(2)) for i in range(2000))
    assert list(decode_item(encode_item(class_free))) == list(class_free)


@pytest.mark.parametrize("data", [b"", b"\0", b"PK\3\4", b"\x80\x02.", _pickles.PREFIX,
                                  _pickles.PREFIX + _pickles.SUFFIX, b"\x80\x02K\x01.x"])
def test_garbage_is_refused(data):
    with pytest.raises(PickleRefused):
        decode_item(data)


def test_two_objects_in_one_item_are_refused():
    with pytest.raises(PickleRefused):
        decode_item(_pickles.PREFIX + b"\x80\x02K\x01.\x80\x02K\x02." + _pickles.SUFFIX)


@pytest.mark.filterwarnings("ignore")
def test_flipped_items_never_do_more_than_raise():
    rng = random.Random(3)
    good = [encode_item(v) for v in ((0.9, 0.999), {"a": [1, "pr"]}, b"abc", torch.zeros(2))]
    for i in range(3000):
        damaged = bytearray(good[i % len(good)])
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            decode_item(bytes(damaged))
        except PickleRefused:
            pass


def test_nothing_is_loaded_or_started_by_the_import():
    code = ("import sys, threading, hearth_checkpoint\n"
            "assert 'torch' not in sys.modules and threading.active_count() == 1\n"
            "import hearth_checkpoint.torch._pickles as p, hearth_checkpoint._ffi as f\n"
            "assert f._library is None\n")
    env = {**os.environ, "PYTHONPATH": str(HERE.parent), "HEARTH_LIBRARY": "/nonexistent"}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, timeout=120)


@pytest.mark.parametrize("version,warns", [
    ("2.7.1", True), ("2.8.0", False), ("2.13.0+cpu", False), ("2.15.0a0+git1", False),
    ("2.16.0", True), ("3.0", True)])
def test_a_torch_that_nobody_tested_is_warned_of_once(version, warns, monkeypatch, caplog):
    import hearth_checkpoint.torch

    monkeypatch.setattr(torch, "__version__", version)
    hearth_checkpoint.torch._warn()
    said = [record.getMessage() for record in caplog.records]
    assert [version in text and "2.15" in text for text in said] == [True] * warns
