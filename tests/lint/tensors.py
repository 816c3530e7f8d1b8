#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tensors.py ROOT: each tensor that the PyTorch package makes names its device and its dtype.

A trainer may have set torch's default device to a GPU, and its default dtype to bfloat16: a tensor made without them is
then not on the host, and its memory is not the library's to write into. torch.frombuffer() has no device, and *_like(),
new_*() and views have those of another tensor.

Exit status 1 where a call names less; each in a line of its own."""
import ast
import os
import sys

PACKAGE = "adapters/pytorch/hearth_checkpoint"
MAKERS = frozenset(
    "arange as_tensor asarray bartlett_window blackman_window empty empty_permuted empty_strided eye from_file full "
    "hamming_window hann_window kaiser_window linspace logspace ones rand randint randn randperm range scalar_tensor "
    "sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor "
    "sparse_csr_tensor tensor tril_indices triu_indices zeros _make_wrapper_subclass _empty_affine_quantized".split())
NEEDS = {**dict.fromkeys(MAKERS, ("dtype", "device")), "frombuffer": ("dtype",), "UntypedStorage": ("device",)}


def of_torch(call):
    """The name of a function of torch's that makes a tensor or a storage, or None."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in NEEDS:
        return None
    at = func.value
    while isinstance(at, ast.Attribute):
        at = at.value
    return func.attr if isinstance(at, ast.Name) and at.id == "torch" else None


def main():
    root = sys.argv[1]
    bad, files, made = [], 0, 0
    for at, _, names in os.walk(os.path.join(root, PACKAGE)):
        for name in sorted(n for n in names if n.endswith(".py")):
            path = os.path.join(at, name)
            files += 1
            with open(path, encoding="utf-8") as f:
                tree = ast.parse(f.read(), path)
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module == "torch":
                    bad += ["%s:%d: from torch import %s: write torch.%s, which this lint finds" % (
                        os.path.relpath(path, root), node.lineno, a.name, a.name)
                        for a in node.names if a.name in NEEDS]
                maker = of_torch(node) if isinstance(node, ast.Call) else None
                if maker is None:
                    continue
                made += 1
                lacks = [n for n in NEEDS[maker] if n not in {k.arg for k in node.keywords}]
                if lacks:
                    bad.append("%s:%d: torch's %s() without %s: the trainer's default applies" % (
                        os.path.relpath(path, root), node.lineno, maker, " and ".join(lacks)))
    print("\n".join(bad) if bad else "%d tensors in %d files" % (made, files))
    return bool(bad) or not made


sys.exit(main())
