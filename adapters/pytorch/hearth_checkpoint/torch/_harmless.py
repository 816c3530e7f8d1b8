# SPDX-License-Identifier: Apache-2.0
"""Values of Python and numpy that training states hold, made of checked arguments.

A class is here if an object of it holds nothing but data, and making one takes no more memory and
time than the bytes that spell it. Each maker looks at type and size of what it is given; what is
not as the class's own pickling writes it is refused.
"""

from __future__ import annotations

import io
import re
import uuid
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from types import FunctionType, SimpleNamespace
from typing import Any

from ._unpickle import GlobalRefused, PickleRefused, Table, attributes

_BITS = 1 << 16  # of a fraction's numbers: what is done with them takes their square
_DIGITS = 1 << 14
_DECIMAL = re.compile(r"[+-]?(\d*\.?\d*([Ee][+-]?\d{1,18})?|Infinity|s?NaN\d*)", re.ASCII)
_RATIO = re.compile(r"-?\d+(/\d+)?", re.ASCII)


def exact(value: Any, kind: type, what: str) -> Any:
    """The value, which is of this class and no other."""
    if type(value) is not kind:
        raise TypeError(f"{what} is made of a {type(value).__name__}")
    return value


# ---- built in ---------------------------------------------------------------------------------


def _no_bytes() -> bytes:
    return b""


def _encode(text: Any, encoding: Any) -> bytes:
    """As protocol 2 spells bytes."""
    if encoding != "latin1":
        raise TypeError("_codecs.encode is not allowed but with latin1")
    return exact(text, str, "bytes").encode("latin1")


def _bytearray(*args: Any) -> bytearray:
    if len(args) == 2 and args[1] in ("latin-1", "latin1"):
        return bytearray(exact(args[0], str, "a bytearray").encode("latin1"))
    if len(args) == 1:
        return bytearray(exact(args[0], bytes, "a bytearray"))
    if args:
        raise TypeError("a bytearray is not made of these")
    return bytearray()


def _set(items: Any) -> set:
    return set(exact(items, list, "a set"))


def _frozenset(items: Any) -> frozenset:
    return frozenset(exact(items, list, "a frozenset"))


def _complex(real: Any, imag: Any) -> complex:
    return complex(exact(real, float, "a complex"), exact(imag, float, "a complex"))


def _range(*args: Any) -> range:
    return range(*[exact(arg, int, "a range") for arg in args])


def _slice(*args: Any) -> slice:
    for arg in args:
        if arg is not None:
            exact(arg, int, "a slice")
    return slice(*args)


class _Type:
    """A class by its name alone: to make a new object of, or for a defaultdict. It is no value."""

    def __init__(self, kind: type) -> None:
        self.kind = kind


# ---- collections ------------------------------------------------------------------------------


def _ordered() -> OrderedDict:
    """Its items follow one by one."""
    return OrderedDict()


def _counter(*args: Any) -> Counter:
    return Counter(*[exact(arg, dict, "a Counter") for arg in args[:1]])


def _deque(items: Any = (), most: Any = None) -> deque:
    if type(items) not in (list, tuple):
        raise TypeError(f"a deque is made of a {type(items).__name__}")
    if most is not None:
        exact(most, int, "a deque's length")
    return deque(items, most)


def _defaultdict(make: Any = None) -> defaultdict:
    if make is None:
        return defaultdict()
    kind = make.kind if type(make) is _Type else _FACTORIES.get(make)
    if kind is None:
        raise GlobalRefused("a defaultdict that makes what is not known here; trust=True unpickles "
                            "it")
    return defaultdict(kind)


_FACTORIES: dict[Any, type] = {_set: set, _ordered: OrderedDict, _no_bytes: bytes,
                               _bytearray: bytearray, _counter: Counter, _deque: deque}


# ---- time, numbers, paths, and what holds text ------------------------------------------------


def _of_bytes(kind: type, size: int) -> Callable[..., Any]:
    """date, time and datetime spell themselves in bytes, and check them."""

    def make(data: Any, zone: Any = None) -> Any:
        if len(exact(data, bytes, f"a {kind.__name__}")) != size:
            raise ValueError(f"a {kind.__name__} of {len(data)} bytes")
        if zone is None:
            return kind(data)
        return kind(data, exact(zone, timezone, f"the zone of a {kind.__name__}"))

    return make


def _timedelta(*args: Any) -> timedelta:
    return timedelta(*[exact(arg, int, "a timedelta") for arg in args])


def _timezone(offset: Any, *name: Any) -> timezone:
    exact(offset, timedelta, "a timezone")
    return timezone(offset, *[exact(part, str, "a timezone's name") for part in name])


def _decimal(text: Any) -> Decimal:
    if len(exact(text, str, "a Decimal")) > _DIGITS or not _DECIMAL.fullmatch(text):
        raise ValueError("a Decimal that is no number")
    return Decimal(text)


def _fraction(*args: Any) -> Fraction:
    if len(args) == 1:  # before Python 3.12
        if len(exact(args[0], str, "a Fraction")) > 4000 or not _RATIO.fullmatch(args[0]):
            raise ValueError("a Fraction that is no number")
        return Fraction(args[0])
    for arg in args:
        if exact(arg, int, "a Fraction").bit_length() > _BITS:
            raise ValueError("a Fraction of numbers that are too long")
    return Fraction(*args)


def _uuid() -> uuid.UUID:
    return uuid.UUID.__new__(uuid.UUID)


def _uuid_state(owner: uuid.UUID, state: Any) -> None:
    exact(state, dict, "a UUID")
    if not {"int"} <= set(state) <= {"int", "is_safe"} or not (
            0 <= exact(state["int"], int, "a UUID") < 1 << 128):
        raise ValueError("a UUID that is none")
    safe = state.get("is_safe")
    owner.__setstate__({"int": state["int"]} if safe is None else  # type: ignore[attr-defined]
                       {"int": state["int"], "is_safe": exact(safe, int, "a UUID")})


def path_maker(kind: type) -> Callable[..., Any]:
    """Of pathlib: of its parts, or from Python 3.13 on of one text."""

    def make(*parts: Any) -> Any:
        return kind(*[exact(part, str, "a path") for part in parts])

    return make


def _no_attributes(state: Any) -> bool:
    """The empty dict is there where anybody has asked for an attribute, as DCP does of each
    value."""
    return state is None or (type(state) is dict and not state)


def _bytes_io(owner: io.BytesIO, state: Any) -> None:
    data, at, more = exact(state, tuple, "a BytesIO")
    exact(data, bytes, "a BytesIO")
    if not _no_attributes(more) or not 0 <= exact(at, int, "a BytesIO's place") <= len(data):
        raise ValueError("a BytesIO with more than its bytes")
    owner.__setstate__((data, at, None))  # type: ignore[attr-defined]


def _string_io(owner: io.StringIO, state: Any) -> None:
    text, newline, at, more = exact(state, tuple, "a StringIO")
    exact(text, str, "a StringIO")
    if not _no_attributes(more) or newline not in (None, "", "\n", "\r", "\r\n") or not (
            0 <= exact(at, int, "a StringIO's place") <= len(text)):
        raise ValueError("a StringIO with more than its text")
    owner.__setstate__((text, newline, at, None))  # type: ignore[attr-defined]


def _simple() -> SimpleNamespace:
    return SimpleNamespace()


# ---- numpy ------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[biufc]\d{1,2}|[SU]\d{1,9}|[mM]8", re.ASCII)
_UNITS = frozenset({b"Y", b"M", b"W", b"D", b"h", b"m", b"s", b"ms", b"us", b"ns", b"ps", b"fs",
                    b"as", b"generic"})


class _Numpy:
    """Makers of numpy's arrays, scalars and dtypes, of numbers and text alone."""

    def __init__(self, numpy: Any) -> None:
        self.np = numpy
        self.dtypes = frozenset(type(numpy.dtype(c)) for c in "?bhilqBHILQefdgFDGSUmM")
        self.scalars = frozenset(numpy.dtype(c).type for c in "?bhilqBHILQefdgFDGSUmM")

    def names(self) -> dict[tuple[str, str], Any]:
        """What its pickles name, of numpy 1 and of numpy 2."""

        def dtype(text: Any, align: Any = False, copy: Any = True) -> Any:
            return self.dtype(text)

        def scalar(kind: Any, data: Any) -> Any:
            return self.array(data, kind, (), "C")[()]

        def empty(kind: Any, shape: Any, code: Any) -> Any:
            if kind is not array or shape != (0,) or code not in (b"b", "b"):
                raise PickleRefused("an array of a class that is not numpy.ndarray")
            return self.np.ndarray((0,), "b")

        def frombuffer(data: Any, kind: Any, shape: Any, order: Any) -> Any:
            return self.array(data, kind, shape, order)

        array = _Type(self.np.ndarray)
        names: dict[tuple[str, str], Any] = {
            ("numpy", "dtype"): dtype, ("numpy", "ndarray"): array}
        for core in ("numpy.core", "numpy._core"):
            names[core + ".multiarray", "scalar"] = scalar
            names[core + ".multiarray", "_reconstruct"] = empty
            names[core + ".numeric", "_frombuffer"] = frombuffer
        return names

    def states(self) -> dict[type, Callable[[Any, Any], Any]]:
        """How arrays and dtypes take theirs."""
        return {self.np.ndarray: self.array_state,
                **{kind: self.dtype_state for kind in self.dtypes}}

    def dtype(self, text: Any) -> Any:
        """A new one, which may be given a state."""
        if not _NUMBER.fullmatch(exact(text, str, "a numpy.dtype")):
            raise GlobalRefused(f"a numpy.dtype {text[:20]!r}; trust=True unpickles it")
        return self.np.dtype(text, copy=True)

    def dtype_state(self, owner: Any, state: Any) -> None:
        """(version, order, None, None, None, size, alignment, flags[, units])"""
        length = len(exact(state, tuple, "a numpy.dtype"))
        if length not in (8, 9) or state[1] not in ("<", ">", "|"):
            raise ValueError("a numpy.dtype with a state that is none")
        if state[2:5] != (None, None, None) or state[5] not in (-1, owner.itemsize):
            raise ValueError("a numpy.dtype with fields")
        units = self.units(state[8]) if len(state) == 9 and state[8] is not None else None
        if owner.kind in "mM":
            if units is None:
                raise ValueError("a time without units")
            owner.__setstate__((4, state[1], None, None, None, -1, -1, 0, ({}, units)))
        elif state[1] == ">":
            size = (owner.itemsize, owner.alignment) if owner.kind in "SU" else (-1, -1)
            owner.__setstate__((3, ">", None, None, None, *size, owner.flags))

    @staticmethod
    def units(state: Any) -> tuple:
        """Of a datetime64 or timedelta64."""
        _, units = exact(state, tuple, "a time's units")
        name, *numbers = exact(units, tuple, "a time's units")
        if name not in _UNITS or len(numbers) != 3 or not all(
                0 < exact(n, int, "a time's units") < 1 << 31 for n in numbers):
            raise ValueError("a time in units that are not known")
        return (name, *numbers)

    def array(self, data: Any, kind: Any, shape: Any, order: Any) -> Any:
        """An array of numbers, of as many bytes as it needs."""
        if type(kind) not in self.dtypes or order not in ("C", "F"):
            raise PickleRefused("a numpy array of what are no numbers")
        if type(data) not in (bytes, bytearray) or type(shape) is not tuple or len(shape) > 32:
            raise TypeError("a numpy array that is made of no bytes")
        size = kind.itemsize
        for dim in sorted(shape):
            if exact(dim, int, "a numpy array's shape") < 0:
                raise ValueError("a numpy array of less than nothing")
            size *= dim
        if size != len(data) or not kind.itemsize:
            raise ValueError(f"a numpy array of {size} bytes, and {len(data)} are there")
        flat = self.np.frombuffer(bytearray(data), dtype=kind) if size else self.np.empty(0, kind)
        return flat.reshape(shape, order=order)

    def array_state(self, owner: Any, state: Any) -> None:
        """(version, shape, dtype, in Fortran's order, bytes)"""
        _, shape, kind, fortran, data = exact(state, tuple, "a numpy array")
        made = self.array(data, kind, shape, "F" if fortran else "C")
        owner.__setstate__((1, made.shape, kind, bool(fortran), bytes(data)))


@lru_cache(None)
def _numpy() -> _Numpy | None:
    try:
        import numpy
    except ImportError:
        return None
    return _Numpy(numpy)


# ---- the table --------------------------------------------------------------------------------


def _builtins() -> dict[tuple[str, str], Any]:
    names: dict[tuple[str, str], Any] = {("_codecs", "encode"): _encode}
    made = {"bytes": _no_bytes, "set": _set, "frozenset": _frozenset, "complex": _complex,
            "bytearray": _bytearray, "range": _range, "xrange": _range, "slice": _slice,
            "Ellipsis": ..., "long": _Type(int), "unicode": _Type(str)}
    made.update({kind.__name__: _Type(kind) for kind in (int, float, str, list, dict, tuple, bool)})
    for module in ("__builtin__", "builtins"):
        names.update({(module, name): value for name, value in made.items()})
    return names


@lru_cache(None)
def harmless() -> Table:
    """What is neither torch's nor the user's."""
    names = {**_builtins(),
             ("collections", "OrderedDict"): _ordered,
             ("collections", "Counter"): _counter,
             ("collections", "deque"): _deque,
             ("collections", "defaultdict"): _defaultdict,
             ("datetime", "datetime"): _of_bytes(datetime, 10),
             ("datetime", "date"): _of_bytes(date, 4),
             ("datetime", "time"): _of_bytes(time, 6),
             ("datetime", "timedelta"): _timedelta,
             ("datetime", "timezone"): _timezone,
             ("decimal", "Decimal"): _decimal,
             ("fractions", "Fraction"): _fraction,
             ("uuid", "UUID"): _Type(uuid.UUID),
             ("_io", "BytesIO"): _Type(io.BytesIO),
             ("_io", "StringIO"): _Type(io.StringIO),
             ("types", "SimpleNamespace"): _simple,
             ("argparse", "Namespace"): _Type(Namespace)}
    for package in ("pathlib", "pathlib._local"):
        names[package, "PosixPath"] = path_maker(PosixPath)
        names[package, "PurePosixPath"] = path_maker(PurePosixPath)
        names[package, "WindowsPath"] = path_maker(PureWindowsPath)
        names[package, "PureWindowsPath"] = path_maker(PureWindowsPath)
    new = {names["uuid", "UUID"]: _uuid, names["_io", "BytesIO"]: io.BytesIO,
           names["_io", "StringIO"]: io.StringIO, names["argparse", "Namespace"]: Namespace}
    states: dict[type, Callable[[Any, Any], Any]] = {
        uuid.UUID: _uuid_state, io.BytesIO: _bytes_io, io.StringIO: _string_io,
        Namespace: attributes, SimpleNamespace: attributes, OrderedDict: attributes}
    keys = {date, datetime, time, timedelta, timezone, Decimal, Fraction, uuid.UUID, range,
            type(...), PosixPath, PurePosixPath, PureWindowsPath}
    np = _numpy()
    if np is not None:
        names.update(np.names())
        states.update(np.states())
        keys |= np.scalars
    return Table(names, new, states, frozenset(keys), hashing=frozenset({_set, _frozenset}))


def check_values(root: Any) -> None:
    """Functions and classes of a table are for calls: none of them has become a value."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        part = todo.pop()
        kind = type(part)
        if kind is _Type:
            raise GlobalRefused(f"the class {part.kind.__name__} as a value: trust=True unpickles "
                                "it")
        if kind is FunctionType:
            raise GlobalRefused("a function as a value: trust=True unpickles it")
        if kind not in _HOLDS and not isinstance(part, (dict, tuple)):
            continue
        if id(part) in seen:
            continue
        seen.add(id(part))
        if kind is SimpleNamespace or kind is Namespace:
            part = vars(part)
        if isinstance(part, dict):
            todo.extend(part)
            todo.extend(part.values())
        else:
            todo.extend(part)


_HOLDS = frozenset({list, deque, set, frozenset, SimpleNamespace, Namespace})
