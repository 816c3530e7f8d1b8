# SPDX-License-Identifier: Apache-2.0
"""What torch.save wrote, taken apart: the object's pickle, and the bytes of its storages.

    zip      <top>/data.pkl, <top>/data/<key>, <top>/byteorder, <top>/version
    older    pickle of a magic number | of 1001 | of sys_info | the object | list of keys |
             for each key: u64 elements, and their bytes

A zip is read by its central directory. Its members must lie one behind the other; no member may
stand twice, lie in another one, or lie elsewhere than its local header has it. So every reader of
the file finds the same bytes.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from ._tensors import check_storage, storage_names
from ._unpickle import PickleRefused, Shape, Strict, Table

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
_LOCAL, _CENTRAL, _END, _LOCATOR, _END64 = 30, 46, 22, 20, 56
_FLAGS = 0x0808  # sizes behind the data, names in UTF-8
_ONES = 0xFFFFFFFF
_NOTHING = Table({})


class Form(NamedTuple):
    """pickle  of the object: begin and end in the data
    storages   key -> (begin, length)
    little     numbers are in little-endian order
    """

    pickle: tuple[int, int]
    storages: dict[str, tuple[int, int]]
    little: bool


class _Member(NamedTuple):
    name: bytes
    head: int
    size: int
    numbers: tuple[int, int, int]  # checksum, stored size, size


def find(data: Any) -> Form:
    """The parts of data, bytes or a map of a file. Raises PickleRefused."""
    try:
        return _zip(data) if bytes(data[:2]) == b"PK" else _older(data)
    except PickleRefused:
        raise
    except Exception as error:  # whatever odd bytes make Python raise
        raise PickleRefused(f"{type(error).__name__}: {error}"[:500]) from None


# ---- zip --------------------------------------------------------------------------------------


def _directory(data: Any) -> tuple[int, int, int]:
    """Begin, end and entries of the central directory."""
    end = len(data) - _END
    if end < 0 or bytes(data[end:end + 4]) != b"PK\5\6":
        raise PickleRefused("a zip without its end")
    part, first, here, count, size, begin, comment = struct.unpack_from("<HHHHIIH", data, end + 4)
    if part or first or here != count or comment:
        raise PickleRefused("a zip of several parts, or with a comment")
    stop, at = end, end - _LOCATOR
    if at >= _END64 and bytes(data[at:at + 4]) == b"PK\6\7":
        stop = at - _END64
        where, parts = struct.unpack_from("<QI", data, at + 8)
        sign, length, _, _, _, _, here64, count64, size64, begin64 = struct.unpack_from(
            "<IQHHIIQQQQ", data, stop)
        if where != stop or sign != 0x06064B50 or length != _END64 - 12 or here64 != count64:
            raise PickleRefused("a zip whose second end is not where it should be")
        if (begin not in (_ONES, begin64) or size not in (_ONES, size64)
                or count not in (0xFFFF, count64)):
            raise PickleRefused("a zip whose two ends differ")
        begin, size, count = begin64, size64, count64
    if begin > stop or size != stop - begin or count > size // _CENTRAL:
        raise PickleRefused("a zip whose directory is not where its end record has it")
    return begin, stop, count


def _wide(extra: bytes, values: list[int]) -> list[int]:
    """Numbers that are all ones in an entry stand in its extra field."""
    at = 0
    while at < len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        part, at = extra[at + 4:at + 4 + size], at + 4 + size
        if len(part) != size:
            raise PickleRefused("a zip's extra field is cut off")
        for i in range(3 if kind == 1 else 0):
            if values[i] == _ONES:
                values[i] = struct.unpack_from("<Q", part)[0]
                part = part[8:]
    return values


def _entry(data: Any, at: int, stop: int) -> tuple[_Member, int]:
    """An entry of the central directory, and where the next one begins."""
    if stop - at < _CENTRAL:
        raise PickleRefused("an entry of a zip is cut off")
    (sign, _, _, flags, method, _, crc, stored, size, name, extra, comment, disk, _, _,
     head) = struct.unpack_from("<IHHHHIIIIHHHHHII", data, at)
    total = _CENTRAL + name + extra + comment
    if sign != 0x02014B50 or stop - at < total:
        raise PickleRefused("an entry of a zip is none, or is cut off")
    text = bytes(data[at + _CENTRAL:at + _CENTRAL + name])
    if flags & ~_FLAGS or method or disk:
        raise PickleRefused(f"{text[:100]!r} is compressed, encrypted or in another file")
    field = bytes(data[at + _CENTRAL + name:at + _CENTRAL + name + extra])
    whole, packed, head = _wide(field, [size, stored, head])
    if whole != packed:
        raise PickleRefused(f"{text[:100]!r} has two lengths")
    return _Member(text, head, whole, (crc, stored, size)), at + total


def _place(data: Any, member: _Member, stop: int) -> int:
    """Where a member's bytes begin, behind a local header that says the same of it."""
    if member.head > stop or stop - member.head < _LOCAL:
        raise PickleRefused(f"{member.name[:100]!r} lies outside, or in another member")
    sign, _, flags, method, _, *numbers, name, extra = struct.unpack_from(
        "<IHHHIIIIHH", data, member.head)
    begin = member.head + _LOCAL + name + extra
    if (sign != 0x04034B50 or flags & ~_FLAGS or method or any(
            n not in (0, _ONES, other) for n, other in zip(numbers, member.numbers))
            or bytes(data[member.head + _LOCAL:member.head + _LOCAL + name]) != member.name):
        raise PickleRefused(f"{member.name[:100]!r} has a local header of something else")
    if begin > stop or member.size > stop - begin:
        raise PickleRefused(f"{member.name[:100]!r} reaches into what follows it")
    return begin


def _zip(data: Any) -> Form:
    at, stop, count = _directory(data)
    first, members = at, []
    for _ in range(count):
        member, at = _entry(data, at, stop)
        members.append(member)
    if at != stop or not members:
        raise PickleRefused("a zip whose directory holds something else, or nothing")
    if len({member.name.lower() for member in members}) != len(members):
        raise PickleRefused("a zip with two members of one name")
    top = members[0].name.partition(b"/")[0] + b"/"
    members.sort(key=lambda member: member.head)
    places: dict[bytes, tuple[int, int]] = {}
    for i, member in enumerate(members):
        until = members[i + 1].head if i + 1 < len(members) else first
        if not member.name.startswith(top):
            raise PickleRefused("a zip with members in two folders: torch.save did not write it")
        places[member.name[len(top):]] = _place(data, member, until), member.size
    if b"data.pkl" not in places:
        raise PickleRefused("no data.pkl: this is no file of torch.save")
    begin, size = places[b"data.pkl"]
    order, length = places.get(b"byteorder", (0, 0))
    storages = {name[5:].decode("ascii", "replace"): place for name, place in places.items()
                if name.startswith(b"data/")}
    return Form((begin, begin + size), storages,
                b"byteorder" not in places or bytes(data[order:order + length]) == b"little")


# ---- older ------------------------------------------------------------------------------------


class _Part:
    """The data from a place on, for an unpickler: nothing is copied but what it reads."""

    def __init__(self, data: Any, at: int) -> None:
        self.data, self.at = data, at

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes."""
        part = bytes(self.data[self.at:self.at + size]) if size >= 0 else b""
        self.at += len(part)
        return part

    def readline(self, _size: Any = -1) -> bytes:
        """Names are short."""
        part = bytes(self.data[self.at:self.at + 1000])
        line = part[:part.index(b"\n") + 1]
        self.at += len(line)
        return line


def _next(data: Any, at: int) -> tuple[Any, int]:
    """A pickle of what was written around the object."""
    part = _Part(data, at)
    return Strict(part, _NOTHING).load(), part.at


def _older(data: Any) -> Form:
    magic, at = _next(data, 0)
    version, at = _next(data, at)
    wrote, at = _next(data, at)
    if magic != MAGIC or version != VERSION or type(wrote) is not dict:
        raise PickleRefused("neither a zip nor the older form of torch.save")
    shape = Shape(part := _Part(data, at), {
        (module, name): dtype for module in ("torch", "torch.storage")
        for name, dtype in storage_names()})
    shape.load()
    begin, end = at, part.at
    keys, at = _next(data, end)
    if type(keys) is not list or not all(type(key) is str for key in keys):
        raise PickleRefused("no list of storages' names")
    widths: dict[str, int] = {}
    for name in shape.names:
        dtype, key, _, _ = check_storage(name)
        widths.setdefault(key, dtype.itemsize)
    storages = {}
    for key in keys:
        if len(data) - at < 8 or key in storages:
            raise PickleRefused("storages are cut off, or one comes twice")
        size = struct.unpack_from("<Q", data, at)[0] * widths[key]
        if size > len(data) - at - 8:
            raise PickleRefused(f"storage {key[:50]!r} is cut off")
        storages[key] = at + 8, size
        at += 8 + size
    if at != len(data):
        raise PickleRefused("something follows the last storage")
    return Form((begin, end), storages, wrote.get("little_endian") is not False)

