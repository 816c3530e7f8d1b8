#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The interface as a binding sees it: every call that later users stand on, through ctypes alone.

    ctypes_api.py libhearth.so        HEARTH_TEST_BIN: where hearth and hearthd are

Two ranks of one job in one process are two jobs for the library; a rank that needs another process
forks. Everything happens in one temporary directory; engines end with their job (drop).
"""
import array
import ctypes as c
import json
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

EINVAL, ENOENT, ESTATE, EFAILED = -101, -102, -108, -303
NEWEST = 2**64 - 2
FLOAT32, INT64, UINT8 = 11, 40, 47
OFF, SEALED, PROTECTED, KEEP, DROP, PARTIAL = 1, 10, 40, 0, 10, 1
IN_PROCESS = 20
LATER = 2**64 - 1
P, U32, U64, SIZE, STR = c.c_void_p, c.c_uint32, c.c_uint64, c.c_size_t, c.c_char_p


class Error(c.Structure):
    _fields_ = [("code", c.c_int), ("native", c.c_int), ("text", c.c_char * 512)]


class Sized(c.Structure):
    def __init__(self, **values):
        super().__init__(struct_size=c.sizeof(self), **values)


def option_fields():
    """Of struct hearth_opts, as the table of options has them."""
    kinds = {"text": STR, "address": STR, "list": P, "u32": U32, "u64": U64, "switch": U32,
             "word": U32, "count": SIZE, "pointer": P}
    hearth = os.path.join(os.environ["HEARTH_TEST_BIN"], "hearth")
    table = json.loads(subprocess.check_output([hearth, "ls", "--env", "--json"]))
    return [(option["name"], kinds[option["type"]]) for option in table["options"]]


class Opts(Sized):
    _fields_ = [("struct_size", SIZE)] + option_fields()


class Piece(Sized):
    _fields_ = [("struct_size", SIZE), ("key", STR), ("key_len", SIZE), ("data", P),
                ("dtype", U32), ("memory", U32), ("ndim", U32), ("reserved", U32), ("shape", P),
                ("strides", P), ("global_shape", P), ("global_offset", P)]


class Bytes(Sized):
    _fields_ = [("struct_size", SIZE), ("key", STR), ("key_len", SIZE), ("data", P), ("len", SIZE)]


class Status(Sized):
    _fields_ = [("struct_size", SIZE), ("step", U64), ("level", U32), ("degraded", U32),
                ("code", c.c_int32), ("attempt", U32), ("bytes", U64), ("copied", U64),
                ("text", c.c_char * 256)]


class Item(Sized):
    _fields_ = [("struct_size", SIZE), ("key", P), ("key_len", SIZE), ("object", STR),
                ("owner", U32), ("kind", U32), ("dtype", U32), ("ndim", U32), ("shape", P),
                ("global_shape", P), ("global_offset", P), ("offset", U64), ("bytes", U64),
                ("local", U32), ("checkpoint", U32), ("handle", U64)]


class View(Sized):
    _fields_ = [("struct_size", SIZE), ("data", P), ("bytes", U64), ("map", P), ("map_bytes", U64),
                ("lease", U64)]


class Place(c.Structure):
    _fields_ = [("offset", U64), ("length", U64)]


class Box(Sized):
    _fields_ = [("struct_size", SIZE), ("object", STR), ("item", U64), ("dtype", U32),
                ("ndim", U32), ("offset", P), ("shape", P), ("dst", P), ("dst_strides", P)]


class Range(Sized):
    _fields_ = [("struct_size", SIZE), ("object", STR), ("offset", U64), ("len", U64), ("dst", P)]


class Recovery(Sized):
    _fields_ = [("struct_size", SIZE), ("step", U64), ("epoch", U64), ("now_epoch", U64),
                ("degraded", U32), ("beyond", U32), ("ms", U32 * 6), ("pulled_bytes", U64),
                ("sources", U32), ("text", c.c_char * 256)]


class Ticket(c.Structure):
    _fields_ = [("bytes", c.c_ubyte * 512)]


lib = c.CDLL(sys.argv[1])
lib.hearth_save_bytes.restype = U64
lib.hearth_checkpoint_objects.restype = SIZE
lib.hearth_report_missing.restype = SIZE
lib.hearth_report_key.restype = P
for name in ("hearth_handle_close", "hearth_checkpoint_close", "hearth_report_close", "hearth_free",
             "hearth_save_abort"):
    getattr(lib, name).argtypes = [P]
lib.hearth_close.argtypes = [P, c.c_int]
lib.hearth_report_missing.argtypes = [P]
lib.hearth_report_key.argtypes = [P, SIZE, P]
lib.hearth_checkpoint_objects.argtypes = [P]
err = Error()
keep_alive = []


def call(name, *args):
    """One call that succeeds."""
    rc = getattr(lib, name)(*args, c.byref(err))
    assert rc == 0, f"{name}: {rc} {err.text.decode()}"


def refused(code, word, name, *args):
    rc = getattr(lib, name)(*args, c.byref(err))
    assert rc == code, f"{name}: {rc}, and {code} was due: {err.text.decode()}"
    assert word in err.text.decode(), f"{name}: '{word}' is not in: {err.text.decode()}"


def dims(values):
    if values is None:
        return None
    a = (c.c_int64 * len(values))(*values)
    keep_alive.append(a)
    return c.cast(a, P)


def piece(key, data, shape, dtype=FLOAT32, strides=None, whole=None, at=None):
    keep_alive.append(data)
    address = data.buffer_info()[0] if isinstance(data, array.array) else data
    return Piece(key=key, key_len=len(key), data=address, dtype=dtype, ndim=len(shape),
                 shape=dims(shape), strides=dims(strides), global_shape=dims(whole),
                 global_offset=dims(at))


def pieces(*all_of_them):
    return (Piece * len(all_of_them))(*all_of_them)


def floats(count, first=0.0):
    return array.array("f", (first + i for i in range(count)))


class Job:
    def __init__(self, root, job=b"job", **more):
        engine = os.path.join(os.environ.get("HEARTH_TEST_BIN", ""), "hearthd")
        values = dict(root=root, job=job, world=1, allow_degraded=1, any_root=1, node=b"n0",
                      open_ms=20000, save_ms=20000, linger_s=30)
        if os.path.exists(engine):
            values["engine"] = engine.encode()
        values.update(more)
        self.h = P()
        self.ckpt = P()
        call("hearth_open", c.byref(Opts(**values)), c.byref(self.h))

    def recover(self):
        lib.hearth_checkpoint_close(self.ckpt)
        self.ckpt = P()
        call("hearth_recover", self.h, None, c.byref(self.ckpt))
        return self.ckpt

    def begin(self, step, size):
        save = P()
        call("hearth_save_begin", self.h, U64(step), U64(size), None, c.byref(save))
        return save

    def commit(self, save, level=PROTECTED):
        handle = P()
        call("hearth_save_commit", save, c.byref(handle))
        call("hearth_wait", handle, level, U32(20000))
        return handle

    def find(self, key):
        item, found = Item(), SIZE()
        call("hearth_item_find", self.ckpt, key, SIZE(len(key)), c.byref(item), SIZE(1),
             c.byref(found))
        assert found.value == 1, f"{key} is there {found.value} times"
        return item

    def close(self, how):
        lib.hearth_checkpoint_close(self.ckpt)
        lib.hearth_close(self.h, how)


def many_pieces_and_strides(job):
    """Two thousand small pieces in one call, a transposed one, a box of a larger tensor."""
    small = [floats(3, i) for i in range(2000)]
    matrix = floats(12)
    part = floats(4, 100)
    given = pieces(*(piece(b"small/%d" % i, a, [3]) for i, a in enumerate(small)),
                   piece(b"transposed", matrix, [4, 3], strides=[1, 4]),
                   piece(b"part", part, [2, 2], whole=[4, 4], at=[1, 2]))
    note = c.create_string_buffer(b"a byte string \0 with anything", 29)
    item = Bytes(key=b"note", key_len=4, data=c.cast(note, P), len=29)
    size = lib.hearth_save_bytes(given, SIZE(len(given)), c.byref(item), SIZE(1))
    save = job.begin(1, size)
    call("hearth_save_add", save, given, SIZE(len(given)))
    call("hearth_save_add_bytes", save, c.byref(item), SIZE(1))
    places, count = (Place * 4000)(), SIZE()
    call("hearth_save_places", save, places, SIZE(4000), c.byref(count))
    assert count.value >= 1 and places[0].length > 0
    handle = job.commit(save)
    status = Status()
    call("hearth_test", handle, c.byref(status))
    assert (status.step, status.level, status.degraded) == (1, PROTECTED, 1)
    assert status.bytes > 2000 * 12, status.bytes
    lib.hearth_handle_close(handle)

    ckpt = job.recover()
    back = floats(3)
    call("hearth_load", ckpt, pieces(piece(b"small/1999", back, [3])), SIZE(1), U32(0), None)
    assert list(back) == [1999, 2000, 2001]
    square = floats(12)
    call("hearth_load", ckpt, pieces(piece(b"transposed", square, [4, 3])), SIZE(1), U32(0), None)
    assert list(square) == [matrix[r + 4 * k] for r in range(4) for k in range(3)]
    got = c.create_string_buffer(8)
    call("hearth_read_bytes", ckpt, c.byref(job.find(b"note")), U64(2), got, U64(8))
    assert got.raw == b"byte str"


def boxes(job):
    """A box of a piece into strided memory."""
    item = job.find(b"transposed")
    out = array.array("f", [-1] * 20)
    call("hearth_read_box", job.ckpt, c.byref(item), dims([1, 1]), dims([2, 2]),
         P(out.buffer_info()[0]), dims([5, 2]))
    assert [out[0], out[2], out[5], out[7]] == [5, 9, 6, 10], list(out)
    assert out[1] == -1 and out[6] == -1
    refused(EINVAL, "transposed", "hearth_read_box", job.ckpt, c.byref(item), dims([3, 1]),
            dims([2, 2]), P(out.buffer_info()[0]), None)


def partial_and_mismatch(job):
    """What is missing is reported; another size or dtype is refused by name."""
    a, b = floats(3), floats(3)
    wanted = pieces(piece(b"small/7", a, [3]), piece(b"absent/1", b, [3]))
    refused(ENOENT, "absent/1", "hearth_load", job.ckpt, wanted, SIZE(2), U32(0), None)
    report, length = P(), SIZE()
    call("hearth_load", job.ckpt, wanted, SIZE(2), U32(PARTIAL), c.byref(report))
    assert list(a) == [7, 8, 9] and lib.hearth_report_missing(report) == 1
    key = lib.hearth_report_key(report, 0, c.byref(length))
    assert c.string_at(key, length.value) == b"absent/1"
    lib.hearth_report_close(report)
    refused(EINVAL, "small/7", "hearth_load", job.ckpt, pieces(piece(b"small/7", a, [2])), SIZE(1),
            U32(0), None)
    refused(EINVAL, "small/7", "hearth_load", job.ckpt,
            pieces(piece(b"small/7", a, [3], dtype=INT64)), SIZE(1), U32(0), None)
    refused(EINVAL, "small/7", "hearth_load", job.ckpt,
            pieces(piece(b"small/7", a, [2])), SIZE(1), U32(PARTIAL), None)


def reserve_and_adopt(job):
    """Places first, the step later; which pointers lie in the object; a common object."""
    given = pieces(piece(b"w", None, [1000]), piece(b"v", None, [10], dtype=UINT8))
    save = job.begin(LATER, lib.hearth_save_bytes(given, SIZE(2), None, SIZE(0)) + 4096)
    spots = (P * 2)()
    call("hearth_save_reserve", save, given, SIZE(2), spots)
    values = floats(1000, 5)
    c.memmove(spots[0], values.buffer_info()[0], 4000)
    c.memmove(spots[1], bytes(range(10)), 10)
    outside = c.create_string_buffer(8)
    asked, offsets = (P * 3)(spots[0], c.cast(outside, P), spots[1] + 3), (U64 * 3)()
    call("hearth_save_locate", save, asked, SIZE(3), offsets)
    assert offsets[1] == LATER and offsets[0] < offsets[2] < 2**20, list(offsets)
    call("hearth_save_put_common", save, b".metadata", b"for all nodes", SIZE(13))
    call("hearth_save_next_object", save, b"second", U64(8192))
    call("hearth_save_add", save, pieces(piece(b"more", floats(2, 9), [2])), SIZE(1))
    call("hearth_save_set_step", save, U64(2))
    lib.hearth_handle_close(job.commit(save))
    ckpt = job.recover()
    assert lib.hearth_checkpoint_objects(ckpt) >= 2
    back = floats(1000)
    call("hearth_load", ckpt, pieces(piece(b"w", back, [1000])), SIZE(1), U32(0), None)
    assert back == values
    common, length = P(), SIZE()
    call("hearth_read_common", ckpt, b".metadata", c.byref(common), c.byref(length))
    assert c.string_at(common, length.value) == b"for all nodes"
    lib.hearth_free(common)
    return offsets[0]


def descriptors_views_prefetch(job, where):
    """An object as descriptor and offset, mapped privately; a view; bytes brought near."""
    item = job.find(b"w")
    call("hearth_prefetch", job.ckpt, c.byref(item), SIZE(1))
    fd, offset, size = c.c_int(-1), U64(), U64()
    call("hearth_object_fd", job.ckpt, item.object, c.byref(fd), c.byref(offset), c.byref(size))
    with mmap.mmap(fd.value, offset.value + size.value, mmap.MAP_PRIVATE, mmap.PROT_READ) as m:
        assert struct.unpack_from("2f", m, offset.value + where) == (5.0, 6.0)
    os.close(fd.value)
    view = View()
    call("hearth_view_open", job.ckpt, c.byref(item), c.byref(view))
    for step in range(3, 9):  # whatever is saved meanwhile
        save = job.begin(step, 8192)
        call("hearth_save_add", save, pieces(piece(b"w", floats(4, step), [4])), SIZE(1))
        lib.hearth_handle_close(job.commit(save))
    assert c.string_at(view.data, 8) == struct.pack("2f", 5.0, 6.0)
    c.memset(view.data, 0, 8)  # private: nobody else sees it
    lib.hearth_view_close(job.h, c.byref(view))


def handles(job):
    """Abort, cancel, deadlines."""
    lib.hearth_save_abort(job.begin(20, 8192))
    save = job.begin(21, 8192)
    call("hearth_save_add", save, pieces(piece(b"w", floats(4, 21), [4])), SIZE(1))
    handle = job.commit(save)
    call("hearth_cancel", handle)  # PROTECTED came first
    status = Status()
    call("hearth_test", handle, c.byref(status))
    assert status.level == PROTECTED and status.code == 0, status.text
    refused(EINVAL, "deadline_ms", "hearth_wait", handle, PROTECTED, U32(0))
    lib.hearth_handle_close(handle)


def log_lines(job):
    text, level, lines = c.create_string_buffer(1500), U32(), []
    while lib.hearth_log_poll(job.h, c.byref(level), text, SIZE(1500)):
        lines.append(text.value.decode())
    assert any("copies 1" in line and "engine pid" in line for line in lines), lines


def helper_process(job, root):
    """A second process of the rank saves in its name."""
    lib.hearth_checkpoint_close(job.ckpt)
    job.ckpt = P()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            other = Job(root, helper=1)
            save = other.begin(30, 8192)
            call("hearth_save_add", save, pieces(piece(b"h", floats(4, 30), [4])), SIZE(1))
            lib.hearth_handle_close(other.commit(save))
            other.close(KEEP)
            status = 0
        except AssertionError as e:
            print("helper:", e, flush=True)
        os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    job.recover()
    back = floats(4)
    call("hearth_load", job.ckpt, pieces(piece(b"h", back, [4])), SIZE(1), U32(0), None)
    assert list(back) == [30, 31, 32, 33]


def thousands_in_one_call(job):
    """Staged, sealed before the common object is put; then read back in the same epoch."""
    count = 4400
    data = [floats(5, i) for i in range(count)]
    given = pieces(*(piece(b"many/%d" % i, a, [5]) for i, a in enumerate(data)))
    note = c.create_string_buffer(b"behind the tensors", 18)
    item = Bytes(key=b"note", key_len=4, data=c.cast(note, P), len=18)
    save = job.begin(LATER, lib.hearth_save_bytes(given, SIZE(count), c.byref(item), SIZE(1)))
    spots, places, found = (P * count)(), (Place * (count + 1))(), SIZE()
    call("hearth_save_stage", save, given, SIZE(count), spots)
    assert c.string_at(spots[7], 20) == data[7].tobytes()
    c.memmove(spots[9], spots[7], 20)  # what lies there at the seal is what is saved
    call("hearth_save_add_bytes", save, c.byref(item), SIZE(1))
    call("hearth_save_places", save, places, SIZE(count + 1), c.byref(found))
    assert found.value == count + 1
    refused(ESTATE, "hearth_save_set_step", "hearth_save_seal", save)
    call("hearth_save_set_step", save, U64(40))
    call("hearth_save_seal", save)
    refused(ESTATE, "sealed", "hearth_save_stage", save, given, SIZE(1), spots)
    call("hearth_save_put_common", save, b".metadata", b"afterwards", SIZE(10))
    lib.hearth_handle_close(job.commit(save))
    data[9] = data[7]
    read_back(job, data, [p.offset for p in places])


def read_back(job, data, offsets):
    """One call for all boxes, one for raw bytes, out of a checkpoint of this epoch."""
    count, ckpt, info, item = len(data), P(), Recovery(), Item()
    refused(ENOENT, "41", "hearth_checkpoint_open", job.h, U64(41), c.byref(ckpt))
    call("hearth_checkpoint_open", job.h, U64(NEWEST), c.byref(ckpt))
    call("hearth_checkpoint_info", ckpt, c.byref(info))
    assert info.step == 40, info.step
    name = b"__0__0_src0.distcp"
    call("hearth_item_in", ckpt, name, U64(offsets[3]), c.byref(item))
    assert c.string_at(item.key, item.key_len) == b"many/3"
    out = floats(5 * count)
    start, length = dims([0]), dims([5])
    boxes = (Box * count)(*(
        Box(object=name, item=offsets[i], dtype=FLOAT32, ndim=1, offset=start, shape=length,
            dst=out.buffer_info()[0] + 20 * i) for i in range(count)))
    call("hearth_prefetch_boxes", ckpt, boxes, SIZE(count))
    call("hearth_read_boxes", ckpt, boxes, SIZE(count))
    assert out == array.array("f", (v for a in data for v in a))
    boxes[2].dtype = INT64
    refused(EINVAL, "many/2", "hearth_read_boxes", ckpt, boxes, SIZE(count))
    text = c.create_string_buffer(8)
    ranges = (Range * 1)(Range(object=name, offset=offsets[count] + 7, len=3,
                               dst=c.cast(text, P)))
    call("hearth_read_ranges", ckpt, ranges, SIZE(1))
    assert text.value == b"the"
    ranges[0].len = 2**40
    refused(EINVAL, name.decode(), "hearth_read_ranges", ckpt, ranges, SIZE(1))
    lib.hearth_checkpoint_close(ckpt)


def from_hand_to_hand(job, root):
    """What this process has staged a helper finishes, out of the same memory."""
    ticket, spots, values = Ticket(), (P * 1)(), floats(1000, 41)
    save = job.begin(LATER, 16384)
    call("hearth_save_stage", save, pieces(piece(b"handed", values, [1000])), SIZE(1), spots)
    call("hearth_save_give", save, c.byref(ticket))
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            other, taken = Job(root, helper=1), P()
            call("hearth_save_take", other.h, c.byref(ticket), c.byref(taken))
            refused(ENOENT, "taken", "hearth_save_take", other.h, c.byref(ticket), c.byref(P()))
            call("hearth_save_set_step", taken, U64(41))
            lib.hearth_handle_close(other.commit(taken))
            other.close(KEEP)
            status = 0
        except AssertionError as e:
            print("taker:", e, flush=True)
        os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    ckpt, back = P(), floats(1000)
    call("hearth_checkpoint_open", job.h, U64(41), c.byref(ckpt))
    call("hearth_load", ckpt, pieces(piece(b"handed", back, [1000])), SIZE(1), U32(0), None)
    assert back == values
    lib.hearth_checkpoint_close(ckpt)


def two_jobs(job, root):
    """Another job in this process, with its engine inside."""
    other = Job(root, b"other", start=IN_PROCESS)
    assert not other.recover()
    for one, step in ((other, 1), (job, 51), (other, 2)):
        save = one.begin(step, 8192)
        call("hearth_save_add", save, pieces(piece(b"x", floats(1, step), [1])), SIZE(1))
        lib.hearth_handle_close(one.commit(save))
    for one, step in ((other, 2), (job, 51)):
        back = floats(1)
        call("hearth_load", one.recover(), pieces(piece(b"x", back, [1])), SIZE(1), U32(0), None)
        assert list(back) == [step]
    other.close(DROP)


def end_engine(root):
    try:
        with open(os.path.join(root, "job/.hearth/lock"), encoding="ascii") as f:
            pid = int(f.read().split()[0])
    except (OSError, ValueError, IndexError):
        return
    until = time.monotonic() + 5  # dropped: it ends by itself
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except OSError:
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the engine goes on, though its job was dropped")


def main():
    signal.alarm(60)
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    root = tempfile.mkdtemp(prefix="hearth-ctypes-", dir=shm)
    try:
        job = Job(root.encode())
        refused(ESTATE, "recover", "hearth_save_begin", job.h, U64(1), U64(8192), None,
                c.byref(P()))
        assert not job.recover()
        many_pieces_and_strides(job)
        boxes(job)
        partial_and_mismatch(job)
        where = reserve_and_adopt(job)
        descriptors_views_prefetch(job, where)
        handles(job)
        log_lines(job)
        helper_process(job, root.encode())
        thousands_in_one_call(job)
        from_hand_to_hand(job, root.encode())
        two_jobs(job, root.encode())
        job.close(DROP)
        end_engine(root)
        print("from Python: passed")
    finally:
        shutil.rmtree(root, ignore_errors=True)


main()
