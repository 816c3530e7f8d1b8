# SPDX-License-Identifier: Apache-2.0
"""Unpicklers with a table of names: nothing is looked up, nothing else can be called.

Python's C unpickler can be made to ask for 64 GiB by ten bytes (a number in the memo), and any
unpickler to end the process: the hash of a tuple recurses, so a million of nested tuples as a key
exhaust the stack. Sixty that hold the one before twice keep it busy for years, with no way to stop
it, and so do keys of one hash, or of hashes that lead a dict from one to the other. Fast is for
bytes that were proved or are small; Strict for all others.
"""

from __future__ import annotations

import gc
import io
import pickle
import re
import secrets
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any, NamedTuple

from ..errors import HearthCorrupt
from ._places import FEW, Places


class PickleRefused(HearthCorrupt, pickle.UnpicklingError):
    """A pickle that is damaged, or holds what it must not; the text says where and what."""


class GlobalRefused(PickleRefused):
    """A pickle that names a class or function which is not in the table; the text names it."""


class Table(NamedTuple):
    """What a pickle may name, and what may be done with it.

    names   (module, name): a function, which may be called; or a value, which may only stand
    new     the names that a pickle makes objects of without arguments, with their makers
    states  how an object of a class takes its state: (object, state) -> None. It checks it.
    keys    classes of values that may be keys, their hashes being quick
    called  classes that are called, and take state and items, as they like: the user allowed them
    hashing the functions that hash what is in their first argument
    """

    names: Mapping[tuple[str, str], Any]
    new: Mapping[Any, Callable[..., Any]] = {}
    states: Mapping[type, Callable[[Any, Any], Any]] = {}
    keys: frozenset = frozenset()
    called: frozenset = frozenset()
    hashing: frozenset = frozenset()


def _look_up(table: Table, module: str, name: str) -> Any:
    try:
        return table.names[module, name]
    except (KeyError, TypeError):
        raise GlobalRefused(
            f"{module}.{name} is not among what is decoded without running it; trust=True "
            "unpickles it"[:600]) from None


_GETATTR = frozenset({("builtins", "getattr"), ("__builtin__", "getattr")})


def _no_getattr(*args: Any) -> Any:
    return None


class Fast(pickle.Unpickler):
    """Python's C unpickler with a table of names."""

    def __init__(self, file: io.BytesIO, table: Table) -> None:
        super().__init__(file)
        self._table = table

    def find_class(self, module: str, name: str) -> Any:
        return _look_up(self._table, module, name)


# What writers use. No EXT*, INST, OBJ, buffers, or numbers as text.
_OPCODES = (b"\x80\x95\x94hjqr\x8c\x8dXTU\x93c)\x85\x86\x87(t]ae}su\x8f\x90\x91\x81\x92RbN\x88\x89"
            b"KMJ\x8a\x8bG.BC\x8e\x96Q")
_python = pickle._Unpickler  # type: ignore[attr-defined]
_ATOMS = frozenset({str, int, float, bool, bytes, complex, type(None), frozenset})
_LISTS = frozenset({list, deque})
_DICTS = frozenset({dict, OrderedDict, defaultdict, Counter})
_HIDDEN = frozenset({str, bytes})  # hashed with Python's secret: nobody can choose their hashes
_PARTS = 1000  # of all tuples in a key, counted wherever they are held again
_ALIKE = 64  # different keys of one hash; floats and integers of one hash are a few dozen

# Opcodes that make a tuple, take something again, and hash. It takes all three to share parts.
_TUPLE, _AGAIN = re.compile(rb"[t\x85\x86\x87]"), re.compile(rb"[2ghj]")
_HASH = re.compile(rb"[su\x90\x91]")


def may_share(data: bytes) -> bool:
    """Whether a key in a pickle may hold tuples again and again. Text has such bytes, too."""
    return bool(_TUPLE.search(data) and _AGAIN.search(data) and _HASH.search(data))


def is_flat(key: Any, leaves: frozenset = _ATOMS) -> bool:
    """Whether the hash of `key` takes neither much stack nor much time."""
    todo, parts = [key], 0
    while todo:
        part = todo.pop()
        if not isinstance(part, tuple) or type(part) in leaves:
            if type(part) not in leaves:
                return False
        elif part and leaves.issuperset(map(type, part)):
            parts += 1
        else:
            parts += 1 + len(part)
            todo.extend(part if parts <= _PARTS else ())
        if parts > _PARTS:
            return False
    return True


class _Keys:
    """Keys that were seen, by hash: whoever chooses numbers can choose any number of one hash, and
    then each is compared with all others. Hashes of text cannot be chosen."""

    def __init__(self) -> None:
        self._seen: dict[str, list] = {}  # by the hash as text, whose own hash cannot be chosen

    def add(self, key: Any) -> None:
        kind = type(key)
        if kind in _HIDDEN or (kind is int and -1 < key < 1 << 60):
            return
        alike = self._seen.setdefault(str(hash(key)), [])
        if any(known is key or known == key for known in alike):
            return
        if len(alike) >= _ALIKE:
            raise PickleRefused(f"more than {_ALIKE} different keys have one hash")
        alike.append(key)


class _Memo(dict):
    """What a pickle remembers, by numbers that it may choose: they are changed by some that nobody
    knows."""

    _secret = secrets.randbits(60)

    def __setitem__(self, index: int, value: Any) -> None:
        super().__setitem__(index ^ self._secret, value)

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index ^ self._secret)


class Strict(_python):
    """Python's own unpickler with a table of names and the opcodes that writers really use. Its
    memo is a dict and keys are flat, so neither memory nor stack can be asked for; only functions
    of the table are called, and a state is taken by what the table says."""

    dispatch = {op: _python.dispatch[op] for op in _OPCODES}

    def __init__(self, file: Any, table: Table) -> None:
        super().__init__(file)
        self.memo = _Memo()
        self._table, self._keys = table, _Keys()
        self._places: dict[int, tuple[Any, Places]] = {}  # by id of a large dict or set, held here
        self._refused: GlobalRefused | None = None
        self._leaves = _ATOMS | table.keys

    def find_class(self, module: str, name: str) -> Any:
        """Python 3.11 up to 3.11.3 writes an Enum as getattr(its class, its name): what follows is
        named first, and the class is what the user knows."""
        try:
            return _look_up(self._table, module, name)
        except GlobalRefused as refused:
            if (module, name) not in _GETATTR:
                raise
            self._refused = refused
            return _no_getattr

    def load(self) -> Any:
        value = super().load()
        frame = self._unframer.current_frame
        if frame is not None and frame.read(1):
            raise PickleRefused("something follows the end")
        if self._refused:
            raise self._refused
        return value

    def check_keys(self, keys: Any) -> None:
        """They may be hashed, and be found again."""
        for key in keys:
            if type(key) is str:
                continue
            if not is_flat(key, self._leaves):
                raise PickleRefused(f"a key is a {type(key).__name__}")
            self._keys.add(key)

    def check_places(self, keys: Any, owner: Any, is_set: bool) -> None:
        """They are found again in a time that does not grow with their number. owner: what they
        are put into; None: a new one."""
        known = self._places.get(id(owner)) if owner is not None else None
        there = owner if isinstance(owner, (dict, set)) else ()
        if known is None:
            if len(keys) + len(there) < FEW or _HIDDEN.issuperset(map(type, keys)):
                return
            known = owner, Places(is_set)
            known[1].add(there)
            if owner is not None:
                self._places[id(owner)] = known
        known[1].add(keys)

    def _below(self, kinds: frozenset, depth: int, what: str) -> None:
        """What lies under the topmost `depth` values takes them."""
        if len(self.stack) <= depth or not self.takes(self.stack[-1 - depth], kinds):
            raise PickleRefused(f"there is no {what} below")

    def takes(self, owner: Any, kinds: frozenset) -> bool:
        """Whether values may be added to it."""
        return type(owner) in kinds or type(owner) in self._table.called

    def load_append(self) -> None:
        self._below(_LISTS, 1, "list")
        super().load_append()

    def load_appends(self) -> None:
        if not self.metastack or not self.metastack[-1] or not self.takes(
                self.metastack[-1][-1], _LISTS):
            raise PickleRefused("there is no list below")
        super().load_appends()

    def load_setitem(self) -> None:
        self._below(_DICTS, 2, "dict")
        self.check_keys(self.stack[-2:-1])
        self.check_places(self.stack[-2:-1], self.stack[-3], False)
        super().load_setitem()

    def load_setitems(self) -> None:
        if not self.metastack or not self.metastack[-1] or not self.takes(
                self.metastack[-1][-1], _DICTS):
            raise PickleRefused("there is no dict below")
        self.check_keys(self.stack[::2])
        self.check_places(self.stack[::2], self.metastack[-1][-1], False)
        super().load_setitems()

    def load_additems(self) -> None:
        if not self.metastack or not self.metastack[-1] or type(self.metastack[-1][-1]) is not set:
            raise PickleRefused("there is no set below")
        self.check_keys(self.stack)
        self.check_places(self.stack, self.metastack[-1][-1], True)
        super().load_additems()

    def load_frozenset(self) -> None:
        self.check_keys(self.stack)
        self.check_places(self.stack, None, True)
        super().load_frozenset()

    def load_bytearray8(self) -> None:
        """Python would allocate before it reads."""
        size = int.from_bytes(self.read(8), "little")
        self.append(bytearray(self.read(size)))

    def load_newobj(self) -> None:
        args = self.stack.pop()
        self._new(self.stack.pop(), args, {})

    def load_newobj_ex(self) -> None:
        kwargs, args = self.stack.pop(), self.stack.pop()
        self._new(self.stack.pop(), args, kwargs)

    def _new(self, kind: Any, args: Any, kwargs: Any) -> None:
        if type(args) is not tuple or type(kwargs) is not dict:
            raise PickleRefused("a new object of no arguments")
        self.append(self.make(kind, args, kwargs))

    def make(self, kind: Any, args: tuple, kwargs: dict) -> Any:
        """A new object of a class."""
        if isinstance(kind, type) and kind in self._table.called:
            return kind.__new__(kind, *args, **kwargs)
        try:
            maker = self._table.new[kind]
        except (KeyError, TypeError):
            raise PickleRefused(f"a new object of what is a {type(kind).__name__}") from None
        if args or kwargs:
            raise PickleRefused(f"a new {getattr(kind, '__name__', kind)} with arguments")
        return maker()

    def load_reduce(self) -> None:
        args = self.stack.pop()
        func = self.stack[-1]
        if type(args) is not tuple:
            raise PickleRefused("a call without arguments")
        self.stack[-1] = self.call(func, args)

    def call(self, func: Any, args: tuple) -> Any:
        """What a function of the table makes."""
        if type(func) is not FunctionType and not (
                isinstance(func, type) and func in self._table.called):
            raise PickleRefused(f"a call of what is a {type(func).__name__}")
        if args and func in self._table.hashing and type(args[0]) is list:
            self.check_keys(args[0])
            self.check_places(args[0], None, True)
        return func(*args)

    def load_build(self) -> None:
        state = self.stack.pop()
        self.take_state(self.stack[-1], state)

    def take_state(self, owner: Any, state: Any) -> None:
        """Give it to a new object, never to a class or function."""
        kind = type(owner)
        take = self._table.states.get(kind)
        if take is not None:
            take(owner, state)
        elif kind in self._table.called:
            self.stack.append(state)
            super().load_build()
        else:
            raise PickleRefused(f"a {kind.__name__} is given a state")

    dispatch[ord("a")] = load_append
    dispatch[ord("e")] = load_appends
    dispatch[ord("s")] = load_setitem
    dispatch[ord("u")] = load_setitems
    dispatch[0x81] = load_newobj
    dispatch[0x92] = load_newobj_ex
    dispatch[0x90] = load_additems
    dispatch[0x91] = load_frozenset
    dispatch[0x96] = load_bytearray8
    dispatch[ord("R")] = load_reduce
    dispatch[ord("b")] = load_build


def attributes(owner: Any, state: Any) -> None:
    """An object's state that is a dict of its attributes; none is of Python's own."""
    if state is None:
        return
    if type(state) is not dict or not all(
            type(name) is str and not name.startswith("__") for name in state):
        raise PickleRefused(f"a {type(owner).__name__} is given a state that is no dict of names")
    vars(owner).update(state)


class Anything:
    """Stands for every object that a pickle could make; takes what it is given, and drops it."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    append = extend = __setitem__ = update = __init__


class _Everything(dict):
    def __missing__(self, name: tuple[str, str]) -> Any:
        return _anything


def _anything(*_args: Any) -> Anything:
    return Anything()


class Shape(Strict):
    """Goes through a pickle without making anything of it but what is known; names: of what lies
    beside it."""

    dispatch = dict(Strict.dispatch)

    def __init__(self, file: Any, known: Mapping[tuple[str, str], Any]) -> None:
        kinds = {Anything, FunctionType, *map(type, known.values())}
        super().__init__(file, Table(_Everything(known), keys=frozenset(kinds)))
        self.names: list[Any] = []

    def persistent_load(self, name: Any) -> Any:
        """Remember which storages there are."""
        self.names.append(name)
        return Anything()

    def takes(self, owner: Any, kinds: frozenset) -> bool:
        return type(owner) is Anything or super().takes(owner, kinds)

    def make(self, kind: Any, args: tuple, kwargs: dict) -> Any:
        return Anything()

    def call(self, func: Any, args: tuple) -> Any:
        return Anything()

    def take_state(self, owner: Any, state: Any) -> None:
        pass


@contextmanager
def gc_paused() -> Iterator[None]:
    """The collector would walk millions of new objects again and again: 9 µs a chunk."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def unpickle(kind: Callable[[io.BytesIO], Any], data: Any, what: str) -> Any:
    """All of `data` as one object. Raises PickleRefused."""
    file = io.BytesIO(data)
    try:
        value = kind(file).load()
    except GlobalRefused as error:
        raise GlobalRefused(f"{what}: byte {file.tell()}: {error}") from None
    except Exception as error:  # whatever odd bytes make Python raise
        name = "" if isinstance(error, PickleRefused) else f"{type(error).__name__}: "
        raise PickleRefused(f"{what}: byte {file.tell()}: {name}{error}"[:500]) from None
    if file.tell() != len(data):
        raise PickleRefused(f"{what}: byte {file.tell()}: something follows the end")
    return value
