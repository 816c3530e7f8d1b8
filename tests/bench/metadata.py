#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/bench/metadata.py: a `.metadata` of millions of chunks, read by Hearth and by pickle.

Writes the file (one chunk at a time, in the opcodes that pickle writes), then reads it in a process
of its own each: bench_metadata, pickle.load with the garbage collector off and, unless --no-gc-on,
on. Prints seconds, peak memory and the ratios."""

import argparse
import gc
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

M = "torch.distributed.checkpoint.metadata"
FRAME = 64 << 10


class Writer:
    """Opcodes with their memo numbers, in frames."""

    def __init__(self, out):
        self.out, self.parts, self.bytes, self.memos, self.texts = out, [], 0, 0, {}
        out.write(b"\x80\x04")

    def put(self, data, memos=0):
        self.parts.append(data)
        self.bytes += len(data)
        self.memos += memos
        if self.bytes >= FRAME:
            self.flush()

    def flush(self):
        self.out.write(b"\x95" + self.bytes.to_bytes(8, "little"))
        self.out.write(b"".join(self.parts))
        self.parts, self.bytes = [], 0

    def get(self, number):
        return b"h%c" % number if number < 256 else b"j" + number.to_bytes(4, "little")

    def text(self, text):
        """A text: whole for the first time, then from the memo."""
        if text in self.texts:
            self.put(self.get(self.texts[text]))
            return
        self.texts[text] = self.memos
        data = text.encode()
        self.put(b"\x8c%c%s\x94" % (len(data), data), 1)

    def name(self, module, name):
        """A global: whole for the first time, then from the memo."""
        if (module, name) in self.texts:
            self.put(self.get(self.texts[module, name]))
            return
        self.text(module)
        self.text(name)
        self.texts[module, name] = self.memos
        self.put(b"\x93\x94", 1)

    def new(self, module, name):
        self.name(module, name)
        self.put(b")\x81\x94", 1)

    def size(self, *dims):
        self.name("torch", "Size")
        tuple_n = {1: b"\x85", 2: b"\x86", 3: b"\x87"}[len(dims)]
        self.put(b"".join(map(integer, dims)) + tuple_n + b"\x94\x85\x94R\x94", 3)


def integer(i):
    if i < 256:
        return b"K%c" % i
    if i < 65536:
        return b"M" + i.to_bytes(2, "little")
    if i < 1 << 31:
        return b"J" + i.to_bytes(4, "little")
    n = (i.bit_length() + 8) // 8
    return b"\x8a%c" % n + i.to_bytes(n, "little")


def batches(w, items, write):
    """As a dict or list takes them: a thousand at a time."""
    for at in range(0, len(items), 1000):
        w.put(b"(")
        for item in items[at : at + 1000]:
            write(item)
        yield


def generate(path, tensors, ranks):
    """Tensors sharded by rows over all ranks, with the records of Adam: as fully_shard saves them."""
    with open(path, "wb") as out:
        w = Writer(out)
        names = [
            f"{kind}layers.{i // 9}.block.weight_{i % 9}"
            for kind in ("model.", "optim.state.exp_avg.", "optim.state.exp_avg_sq.")
            for i in range(tensors // 3)
        ]
        rows, columns = 16, 4096
        w.new(M, "Metadata")
        w.put(b"}\x94(", 1)

        def chunk(rank):
            w.new(M, "ChunkStorageMetadata")
            w.put(b"}\x94(", 1)
            w.text("offsets")
            w.size(rank * rows, 0)
            w.text("sizes")
            w.size(rows, columns)
            w.put(b"ub")

        def tensor(name):
            w.text(name)
            w.new(M, "TensorStorageMetadata")
            w.put(b"}\x94(", 1)
            w.text("properties")
            properties(w)
            w.text("size")
            w.size(ranks * rows, columns)
            w.text("chunks")
            w.put(b"]\x94", 1)
            for _ in batches(w, range(ranks), chunk):
                w.put(b"e")
            w.put(b"ub")

        def properties(w):
            w.new(M, "TensorProperties")
            w.put(b"(")
            w.name("torch", "float32")
            w.name("torch.serialization", "_get_layout")
            w.put(b"\x8c\x0dtorch.strided\x94\x85\x94R\x94\x89", 3)
            w.name(M, "_MEM_FORMAT_ENCODING")
            w.put(b"K\x00\x85\x94R\x94\x89t\x94b", 3)

        def planner(name):
            w.text(name)
            w.text(name)
            w.put(b"\x85\x94", 1)

        def place(item):
            rank, number = item
            w.new(M, "MetadataIndex")
            w.put(b"}\x94(", 1)
            w.text("fqn")
            w.text(names[number])
            w.text("index")
            w.put(integer(rank))
            w.text("offset")
            w.size(rank * rows, 0)
            w.put(b"ub")
            w.new("torch.distributed.checkpoint.filesystem", "_StorageInfo")
            w.put(b"}\x94(", 1)
            w.text("relative_path")
            w.text(f"__{rank}_0.distcp")
            w.text("offset")
            w.put(integer(number * rows * columns * 4))
            w.text("length")
            w.put(integer(rows * columns * 4))
            w.put(b"ub")

        class Places:  # all ranks' items, without a list of them
            def __len__(self):
                return ranks * len(names)

            def __getitem__(self, part):
                return [divmod(i, len(names)) for i in range(*part.indices(len(self)))]

        w.text("state_dict_metadata")
        w.put(b"}\x94", 1)
        for _ in batches(w, names, tensor):
            w.put(b"u")
        w.text("planner_data")
        w.put(b"}\x94", 1)
        for _ in batches(w, names, planner):
            w.put(b"u")
        w.text("storage_data")
        w.put(b"}\x94", 1)
        for _ in batches(w, Places(), place):
            w.put(b"u")
        w.text("storage_meta")
        w.new(M, "StorageMeta")
        w.put(b"}\x94(", 1)
        w.text("checkpoint_id")
        w.text("ckpt")
        w.text("modules")
        w.put(b"]\x94ub", 1)
        w.text("version")
        w.put(b"\x8c\x051.0.0\x94ub.", 1)
        w.flush()


def load(path, collect):
    import standin

    assert standin
    if not collect:
        gc.disable()
    with open(path, "rb") as f:
        start = time.perf_counter()
        metadata = pickle.load(f)
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(seconds, peak * 1024, len(metadata.storage_data), flush=True)
    os._exit(0)  # freeing it all takes as long


def measure(command):
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return float(out[0]), int(out[1]), int(out[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensors", type=int, default=3411, help="of the model and its optimizer")
    parser.add_argument("--ranks", type=int, default=1024, help="chunks of each")
    parser.add_argument("--rounds", type=int, default=3, help="of Hearth; the best counts")
    parser.add_argument("--no-gc-on", action="store_true", help="leave out the slowest reader")
    parser.add_argument("--program", default="build/bench/bin/bench_metadata")
    parser.add_argument("--dir", help="for the file (default: a temporary one)")
    parser.add_argument("--only-write", metavar="FILE", help="write the file and stop")
    parser.add_argument("--load", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--collect", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        load(args.load, args.collect)
    if args.only_write:
        generate(args.only_write, args.tensors, args.ranks)
        return
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        path = os.path.join(folder, ".metadata")
        generate(path, args.tensors, args.ranks)
        size = os.path.getsize(path)
        print(f"{args.tensors * args.ranks} chunks, {size / 1e6:.1f} MB")
        rounds = [measure([args.program, path]) for _ in range(args.rounds)]
        seconds, peak, places = min(rounds)
        print(f"hearth            {seconds:8.2f} s  peak {peak / size:5.2f} x the file")
        for name, extra in (("pickle, gc off", []), ("pickle, gc on", ["--collect"])):
            if extra and args.no_gc_on:
                continue
            theirs = measure([sys.executable, __file__, "--load", path] + extra)
            assert theirs[2] == places, "the readers do not agree"
            print(
                f"{name:17} {theirs[0]:8.2f} s  peak {theirs[1] / size:5.2f} x the file, "
                f"hearth takes 1/{theirs[0] / seconds:.1f} of the time"
            )


if __name__ == "__main__":
    main()
