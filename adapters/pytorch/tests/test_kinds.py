# SPDX-License-Identifier: Apache-2.0
"""The kinds of values that training states hold: each comes back without trust, or the error names
its class and says trust=True. And each kind made to do harm is refused."""

from __future__ import annotations

import argparse
import datetime
import decimal
import enum
import fractions
import functools
import io
import math
import pathlib
import pickle
import random
import resource
import time
import types
import uuid
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple

import numpy
import pytest
import torch
import torch.distributed.checkpoint as dcp

import hearth_checkpoint.torch as ht
from hearth_checkpoint.torch import HearthWriter
from hearth_checkpoint.torch._places import Places
from hearth_checkpoint.torch._pickles import (
    PREFIX,
    SUFFIX,
    GlobalRefused,
    PickleRefused,
    decode_item,
    encode_item,
    judge_item,
)
from hearth_checkpoint.torch._unpickle import Strict, Table


class Color(enum.Enum):
    RED = 1


class Config:
    def __init__(self):
        self.lr = 0.1

    def __eq__(self, other):
        return vars(self) == vars(other)


Point = namedtuple("Point", "x y")


def _scheduler():
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    return torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5, 5]).state_dict()


def _optimizer():
    weight = torch.nn.Parameter(torch.ones(2, 3))
    optimizer = torch.optim.AdamW([weight])
    weight.grad = torch.ones(2, 3)
    optimizer.step()
    return optimizer.state_dict()


UTC = datetime.timezone.utc
HARMLESS = {
    "none": None, "int": -(2**70), "float": math.pi, "text": "gr\u00fcn", "bytes": b"\0\xff",
    "tuple": (1, (2,)), "list": [1, [2]], "dict": {"a": {3: (4,)}, 1.5: 2, (1, "x"): 3},
    "bytearray": bytearray(b"ab\xff"), "bytearray_empty": bytearray(), "complex": 1 - 2j,
    "range": range(3, 9, 2), "slice": slice(1, None, 2), "set": {1, "a", (2, 3)},
    "frozenset": frozenset({1, frozenset({2})}), "ellipsis": ...,
    "ordered": OrderedDict(b=1, a=[2]), "defaultdict": defaultdict(list, {1: [2]}),
    "defaultdict_int": defaultdict(int, a=1), "defaultdict_set": defaultdict(set, a={1}),
    "defaultdict_none": defaultdict(None, a=1), "counter": Counter("aab"),
    "deque": deque([1, 2]), "deque_bounded": deque([1, 2], 5),
    "path": pathlib.Path("/a/b c"), "pure_path": pathlib.PurePosixPath("a"),
    "windows_path": pathlib.PureWindowsPath("C:/a"),
    "datetime": datetime.datetime(2026, 1, 2, 3, 4, 5, 678),
    "datetime_utc": datetime.datetime(2026, 1, 2, tzinfo=UTC), "date": datetime.date(2026, 1, 2),
    "time": datetime.time(1, 2, 3), "timedelta": datetime.timedelta(1, 2, 3),
    "timezone": datetime.timezone(datetime.timedelta(hours=2), "there"),
    "decimal": decimal.Decimal("-1.50E+3"), "decimal_nan": [decimal.Decimal("Infinity")],
    "fraction": fractions.Fraction(-1, 3), "uuid": uuid.uuid4(), "uuid1": uuid.uuid1(),
    "namespace": argparse.Namespace(lr=0.1, layers=[1, 2]),
    "simple_namespace": types.SimpleNamespace(a=1, b={"c": 2}),
    "size": torch.Size([2, 3]), "dtype": torch.bfloat16, "device": torch.device("cpu"),
    "device_cuda": torch.device("cuda", 1), "layout": torch.sparse_coo,
    "numpy_float": numpy.float64(1.5), "numpy_float32": numpy.float32(1.5),
    "numpy_int": numpy.int64(-3), "numpy_bool": numpy.bool_(True), "numpy_str": numpy.str_("ab"),
    "numpy_complex": numpy.complex64(1 + 2j), "numpy_bytes": numpy.bytes_(b"ab"),
    "numpy_datetime": numpy.datetime64("2026-01-02T03:04", "ns"),
    "numpy_timedelta": numpy.timedelta64(5, "s"), "numpy_dtype": numpy.dtype("<f4"),
    "numpy_dtype_big": numpy.dtype(">f4"), "random_state": random.Random(3).getstate(),
    "pcg64_state": numpy.random.default_rng(3).bit_generator.state,
    "scheduler": _scheduler(), "mixed": {"step": 3, "best": numpy.float64(0.1), "when":
                                         datetime.date(2026, 1, 2), "out": pathlib.Path("x")},
}
ARRAYS = {
    "numpy_array": numpy.arange(6.0).reshape(2, 3), "numpy_empty": numpy.zeros((0, 3)),
    "numpy_scalar_array": numpy.array(2.5), "numpy_fortran": numpy.asfortranarray(
        numpy.arange(6).reshape(2, 3)), "numpy_of_times": numpy.array(["2026-01-02"], "M8[D]"),
    "numpy_text": numpy.array(["a", "bcd"]), "numpy_uint8": numpy.arange(256, dtype=numpy.uint8),
    "numpy_strided": numpy.arange(10)[::2],
    "numpy_random_state": numpy.random.RandomState(3).get_state(),
    "tensor": torch.arange(6.0).view(2, 3), "tensor_bf16": torch.ones(2, dtype=torch.bfloat16),
    "tensor_scalar": torch.tensor(3), "tensor_empty": torch.zeros(0, 4),
    "tensor_view": torch.arange(12.0).view(3, 4).t()[1:], "tensor_expanded":
    torch.ones(1).expand(5), "tensor_bool": torch.tensor([True, False]),
    "tensor_conj": torch.tensor([1 + 2j]).conj(), "tensor_neg": torch.tensor([1 + 2j]).conj().imag,
    "torch_rng": torch.get_rng_state(), "optimizer": _optimizer(),
    "module": torch.nn.Linear(2, 3).state_dict(),
    "parameter": torch.nn.Parameter(torch.ones(2)), "sparse": torch.eye(3).to_sparse(),
    "csr": torch.eye(3).to_sparse_csr(), "meta": torch.empty(2, 3, device="meta"),
    "tensors": [torch.ones(2), {"a": torch.zeros(1)}],
}
class Written(enum.Enum):
    """As Python 3.11.2 (Debian 12) writes an Enum."""

    RED = 1

    def __reduce_ex__(self, proto):
        return getattr, (type(self), self.name)


TRUST = {
    "enum_by_getattr": (Written.RED, "Written"), "enum_inside": ([1, {"a": Written.RED}], "Written"),
    "enum_key_by_getattr": ({Written.RED: 1}, "Written"), "getattr": ([getattr], "getattr"),
    "bound": ("x".upper, "getattr"),
    "enum": (Color.RED, "Color"), "namedtuple": (Point(1, 2), "Point"), "object": (Config(), "Config"),
    "function": (functools.partial(max, 1), "partial"), "class": (int, "int"),
    "class_inside": ({"a": [(1, float)]}, "float"), "generator": (numpy.random.default_rng(3), "ctor"),
    "numpy_object": (numpy.array([None, 1]), "O8"),
    "numpy_record": (numpy.zeros(2, dtype=[("a", "i4")]), "V4"),
    "simple_type": (types.SimpleNamespace(a=Config()), "Config"),
    "defaultdict_of_own": (defaultdict(Config), "Config"), "key": ({Color.RED: 1}, "Color"),
}


def _forms(value):
    """As torch.save writes it, in all its forms, and as Hearth does."""
    yield encode_item(value)
    for how in ({}, {"_use_new_zipfile_serialization": False}, {"pickle_protocol": 4},
                {"pickle_protocol": 5, "_use_new_zipfile_serialization": False}):
        out = io.BytesIO()
        torch.save(value, out, **how)
        yield out.getvalue()


def _equal(a, b):
    if isinstance(a, torch.Tensor):
        assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
        assert a.layout == b.layout and a.is_conj() == b.is_conj() and a.is_neg() == b.is_neg()
        return a.is_meta or torch.equal(a.to_dense() if a.layout != torch.strided else a,
                                        b.to_dense() if b.layout != torch.strided else b)
    if isinstance(a, numpy.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and (a == b).all()
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(
            _equal(a[key], b[key]) for key in a)
    if type(a) in (list, tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(_equal, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("name", [*HARMLESS, *ARRAYS])
@pytest.mark.filterwarnings("ignore")
def test_a_harmless_kind_comes_back_without_trust(name):
    value = {**HARMLESS, **ARRAYS}[name]
    for data in _forms(value):
        assert judge_item(data) is None
        assert _equal(value, decode_item(data)), data[:4]
        assert _equal(value, decode_item(data, trust=True))
    for data in _forms({"deep": [value, value]}):
        assert _equal(value, decode_item(data)["deep"][1])


@pytest.mark.parametrize("name", ["deque_bounded", "counter", "defaultdict", "numpy_dtype_big"])
def test_what_does_not_show_in_a_comparison_comes_back_too(name):
    value = decode_item(encode_item(HARMLESS[name]))
    if name == "deque_bounded":
        assert value.maxlen == 5
    elif name == "counter":
        assert value["none"] == 0
    elif name == "defaultdict":
        assert value["none"] == []
    else:
        assert value.byteorder == ">" and numpy.dtype("f4").byteorder == "="


def test_streams_come_back_with_their_place():
    stream = io.BytesIO(b"abc")
    stream.seek(1)
    assert decode_item(encode_item({"a": stream}))["a"].read() == b"bc"
    text = io.StringIO("xyz")
    text.seek(2)
    assert decode_item(encode_item(text)).read() == "z"


@pytest.mark.parametrize("name", TRUST)
def test_a_kind_of_the_users_own_needs_trust_and_the_error_says_so(name):
    value, said = TRUST[name]
    for data in _forms(value):
        with pytest.raises(PickleRefused, match=rf"(?s){said}.*trust=True"):
            decode_item(data)
        verdict = judge_item(data)
        assert isinstance(verdict, GlobalRefused) and said in str(verdict)
        assert decode_item(data, trust=True) is not None


def test_there_are_more_than_forty_kinds():
    assert len(HARMLESS) + len(ARRAYS) + len(TRUST) > 80


def test_what_is_damaged_is_refused_for_ever():
    verdict = judge_item(encode_item({"a": torch.ones(3)})[:-5])
    assert isinstance(verdict, PickleRefused) and not isinstance(verdict, GlobalRefused)


def test_a_class_that_the_user_allowed_is_made():
    data = encode_item({"c": Config(), "p": Point(1, 2)})
    with torch.serialization.safe_globals([Config, Point]):
        value = decode_item(data)
        assert judge_item(data) is None
    assert value == {"c": Config(), "p": Point(1, 2)}
    assert isinstance(judge_item(data), GlobalRefused)


# ---- the same kinds, meant to do harm ---------------------------------------------------------


def _call(module, name, args):
    """What calls module.name(*args)."""
    return (b"\x80\x02c" + module.encode() + b"\n" + name.encode() + b"\n"
            + pickle.dumps(args, 2)[2:-1] + b"R.")


def _built(module, name, state, how=b")\x81"):
    return (b"\x80\x02c" + module.encode() + b"\n" + name.encode() + b"\n" + how
            + pickle.dumps(state, 2)[2:-1] + b"b.")


HUGE = 10**12
_LONG = b"\x8b" + (20000).to_bytes(4, "little") + b"\x7f" * 20000
BAD = {
    "bytearray_of_a_number": _call("__builtin__", "bytearray", (HUGE,)),
    "bytearray_of_numbers": _call("__builtin__", "bytearray", ([1, 2],)),
    "bytes_of_a_number": _call("__builtin__", "bytes", (HUGE,)),
    "bytearray8": b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"x.",
    "list_of_a_range": b"\x80\x02c__builtin__\nlist\nc__builtin__\nxrange\n"
                       + pickle.dumps((HUGE,), 2)[2:-1] + b"R\x85R.",
    "set_of_a_range": b"\x80\x02c__builtin__\nset\nc__builtin__\nxrange\n"
                      + pickle.dumps((HUGE,), 2)[2:-1] + b"R\x85R.",
    "deque_of_a_range": b"\x80\x02ccollections\ndeque\nc__builtin__\nxrange\n"
                        + pickle.dumps((HUGE,), 2)[2:-1] + b"R\x85R.",
    "counter_of_text": _call("collections", "Counter", ("aab",)),
    "deque_of_text": _call("collections", "deque", ("aab",)),
    "deque_negative": _call("collections", "deque", ((), -1)),
    "int_of_text": _call("__builtin__", "int", ("9" * 4000,)),
    "complex_of_text": _call("__builtin__", "complex", ("1",)),
    "range_of_text": _call("__builtin__", "xrange", ("1",)),
    "range_step_0": _call("__builtin__", "xrange", (1, 2, 0)),
    "slice_of_text": _call("__builtin__", "slice", ("a",)),
    "decimal_of_words": _call("decimal", "Decimal", ("x" * 10,)),
    "decimal_too_long": _call("decimal", "Decimal", ("9" * (1 << 20),)),
    "decimal_of_a_tuple": _call("decimal", "Decimal", ((0, (1, 2), 3),)),
    "fraction_exponent": _call("fractions", "Fraction", ("1e999999999",)),
    "fraction_long": b"\x80\x02cfractions\nFraction\n" + _LONG + b"K\x03\x86R.",
    "fraction_0": _call("fractions", "Fraction", (1, 0)),
    "uuid_long": _built("uuid", "UUID", {"int": 1 << 128}),
    "uuid_more": _built("uuid", "UUID", {"int": 1, "x": 2}),
    "path_of_a_number": _call("pathlib", "PosixPath", (3,)),
    "path_subclass": _call("pathlib", "Path.home", ()),
    "datetime_short": _call("datetime", "datetime", (b"\7\xea",)),
    "datetime_month_13": _call("datetime", "datetime", (b"\x07\xea\x0d\1\1\1\1\0\0\0",)),
    "datetime_zone": _call("datetime", "datetime", (b"\x07\xea\1\1\1\1\1\0\0\0", "UTC")),
    "timedelta_huge": _call("datetime", "timedelta", (10**10,)),
    "timezone_of_a_day": b"\x80\x02cdatetime\ntimezone\ncdatetime\ntimedelta\nK\x05\x85R\x85R.",
    "bytes_io_far": _built("_io", "BytesIO", (b"", HUGE, None)),
    "bytes_io_dict": _built("_io", "BytesIO", (b"", 0, {"read": 1})),
    "bytes_io_arguments": b"\x80\x02c_io\nBytesIO\n(X\1\0\0\0at\x81.",
    "string_io_far": _built("_io", "StringIO", ("", "\n", HUGE, None)),
    "namespace_class": _built("argparse", "Namespace", {"__class__": 1}),
    "namespace_slots": _built("argparse", "Namespace", ({}, {"__class__": 1})),
    "ordered_state": _built("collections", "OrderedDict", {"__class__": 1}, b")R"),
    "factory_called": b"\x80\x02c__builtin__\nlist\n)R.",
    "factory_unknown": b"\x80\x02ccollections\ndefaultdict\nc_codecs\nencode\n\x85R.",
    "dtype_object": _call("numpy", "dtype", ("O8", False, True)),
    "dtype_huge": _call("numpy", "dtype", ("V" + "9" * 9, False, True)),
    "dtype_of_a_list": _call("numpy", "dtype", ([("a", "i4")], False, True)),
    "dtype_size": b"\x80\x02cnumpy\ndtype\n" + pickle.dumps(("U2",), 2)[2:-1] + b"R" + pickle.dumps(
        (3, "<", None, None, None, 1 << 30, 4, 8), 2)[2:-1] + b"b.",
    "array_short": _call("numpy.core.numeric", "_frombuffer", (b"", "f8", (HUGE,), "C")),
    "array_of_a_subclass": _call("numpy.core.multiarray", "_reconstruct", (1, (HUGE,), b"b")),
    "array_shape": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
                   + pickle.dumps((HUGE,), 2)[2:-1] + b"U\1b\x87R.",
    "ndarray_called": b"\x80\x02cnumpy\nndarray\n" + pickle.dumps(((HUGE,),), 2)[2:-1] + b"R.",
    "scalar_short": b"\x80\x02cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n"
                    + pickle.dumps(("f8",), 2)[2:-1] + b"RU\1x\x86R.",
    "tensor_of_a_number": _call("torch", "FloatTensor", (HUGE,)),
    "tensor_class": _call("torch", "Tensor", (HUGE,)),
    "storage_of_a_number": _call("torch", "UntypedStorage", (HUGE,)),
    "storage_class": _call("torch", "FloatStorage", (HUGE,)),
    "size_of_a_list": _call("torch", "Size", ([1],)),
    "device_of_nothing": _call("torch", "device", ("no such",)),
    "meta_grad": _call("torch._utils", "_rebuild_meta_tensor_no_storage", (1, (2,), (1,), False)),
    "sparse": _call("torch._utils", "_rebuild_sparse_tensor", (1, (1, 2, (HUGE,)))),
    "system": _call("posix", "system", ("true",)),
    "append_to_bytes_io": b"\x80\x02c_io\nBytesIO\n)\x81K\x01a.",
    "extend_bytearray": b"\x80\x02c__builtin__\nbytearray\n)R(K\x01e.",
    "item_of_a_path": b"\x80\x02cpathlib\nPosixPath\n)RK\x01K\x02s.",
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("form", ["plain", "zip"])
@pytest.mark.filterwarnings("ignore")
def test_a_harmless_kind_that_is_meant_to_do_harm_is_refused(name, form):
    from test_pickles import _zip_with

    data = _zip_with(BAD[name]) if form == "zip" else PREFIX + BAD[name] + SUFFIX
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(PickleRefused):
        decode_item(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB
    assert judge_item(data) is not None


def _colliding(kind, count):
    """Different keys of one hash: Python's is the rest by 2^61 - 1, and tuples are made of it."""
    prime = 2**61 - 1
    if kind == "int":
        return [1 + i * prime for i in range(count)]
    if kind == "tuple":
        return [tuple(-1 - (i >> bit & 1) for bit in range(16)) for i in range(count)]
    if kind == "fraction":
        return [fractions.Fraction(1 + i * prime) for i in range(count)]
    if kind == "nested":
        return [((1 + i * prime,), "x") for i in range(count)]
    return [decimal.Decimal(1 + i * prime) for i in range(count)]


@pytest.mark.parametrize("kind", ["int", "tuple", "fraction", "nested", "decimal"])
@pytest.mark.parametrize("over", ["dict", "set", "frozenset", "ordered", "lists"])
def test_keys_of_one_hash_do_not_take_the_square_of_their_number(kind, over):
    keys = _colliding(kind, 20000 if over == "lists" else 300)
    if over == "lists":
        value = [{key: 1} for key in keys[:50]]
        assert decode_item(encode_item(value)) == value
        body = pickle.dumps(keys, 2)[:-1].replace(b"]", b"c__builtin__\nset\n]", 1) + b"\x85R."
        began = time.monotonic()
        with pytest.raises(PickleRefused, match="one hash"):
            decode_item(PREFIX + body + SUFFIX)
        assert time.monotonic() - began < 20
        return
    value = {"dict": dict.fromkeys, "set": set, "frozenset": frozenset,
             "ordered": OrderedDict.fromkeys}[over](keys)
    for data in (encode_item(value), PREFIX + pickle.dumps(value, 4) + SUFFIX):
        with pytest.raises(PickleRefused, match="one hash"):
            decode_item(data)


def _stream(kind, content, at):
    made = kind(content)
    made.seek(at)
    return made


STREAMS = {"bytes_io": _stream(io.BytesIO, b"hello", 2), "bytes_io_empty": io.BytesIO(),
           "string_io": _stream(io.StringIO, "h\u00e4llo", 3), "string_io_empty": io.StringIO()}
NOT_KEPT = frozenset({"sparse", "csr", "meta"})  # where a planner makes tensors of them


@pytest.mark.parametrize("how", ["save", "async_save"])
@pytest.mark.filterwarnings("ignore")
def test_each_kind_is_saved_by_dcp_and_loaded_without_trust(base, how):
    """At the top of a state, where DCP asks each value whether it is Stateful, and nested."""
    kinds = {**HARMLESS, **ARRAYS, **STREAMS}
    state = {"nested": {}, "inside": {}}
    for name, value in kinds.items():
        if name in NOT_KEPT:
            continue
        state["inside"][name] = (value, 1)
        if _has_texts_for_keys(value):
            state[name] = value
            state["nested"][name] = {"x": [value]}
    done = getattr(dcp, how)(state, checkpoint_id=f"{base}/1", storage_writer=HearthWriter(base),
                             no_dist=True)
    if how == "async_save":
        done.result()
    into = {"nested": {}, "inside": {}}
    for name in state["inside"]:
        into["inside"][name] = None
        if name in state:
            into[name] = _asked(kinds[name])
            into["nested"][name] = {"x": [_asked(kinds[name])]}
    ht.load(into, checkpoint_id=f"{base}/1", no_dist=True)
    for name, (there, _) in into["inside"].items():
        assert _is_as_saved(kinds[name], there), (name, there)
        if name in state:
            for there in (into[name], into["nested"][name]["x"][0]):
                assert _is_as_saved(kinds[name], there), (name, there)
    assert len(state) > 70


def _has_texts_for_keys(value):
    """DCP has a path of texts for each value of a dict."""
    if isinstance(value, dict):
        return all(type(key) is str and _has_texts_for_keys(part) for key, part in value.items())
    return type(value) is not list or all(map(_has_texts_for_keys, value))


def _asked(value):
    """What a state has in the place of a value that is to be loaded."""
    if isinstance(value, torch.Tensor):
        return torch.zeros(value.shape, dtype=value.dtype)
    if isinstance(value, dict):
        return {key: _asked(part) for key, part in value.items()}
    if type(value) is list:
        return [_asked(part) for part in value]
    return None


def _is_as_saved(value, there):
    if isinstance(value, (io.BytesIO, io.StringIO)):
        return type(there) is type(value) and (there.getvalue(), there.tell()) == (
            value.getvalue(), value.tell())
    if isinstance(value, torch.Tensor):
        return torch.equal(value.detach().resolve_conj().resolve_neg(),
                           there.detach().resolve_conj().resolve_neg())
    if isinstance(value, dict):  # a dict where DCP has taken it apart
        return type(there) in (dict, type(value)) and list(value) == list(there) and all(
            map(_is_as_saved, value.values(), there.values()))
    if type(value) in (list, tuple):
        return len(value) == len(there) and all(map(_is_as_saved, value, there))
    if isinstance(value, numpy.ndarray):
        return _equal(value, there)
    return type(value) is type(there) and value == there


# ---- keys that were chosen -----------------------------------------------------------------------


def _long_searched(bits):
    """Numbers of which Python's dict of 2^bits places looks for some of them at thousands: the
    first lie where a search without more of the hash goes on to, the others come into that row."""
    mask = (1 << bits) - 1
    row = [1]
    while len(row) < (1 << bits) // 3:
        row.append((5 * row[-1] + 1) & mask)
    place = numpy.full(1 << bits, len(row))
    place[row] = numpy.arange(len(row))
    keys = numpy.arange(1 << bits, 1 << (bits + 6))
    at, more, taken = keys & mask, keys, numpy.ones(len(keys), dtype=bool)
    while more.any():
        taken &= place[at] < len(row)
        more = more >> 5
        at = (5 * at + more + 1) & mask
    return row + keys[taken & (place[at] < len(row) // 4)].tolist()


_MANY = 17000  # which is more than are not looked at
NATURAL = {
    "counted": range(_MANY), "every_64th": range(0, 64 * _MANY, 64),
    "shifted_20": [i << 20 for i in range(_MANY)], "shifted_45": [i << 45 for i in range(_MANY)],
    "random": [random.Random(i).getrandbits(63) for i in range(_MANY)],
    "texts": [f"layer.{i}" for i in range(_MANY)],
    "of_all_kinds": [*range(6000), *map(str, range(6000)), *(i + 0.5 for i in range(6000))],
}


@pytest.mark.parametrize("name", NATURAL)
def test_keys_that_nobody_has_chosen_come_back(name):
    for value in (dict.fromkeys(NATURAL[name]), set(NATURAL[name])):
        assert decode_item(encode_item(value)) == value


@pytest.mark.parametrize("form", ["batches", "one by one", "at once"])
def test_keys_that_a_dict_would_look_long_for_are_refused(form):
    """Twice as many take a dict four times as long."""
    keys = _long_searched(16)
    assert len(keys) > 25000
    if form == "batches":
        body = b"\x80\x02}" + b"".join(
            b"(" + b"".join(pickle.dumps(key, 2)[2:-1] + b"N" for key in keys[at:at + 1000]) + b"u"
            for at in range(0, len(keys), 1000)) + b"."
    elif form == "one by one":
        body = b"\x80\x02}" + b"".join(pickle.dumps(key, 2)[2:-1] + b"Ns" for key in keys) + b"."
    else:
        body = b"\x80\x02}(" + b"".join(pickle.dumps(key, 2)[2:-1] + b"N" for key in keys) + b"u."
    with pytest.raises(PickleRefused, match="looks each"):
        decode_item(PREFIX + body + SUFFIX)


def test_what_a_pickle_remembers_is_not_looked_long_for():
    """It chooses the numbers for that."""
    keys = _long_searched(16)
    body = b"\x80\x02N" + b"".join(b"r" + key.to_bytes(4, "little") for key in keys) + b"."
    decoder = Strict(io.BytesIO(body), Table({}))
    assert decoder.load() is None
    assert decoder.memo[keys[-1]] is None and len(decoder.memo) == len(keys)
    with pytest.raises(ValueError, match="looks each"):
        Places(False).add(keys)
    Places(False).add(decoder.memo)
