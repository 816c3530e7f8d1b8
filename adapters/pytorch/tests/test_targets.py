# SPDX-License-Identifier: Apache-2.0
"""Targets of a load, and states of a save, against FileSystemReader and FileSystemWriter: what a
trainer may have set (default device and dtype, deterministic fill), and tensors of all kinds."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from hearth_checkpoint import _ffi
from hearth_checkpoint.errors import HearthError
from hearth_checkpoint.torch import HearthReader, HearthWriter, _jobs, _whole
from hearth_checkpoint.torch._partial import fill
from hearth_checkpoint.torch._pickles import decode_item, encode_item
from hearth_checkpoint.torch._skeleton import StoredState

SOURCE = {"a": torch.arange(12.0).reshape(3, 4), "c": torch.arange(6) * (1 + 2j)}


class Sub(torch.Tensor):
    """Made by as_subclass()."""


class Wrapped(torch.Tensor):
    """Has no memory of its own."""

    def __new__(cls, inner: torch.Tensor) -> Wrapped:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), dtype=inner.dtype, device=inner.device)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*map(_plain, args), **(kwargs or {}))
        if func is torch.ops.aten.copy_.default:
            return args[0]
        return Wrapped(out) if isinstance(args[0], Wrapped) and isinstance(out, torch.Tensor) else out


def _plain(value: Any) -> Any:
    return value.inner if isinstance(value, Wrapped) else value


def zeros(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(3, 4, dtype=dtype, device="cpu")


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return zeros()


TARGETS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": zeros, "float64": lambda: zeros(torch.float64), "bf16": lambda: zeros(torch.bfloat16),
    "int32": lambda: zeros(torch.int32), "bool": lambda: zeros(torch.bool),
    "turned": lambda: torch.zeros(4, 3, device="cpu").t(),
    "strided": lambda: torch.zeros(6, 8, device="cpu")[::2, ::2],
    "expanded": lambda: torch.zeros(1, 4, device="cpu").expand(3, 4),
    "expanded_columns": lambda: torch.zeros(3, 1, device="cpu").expand(3, 4),
    "expanded_of_another_dtype": lambda: zeros(torch.float64)[:1].expand(3, 4),
    "expanded_once": lambda: torch.zeros(3, 4, device="cpu").expand(3, 4),
    "sparse": lambda: zeros().to_sparse(), "meta": lambda: torch.zeros(3, 4, device="meta"),
    "subclass": lambda: zeros().as_subclass(Sub), "wrapper": lambda: Wrapped(zeros()),
    "parameter": lambda: torch.nn.Parameter(zeros()), "buffer": lambda: torch.nn.Buffer(zeros()),
    "leaf": lambda: zeros().requires_grad_(), "in_a_graph": lambda: zeros().requires_grad_() * 1,
    "inference": _inference, "conj": lambda: zeros(torch.complex64).conj(),
    "lazy_clone": lambda: torch._lazy_clone(zeros()),
}


@contextlib.contextmanager
def _default_device() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextlib.contextmanager
def _default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float16)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


SET = {"nothing": contextlib.nullcontext, "default_device": _default_device,
       "default_dtype": _default_dtype, "deterministic": _deterministic,
       "inference_mode": torch.inference_mode}


def _load(path: str, reader: Any, key: str, target: torch.Tensor) -> Any:
    """What a load leaves of the target; or the error."""
    before = None if target.is_inference() else target._version
    try:
        dcp.load({key: target}, checkpoint_id=path, storage_reader=reader, no_dist=True)
    except BaseException as error:
        (raised, _), = error.failures.values()
        return "error", isinstance(raised, RuntimeError), str(raised).split(" (")[0]
    plain = _plain(target)
    return (target.dtype, target.requires_grad,
            before is not None and target._version > before,
            None if target.is_meta else plain.detach().cpu().to_dense().resolve_conj().tolist(),
            None if target._base is None or target.is_meta
            else target._base.detach().tolist())


@pytest.fixture
def saved(base: str) -> dict[str, tuple[str, Callable[[], Any]]]:
    files = f"{base}-files"
    dcp.save(SOURCE, checkpoint_id=files, storage_writer=dcp.FileSystemWriter(files), no_dist=True)
    path = f"{base}/step-1_ckpt"
    dcp.save(SOURCE, checkpoint_id=path, storage_writer=HearthWriter(base), no_dist=True)
    return {"files": (files, lambda: dcp.FileSystemReader(files)), "memory": (path, HearthReader)}


def test_targets_of_all_kinds_are_filled_or_refused_as_with_files(saved):
    different, compared = [], 0
    for setting, set_ in SET.items():
        for kind, make in TARGETS.items():
            out = {}
            for where, (path, reader) in saved.items():
                target = make()
                with set_():
                    out[where] = _load(path, reader(), "c" if target.is_complex() and
                                       target.shape == (6,) else "a", target)
            files, memory = out["files"], out["memory"]
            compared += 1
            if files == memory:
                continue
            if files[0] == "error" == memory[0]:
                assert memory[1] and memory[2].startswith("a: "), (setting, kind, memory)
                if kind != "sparse":  # torch's text is of its copy, and without the key
                    assert files[2].split(". ")[0] in memory[2], (setting, kind, out)
            else:
                different.append((setting, kind, out))
    assert not different, different
    assert compared == len(SET) * len(TARGETS)


def test_what_shares_memory_is_refused_before_any_target_is_written_to(saved):
    path, reader = saved["memory"]
    state = {"a": zeros()[:1].expand(3, 4), "c": torch.zeros(6, dtype=torch.complex64)}
    with pytest.raises(BaseException, match="a: unsupported operation: more than one element"):
        dcp.load(state, checkpoint_id=path, storage_reader=reader(), no_dist=True)
    assert not state["c"].any() and not state["a"].any()


@pytest.mark.parametrize("where", ["files", "memory"])
def test_a_load_between_forward_and_backward_is_found_by_autograd(saved, where):
    path, reader = saved[where]
    weight = torch.nn.Parameter(zeros())
    loss = (weight * weight).sum()
    dcp.load({"a": weight}, checkpoint_id=path, storage_reader=reader(), no_dist=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_what_is_filled_in_place_of_a_whole_state_is_found_by_autograd(base):
    saver = _whole.Saver(base, on_error="raise")
    saver.save("step-1_ckpt", lambda: {"a": torch.ones(3, 4)})
    saver.wait()
    weight = torch.nn.Parameter(zeros())
    loss = (weight * weight).sum()
    found = _jobs.open_member(base).job.checkpoint(1)
    fill({"a": weight}, StoredState(found, "checkpoint_0.pt"))
    found.close()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


STATES = {
    "empty": lambda: {"a": torch.ones(3, device="cpu"), "e": torch.empty(0, 3, device="cpu")},
    "nested": lambda: {"n": {"x": [torch.ones(2, device="cpu"), {"y": torch.zeros((), device="cpu")}]},
                       "t": (torch.ones(2, device="cpu"), 3)},
    "lazy": lambda: {"c": torch.ones(3, dtype=torch.complex64, device="cpu").conj(),
                     "n": torch.ones(3, dtype=torch.complex64, device="cpu").conj().imag},
    "attributes": lambda: {"s": torch.ones(3, device="cpu").as_subclass(Sub)},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("setting", ["default_device", "default_dtype", "deterministic"])
@pytest.mark.filterwarnings("ignore")
def test_a_state_is_saved_and_loaded_whatever_the_trainer_has_set(base, state, setting):
    made = STATES[state]()
    with SET[setting]():
        for step, save in enumerate((dcp.save, dcp.async_save), 1):
            done = save(made, checkpoint_id=f"{base}/step-{step}_ckpt",
                        storage_writer=HearthWriter(base), no_dist=True)
            if hasattr(done, "result"):
                done.result()
            into = _zeroed(made)
            dcp.load(into, checkpoint_id=f"{base}/step-{step}_ckpt", storage_reader=HearthReader(
                trust=state == "attributes"), no_dist=True)
            _same(made, into)
        saver = _whole.Saver(base, on_error="raise")
        if state != "attributes":
            saver.save("step-7_ckpt", lambda: made)
            saver.wait()
            _same(made, _whole.read(f"{base}/step-7_ckpt"))


class Bare(Wrapped):
    """Gives plain tensors where it is computed with, as quantized weights do."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
            return cls(func(args[0].inner, **(kwargs or {})))
        return func(*map(_plain, args), **(kwargs or {}))


class Stubborn(Bare):
    """Cannot be copied either."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*map(_plain, args), **(kwargs or {}))


def _vector() -> torch.Tensor:
    return torch.arange(1.0, 5)


VALUES: dict[str, Callable[[], torch.Tensor]] = {
    "plain": _vector, "subclass": lambda: _vector().as_subclass(Sub), "wrapper": lambda: Wrapped(_vector()),
    "bare": lambda: Bare(_vector()), "stubborn": lambda: Stubborn(_vector()),
    "parameter": lambda: torch.nn.Parameter(_vector()), "conj": lambda: (_vector() * 1j).conj(),
    "neg": lambda: (_vector() * 1j).conj().imag, "view": lambda: torch.arange(9.0)[1:9:2],
    "expanded": lambda: torch.ones(1).expand(4), "sparse": lambda: torch.eye(3).to_sparse(),
    "quantized": lambda: torch.quantize_per_tensor(_vector(), 0.5, 1, torch.qint8),
    "f8": lambda: _vector().to(torch.float8_e4m3fn), "empty": lambda: torch.zeros(0, 3),
}
WITHIN: dict[str, Callable[[Any], Any]] = {
    "top": lambda value: value, "nested": lambda value: [{"x": value}],
    "tuple": lambda value: (value, 1),
    "object": lambda value: SimpleNamespace(x=value, more=[value]),
}


def _inside(within: str, value: Any) -> Any:
    return {"top": lambda: value, "nested": lambda: value[0]["x"], "tuple": lambda: value[0],
            "object": lambda: value.x}[within]()


def _as_numbers(value: Any) -> Any:
    value = _plain(value)
    if value is None or isinstance(value, list):
        return value
    value = value.dequantize() if value.is_quantized else value.to_dense()
    return value.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg().tolist()


@pytest.mark.parametrize("within", WITHIN)
@pytest.mark.filterwarnings("ignore")
def test_an_asynchronous_save_holds_what_files_hold_or_names_key_and_class(base, within):
    """What the class is, where the value is pickled; and the numbers."""
    stored, step = 0, 0
    for kind, make in VALUES.items():
        made = make()
        for save in (dcp.save, dcp.async_save):
            step += 1
            path = f"{base}/step-{step}_ckpt"
            try:
                done = save({"k": WITHIN[within](made)}, checkpoint_id=path,
                            storage_writer=HearthWriter(base), no_dist=True)
                _ = done.result() if hasattr(done, "result") else None
            except BaseException as error:
                (raised, _), = error.failures.values()
                assert str(raised).startswith("k"), (kind, raised)
                assert type(made).__qualname__ in str(raised) or kind in ("sparse", "quantized")
                assert kind in ("wrapper", "bare", "stubborn", "sparse", "quantized"), (kind, raised)
                continue
            pickled = within in ("tuple", "object")
            state = {"k": None if pickled else WITHIN[within](torch.zeros(
                made.shape, dtype=made.dtype, device="cpu"))}
            dcp.load(state, checkpoint_id=path, storage_reader=HearthReader(trust=True), no_dist=True)
            read = _inside(within, state["k"])
            assert _as_numbers(read) == _as_numbers(made), (kind, save)
            assert not pickled or type(read) is type(made), (kind, save)
            stored += 1
    assert stored >= 18


@pytest.mark.filterwarnings("ignore")
def test_sparse_values_are_decoded_on_the_host():
    for made in (torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()):
        with _default_device():
            read = decode_item(encode_item({"v": made}))["v"]
        assert torch.equal(read.to_dense(), torch.eye(3))


def _zeroed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _zeroed(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_zeroed(part) for part in value]
    return torch.zeros_like(value.resolve_conj()) if isinstance(value, torch.Tensor) else None


def _same(a: Any, b: Any) -> None:
    if isinstance(a, dict):
        assert list(a) == list(b)
        a, b = list(a.values()), list(b.values())
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for one, other in zip(a, b):
            _same(one, other)
    elif isinstance(a, torch.Tensor):
        assert a.device.type == b.device.type == "cpu" and a.dtype == b.dtype
        assert torch.equal(a.to_dense().resolve_conj(), b.to_dense())
    else:
        assert a == b


def _dtypes() -> list[torch.dtype]:
    return list(dict.fromkeys(v for v in vars(torch).values() if isinstance(v, torch.dtype)))


@pytest.mark.parametrize("lacking", [None, "float16"])
@pytest.mark.filterwarnings("ignore")
def test_each_dtype_of_this_torch_is_stored_or_refused_by_name(base, lacking, monkeypatch):
    """A dtype that a later torch has got, too."""
    if lacking is not None:
        monkeypatch.delitem(_ffi.DTYPES, lacking)
    stored = set()
    for step, dtype in enumerate(_dtypes() if lacking is None else [torch.float16, torch.int8], 1):
        try:
            made = torch.empty(4, dtype=dtype)
        except (RuntimeError, NotImplementedError):
            continue  # it is no dtype of tensors on the host
        memory = torch.empty(0, dtype=torch.uint8).set_(made.untyped_storage())
        memory.copy_(torch.arange(len(memory)) % (2 if dtype == torch.bool else 100))
        for more, save in enumerate((dcp.save, dcp.async_save)):
            path = f"{base}/step-{2 * step + more}_ckpt"
            try:
                done = save({"layer": {"weight": made}}, checkpoint_id=path,
                            storage_writer=HearthWriter(base), no_dist=True)
                _ = done.result() if hasattr(done, "result") else None
            except BaseException as error:
                (raised, _), = error.failures.values()
                if not isinstance(raised, HearthError):  # DCP's own, with files too
                    with pytest.raises(BaseException, match=re.escape(str(raised)[:60])):
                        dcp.save({"w": made}, no_dist=True,
                                 storage_writer=dcp.FileSystemWriter(f"{base}-files"))
                    continue
                assert "layer.weight" in str(raised), (dtype, raised)
                assert str(dtype) in str(raised) or made.is_quantized, (dtype, raised)
                continue
            into = torch.empty(4, dtype=dtype)
            dcp.load({"layer": {"weight": into}}, checkpoint_id=path,
                     storage_reader=HearthReader(), no_dist=True)
            assert bytes(into.untyped_storage()) == bytes(made.untyped_storage()), dtype
            stored.add(dtype)
    assert stored == {torch.int8} if lacking else len(stored) > 18, (len(stored), stored)


@pytest.mark.parametrize("save", [dcp.save, dcp.async_save])
@pytest.mark.parametrize("state", [{"a\udc80b": torch.ones(2)}, {"a\udc80b": 5}])
def test_a_key_that_is_no_text_is_named(base, save, state):
    with pytest.raises(BaseException, match=r"'a\\udc80b': this key has '\\udc80' at character 1"):
        done = save(state, checkpoint_id=f"{base}/1", storage_writer=HearthWriter(base), no_dist=True)
        _ = done.result() if hasattr(done, "result") else None
