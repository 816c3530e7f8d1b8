# SPDX-License-Identifier: Apache-2.0
"""The C interface through ctypes: structs, prototypes, and the library itself, loaded on first use.

ctypes releases the interpreter's lock for each call. Arrays of structs are packed with `struct`
into one buffer: an array of thousands costs a fraction of a microsecond an element.
"""

from __future__ import annotations

import ctypes as c
import operator
import os
import shutil
import struct
import sys
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import errors

P, I32, U32, I64, U64, SIZE, STR = (
    c.c_void_p, c.c_int32, c.c_uint32, c.c_int64, c.c_uint64, c.c_size_t, c.c_char_p)

STEP_NEWEST, STEP_LATER = 2**64 - 2, 2**64 - 1  # no steps
LEVELS = {"OFF": 1, "WRITTEN": 5, "SEALED": 10, "COPIED": 20, "COMPLETE": 30, "PROTECTED": 40}
START = {"auto": 0, "never": 10, "in_process": 20}
NETWORK = {"hostile": 0, "trusted": 10}
INTEGRITY = {"crc32c": 0, "strong": 10}
PIN = {"auto": 0, "no": 10}
LOG_FORMAT = {"text": 0, "json": 10}
WORDS = {"start": START, "network": NETWORK, "integrity": INTEGRITY, "pin": PIN,
         "log_format": LOG_FORMAT}
HOST, GPU = 0, 10  # enum hearth_memory
STREAM_LEGACY = 1  # of the driver: the default stream of a GPU, where NULL means another thing
KEEP, DROP = 0, 10
DEADLINE_MAX_MS = 86400000
TENSOR, BYTES = 10, 20

DTYPES: dict[str, int] = {
    "float64": 10, "float32": 11, "float16": 12, "bfloat16": 13, "float8_e4m3fn": 20,
    "float8_e4m3fnuz": 21, "float8_e5m2": 22, "float8_e5m2fnuz": 23, "float8_e8m0fnu": 24,
    "float4_e2m1fn_x2": 25, "complex128": 30, "complex64": 31, "complex32": 32, "int64": 40,
    "int32": 41, "int16": 42, "int8": 43, "uint64": 44, "uint32": 45, "uint16": 46, "uint8": 47,
    "bool": 48, "bits16": 60, "bits1x8": 61, "bits2x4": 62, "bits4x2": 63, "bits8": 64,
    "int1": 65, "int2": 66, "int3": 67, "int4": 68, "int5": 69, "int6": 70, "int7": 71,
    "uint1": 72, "uint2": 73, "uint3": 74, "uint4": 75, "uint5": 76, "uint6": 77, "uint7": 78,
    "qint32": 79, "qint8": 80, "quint8": 81, "quint2x4": 82, "quint4x2": 83}
DTYPE_NAMES = {number: name for name, number in DTYPES.items()}


def dtype_number(name: str) -> int:
    """As the library has it. Raises HEARTH_EUNSUPPORTED."""
    if name not in DTYPES:
        raise errors.make(-106, f"dtype {name} is not among those that this version stores")
    return DTYPES[name]


def step_number(step: int | None, none: int) -> int:
    """A step as the library takes it; None: this constant, which no number may pass for."""
    if step is None:
        return none
    if not 0 <= step < STEP_NEWEST:
        raise ValueError(f"{step} is not a step: 0 to {STEP_NEWEST - 1}")
    return step


class Error(c.Structure):
    _fields_ = [("code", c.c_int), ("native", c.c_int), ("text", c.c_char * 512)]


class Sized(c.Structure):
    """A struct whose first field is its size."""

    def __init__(self, **values) -> None:
        super().__init__(struct_size=c.sizeof(self), **values)


class Opts(Sized):
    _fields_ = [
        ("struct_size", SIZE), ("root", STR), ("job", STR), ("rank", U32), ("world", U32),
        ("node", STR), ("bootstrap", P), ("copies", U32), ("min_copies", U32), ("keep", U32),
        ("allow_degraded", U32), ("domains", P), ("domain_count", SIZE), ("object_bytes", P),
        ("object_count", SIZE), ("start", U32), ("helper", U32), ("engine", STR),
        ("transport", STR), ("provider", STR), ("bind", STR), ("device", STR), ("key_file", STR),
        ("port", U32), ("network", U32), ("any_root", U32), ("open_ms", U32),
        ("recover_ms", U32), ("save_ms", U32), ("heartbeat_ms", U32), ("dead_ms", U32),
        ("stall_ms", U32), ("linger_s", U32), ("copy_threads", U32), ("inflight_mib", U32),
        ("off", U32), ("lease_bytes", U64), ("spare_bytes", U64), ("log", P), ("log_arg", P),
        ("log_level", U32), ("allow_slower", U32), ("fabric_library", STR),
        ("ucx_library", STR), ("bad_after", U32), ("integrity", U32),
        ("machine", STR), ("lanes", U32), ("pin", U32),
        ("copy_mib_s", U32), ("engine_log", STR), ("log_format", U32)]


def rank_list(ranks: Iterable[int]) -> Any:
    """The ranks in rising order, each once. ValueError for what is no rank."""
    numbers = sorted({operator.index(rank) for rank in ranks})
    if not numbers or numbers[0] < 0 or numbers[-1] >= 1 << 32:
        raise ValueError(f"ranks {numbers}: a save is of one rank at least, counted from 0")
    return (U32 * len(numbers))(*numbers)


class BeginOpts(Sized):
    _fields_ = [("struct_size", SIZE), ("name", STR), ("wait_ms", U32), ("cancel_old", U32),
                ("ranks", P), ("rank_count", SIZE), ("stream", P)]


class RecoverOpts(Sized):
    _fields_ = [("struct_size", SIZE), ("common", P), ("common_count", SIZE),
                ("deadline_ms", U32), ("accept_loss", U32), ("save", P)]


class FindOpts(Sized):
    _fields_ = [("struct_size", SIZE), ("save", P), ("wait_ms", U32), ("reserved", U32)]


class Status(Sized):
    _fields_ = [("struct_size", SIZE), ("step", U64), ("level", U32), ("degraded", U32),
                ("code", I32), ("attempt", U32), ("bytes", U64), ("copied", U64),
                ("text", c.c_char * 256)]


class Recovery(Sized):
    _fields_ = [("struct_size", SIZE), ("step", U64), ("epoch", U64), ("now_epoch", U64),
                ("degraded", U32), ("beyond", U32), ("join_ms", U32), ("inventory_ms", U32),
                ("plan_ms", U32), ("pull_ms", U32), ("verify_ms", U32), ("vote_ms", U32),
                ("pulled_bytes", U64), ("sources", U32), ("text", c.c_char * 256),
                ("passed", U32), ("reserved", U32)]


class SaveId(c.Structure):
    _fields_ = [("epoch", U64), ("nonce", U64), ("step", U64), ("attempt", U32), ("reserved", U32)]


class Kept(Sized):
    _fields_ = [("struct_size", SIZE), ("id", SaveId), ("since_ms", U64), ("level", U32),
                ("degraded", U32), ("confirmed", U32), ("copies", U32), ("pinned", U32),
                ("bad", U32)]


class Item(Sized):
    _fields_ = [("struct_size", SIZE), ("key", P), ("key_len", SIZE), ("object", STR),
                ("owner", U32), ("kind", U32), ("dtype", U32), ("ndim", U32),
                ("shape", c.POINTER(I64)), ("global_shape", c.POINTER(I64)),
                ("global_offset", c.POINTER(I64)), ("offset", U64), ("bytes", U64),
                ("local", U32), ("checkpoint", U32), ("handle", U64)]


class View(Sized):
    _fields_ = [("struct_size", SIZE), ("data", P), ("bytes", U64), ("map", P), ("map_bytes", U64),
                ("lease", U64)]


class Place(c.Structure):
    _fields_ = [("offset", U64), ("length", U64)]


class Ticket(c.Structure):
    _fields_ = [("bytes", c.c_ubyte * 512)]


ALLGATHER = c.CFUNCTYPE(c.c_int, P, P, SIZE, P, c.POINTER(Error))


class Bootstrap(Sized):
    _fields_ = [("struct_size", SIZE), ("allgather", ALLGATHER), ("close", P), ("self", P)]


# Arrays of structs as one packed buffer: struct hearth_piece, _bytes, _box, _range.
PIECE = struct.Struct("@NPNPIIIIPPPP")
_PIECE_DATA = 3  # which of its words is `data`
BYTE_ITEM = struct.Struct("@NPNPN")
BOX = struct.Struct("@NPQIIPPPPII")
RANGE = struct.Struct("@NPQQP")

_PROTOTYPES = {
    "hearth_version": (STR, []),
    "hearth_open": (c.c_int, [P, P, P]),
    "hearth_close": (None, [P, c.c_int]),
    "hearth_recover": (c.c_int, [P, P, P, P]),
    "hearth_opts_from_env": (c.c_int, [P, P]),
    "hearth_log_poll": (c.c_int, [P, P, P, SIZE]),
    "hearth_save_begin": (c.c_int, [P, U64, U64, P, P, P]),
    "hearth_save_bytes": (U64, [P, SIZE, P, SIZE]),
    "hearth_save_add": (c.c_int, [P, P, SIZE, P]),
    "hearth_save_stage": (c.c_int, [P, P, SIZE, P, P]),
    "hearth_save_add_bytes": (c.c_int, [P, P, SIZE, P]),
    "hearth_save_set_step": (c.c_int, [P, U64, P]),
    "hearth_save_places": (c.c_int, [P, P, SIZE, P, P]),
    "hearth_save_data": (c.c_int, [P, P, P, P]),
    "hearth_save_put_common": (c.c_int, [P, STR, P, SIZE, P]),
    "hearth_save_next_object": (c.c_int, [P, STR, U64, P]),
    "hearth_save_fence": (c.c_int, [P, P, P]),
    "hearth_save_seal": (c.c_int, [P, P]),
    "hearth_save_commit": (c.c_int, [P, P, P]),
    "hearth_save_abort": (None, [P]),
    "hearth_save_give": (c.c_int, [P, P, P]),
    "hearth_save_take": (c.c_int, [P, P, P, P]),
    "hearth_wait": (c.c_int, [P, c.c_int, U32, P]),
    "hearth_test": (c.c_int, [P, P, P]),
    "hearth_cancel": (c.c_int, [P, P]),
    "hearth_handle_close": (None, [P]),
    "hearth_checkpoint_find": (c.c_int, [P, U64, P, P, P]),
    "hearth_checkpoint_info": (c.c_int, [P, P, P]),
    "hearth_checkpoint_close": (None, [P]),
    "hearth_keep_list": (c.c_int, [P, P, SIZE, P, P]),
    "hearth_keep_pin": (c.c_int, [P, P, P]),
    "hearth_keep_unpin": (c.c_int, [P, P, P]),
    "hearth_keep_release": (c.c_int, [P, P, P]),
    "hearth_keep_mark_bad": (c.c_int, [P, P, P]),
    "hearth_keep_unmark_bad": (c.c_int, [P, P, P]),
    "hearth_item_at": (c.c_int, [P, c.c_int, SIZE, P, P]),
    "hearth_item_in": (c.c_int, [P, STR, U64, P, P]),
    "hearth_read_boxes": (c.c_int, [P, P, SIZE, P]),
    "hearth_read_ranges": (c.c_int, [P, P, SIZE, P]),
    "hearth_prefetch_boxes": (c.c_int, [P, P, SIZE, P]),
    "hearth_read_common": (c.c_int, [P, STR, P, P, P]),
    "hearth_free": (None, [P]),
    "hearth_metadata_open": (c.c_int, [STR, SIZE, P, P]),
    "hearth_metadata_info": (c.c_int, [P, P, P]),
    "hearth_metadata_close": (None, [P]),
    "hearth_view_open": (c.c_int, [P, P, P, P]),
    "hearth_view_close": (None, [P, P]),
    "hearth_bootstrap_tcp_from_env": (c.c_int, [U32, P, P, P, P]),
    "hearth_bootstrap_close": (None, [P]),
}

_lock = threading.Lock()
_library: c.CDLL | None = None


def _candidates() -> Iterator[str]:
    """Where the library may be, best first: as told, in the wheel, beside the package, in the
    source tree it is used from, where Python or hearthd are installed, and where the system
    looks."""
    told = os.environ.get("HEARTH_LIBRARY")
    if told:
        yield told
        return
    here = Path(__file__).resolve().parent
    yield str(here / "_native" / "lib" / "libhearth.so.0.1")
    yield str(here / "libhearth.so.0.1")
    if len(here.parents) > 2:
        for build in sorted((here.parents[2] / "build").glob("*/lib/libhearth.so.0.1"),
                            key=lambda path: (path.parts[-3] != "release", path.parts[-3])):
            yield str(build)
    daemon = shutil.which("hearthd")
    prefixes = [Path(sys.prefix)]
    if daemon:
        prefixes.append(Path(daemon).resolve().parent.parent)
    for prefix in prefixes:
        yield str(prefix / "lib" / "libhearth.so.0.1")
        yield from map(str, sorted(prefix.glob("lib*/libhearth.so.0.1")))
        yield from map(str, sorted(prefix.glob("lib/*-linux-gnu*/libhearth.so.0.1")))
    yield "libhearth.so.0.1"


def library() -> c.CDLL:
    """The library, loaded on first use. Raises HearthLibraryMissing."""
    global _library
    if _library is not None:  # without the lock: a fork may leave it held by nobody
        return _library
    with _lock:
        if _library is None:
            _library = _load()
        return _library


def _load() -> c.CDLL:
    tried: list[str] = []
    for path in dict.fromkeys(_candidates()):
        if os.sep in path and not os.path.exists(path):
            tried.append(path)
            continue
        try:
            lib = c.CDLL(path)
        except OSError as error:
            tried.append(f"{path} ({error})")
            continue
        lacks = _declare(lib)
        if not lacks:
            return lib
        tried.append(f"{path} (it has no {lacks}, and so is older than this package)")
    raise errors.HearthLibraryMissing(
        "no libhearth.so.0.1 that this package can use was found: install Hearth (cmake --install) "
        "or set HEARTH_LIBRARY to its path. Looked at: " + ", ".join(tried))


def _declare(lib: c.CDLL) -> str | None:
    """Give each function its types; the name of one that is not there."""
    for name, (restype, argtypes) in _PROTOTYPES.items():
        try:
            function = getattr(lib, name)
        except AttributeError:
            return name
        function.restype, function.argtypes = restype, argtypes
    return None


def call(name: str, *args) -> None:
    """One call that takes a struct hearth_error last; raises what it says."""
    error = Error()
    rc = getattr(library(), name)(*args, c.byref(error))
    if rc:
        raise errors.make(rc, error.text.decode(errors="replace"), error.native)


class Packed:
    """Memory that a packed array points into, kept alive together: keys and dimensions."""

    def __init__(self) -> None:
        self._texts = bytearray()
        self._names: dict[str, int] = {}
        self._dims: list[int] = []
        self._keep: list = []
        self.buffer: c.Array | None = None

    def text(self, data: bytes) -> int:
        """Offset of a text with a terminator."""
        at = len(self._texts)
        self._texts += data
        self._texts.append(0)
        return at

    def dims(self, values: Sequence[int]) -> int:
        """Offset in bytes of these numbers."""
        at = 8 * len(self._dims)
        self._dims.extend(values)
        return at

    def finish(self) -> tuple[int, int]:
        """Addresses of the texts and of the dimensions."""
        texts = (c.c_char * (len(self._texts) or 1)).from_buffer(self._texts or bytearray(1))
        packed = bytearray(struct.pack(f"@{len(self._dims)}q", *self._dims) or b"\0")
        dims = (c.c_char * len(packed)).from_buffer(packed)
        self._keep = [texts, dims]
        return c.addressof(texts), c.addressof(dims)

    def keep(self, structs: Iterable[bytes]) -> int:
        """Address of the packed structs."""
        array = bytearray().join(structs) or bytearray(1)
        self.buffer = (c.c_char * len(array)).from_buffer(array)
        return c.addressof(self.buffer)

    def name(self, name: str) -> int:
        """As text(); the same name lies there once."""
        if name not in self._names:
            self._names[name] = self.text(name.encode())
        return self._names[name]


def pack_pieces(pieces: Sequence) -> tuple[Packed, int]:
    """hearth_checkpoint.job.Piece -> struct hearth_piece[]: what keeps it alive, and its
    address."""
    packed = Packed()
    rows = []
    for key, _, _, shape, strides, global_shape, global_offset, _ in pieces:
        rows.append((
            packed.text(key), packed.dims(shape),
            None if strides is None else packed.dims(strides),
            None if global_shape is None else packed.dims(global_shape),
            None if global_offset is None else packed.dims(global_offset)))
    texts, dims = packed.finish()
    return packed, packed.keep(PIECE.pack(
        PIECE.size, texts + key, len(piece.key), piece.data, dtype_number(piece.dtype),
        GPU if piece.gpu else HOST, len(piece.shape), 0, dims + shape,
        0 if strides is None else dims + strides,
        0 if whole is None else dims + whole, 0 if offset is None else dims + offset)
        for piece, (key, shape, strides, whole, offset) in zip(pieces, rows))


def point_pieces(packed: Packed, data: Sequence[int]) -> None:
    """Other data for the pieces of pack_pieces(): one address each."""
    assert packed.buffer is not None
    words = memoryview(packed.buffer).cast("B").cast("Q")
    words[_PIECE_DATA::PIECE.size // 8] = memoryview(array("Q", data))


def pack_bytes(items: Sequence[tuple[bytes, bytes]]) -> tuple[Packed, int]:
    """(key, data) -> struct hearth_bytes[]."""
    packed = Packed()
    rows = [(packed.text(key), len(key), packed.text(data), len(data)) for key, data in items]
    texts, _ = packed.finish()
    return packed, packed.keep(
        BYTE_ITEM.pack(BYTE_ITEM.size, texts + key, key_len, texts + data, data_len)
        for key, key_len, data, data_len in rows)


def pack_boxes(boxes: Sequence) -> tuple[Packed, int]:
    """hearth_checkpoint.job.Box -> struct hearth_box[]."""
    packed = Packed()
    rows = [(packed.name(box.object), packed.dims(box.offset), packed.dims(box.shape),
             None if box.strides is None else packed.dims(box.strides)) for box in boxes]
    texts, dims = packed.finish()
    return packed, packed.keep(BOX.pack(
        BOX.size, texts + name, box.item, dtype_number(box.dtype), len(box.shape), dims + offset,
        dims + shape, box.dst, 0 if strides is None else dims + strides,
        GPU if box.gpu else HOST, 0)
        for box, (name, offset, shape, strides) in zip(boxes, rows))


def pack_ranges(ranges: Sequence[tuple[str, int, int]],
                places: Sequence[int]) -> tuple[Packed, int]:
    """(object, offset, length) and where to -> struct hearth_range[]."""
    packed = Packed()
    names = [packed.name(name) for name, _, _ in ranges]
    texts, _ = packed.finish()
    return packed, packed.keep(
        RANGE.pack(RANGE.size, texts + name, offset, length, place)
        for name, (_, offset, length), place in zip(names, ranges, places))
