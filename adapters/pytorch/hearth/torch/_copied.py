# SPDX-License-Identifier: Apache-2.0
"""Values that torch's own stager copies, and the proof that it did.

That stager copies storages. A tensor without one, or whose numbers are not those of its storage
(conjugated, of a subclass), it may copy as something else, without an error. So the tensors of a
copy are compared with those of the value, whatever holds them, before the copy is saved.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
from torch.storage import TypedStorage, UntypedStorage

from ..errors import HearthError


def by_torch(key: str, value: Any) -> Any:
    """A copy by torch's stager. HearthError, with the key, where it is not what was given."""
    from torch.distributed.checkpoint._state_dict_stager import StateDictStager

    class Stager(StateDictStager):
        def _offload_tensor(self, x: torch.Tensor, memo: dict[int, Any], *more: Any,
                            **named: Any) -> torch.Tensor:
            if _is_odd(x):
                copied = x.detach().clone() if x.is_meta else x.detach().cpu().clone()
                if type(x) is torch.nn.Parameter:
                    copied = torch.nn.Parameter(copied, x.requires_grad)
                memo[id(x)] = copied
                return copied
            copied = super()._offload_tensor(x, memo, *more, **named)
            if copied.shape != x.shape:
                copied = _shaped(copied, x)
            elif type(x) is torch.nn.Parameter and type(copied) is torch.Tensor:
                copied = torch.nn.Parameter(copied, x.requires_grad)
            elif type(copied) is not type(x):  # it has no new_empty() of its own
                copied = x.detach().clone()
            memo[id(x)] = copied
            return copied

    copied = Stager().stage({"value": value})["value"]
    kind = _differs(value, copied)
    if kind is not None:
        raise HearthError(
            f"{key}: torch's stager, which copies a {type(value).__name__}, has copied a "
            f"{kind.__module__}.{kind.__qualname__} of it otherwise than it was given: an "
            "asynchronous save would hold other values. Save it synchronously, or put plain "
            "tensors into the state")
    return copied


def _is_odd(tensor: torch.Tensor) -> bool:
    """Its numbers are not those of its storage, or it has none, and it can be cloned."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or vars(tensor):
        return False
    return (tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested
            or tensor.is_meta or tensor.is_conj() or tensor.is_neg())


def _shaped(copied: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The copy with the shape of the tensor: torch 2.8 loses that of one that is made of others."""
    whole = like.new_empty(like.shape, device="cpu")
    whole.__dict__.update(copied.__dict__)
    for name in getattr(like, "__slots__", ()):
        if hasattr(copied, name):
            setattr(whole, name, getattr(copied, name))
    return whole


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor's numbers lie at its address; not so of what _make_wrapper_subclass() has
    made."""
    if not tensor.numel() or tensor.is_meta:
        return True
    try:
        return tensor.data_ptr() != 0
    except RuntimeError:
        return False


class _Parts(pickle.Pickler):
    """Finds the tensors, and the storages of what is no strided tensor, in the order of the pickle,
    which is dropped."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), 5, buffer_callback=lambda _: None)
        self.found: list[Any] = []

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self.found.append(value)
            plain = value.layout == torch.strided and not value.is_quantized
            if plain and not value.is_nested and has_memory(value) and not vars(value):
                return _nothing, ()
        elif isinstance(value, (TypedStorage, UntypedStorage)):
            self.found.append(value)
            return _nothing, ()
        return NotImplemented


def _nothing() -> None:
    return None


def _parts(value: Any) -> list[Any] | None:
    """None: it cannot be pickled, and so no save of it can be written."""
    pickler = _Parts()
    try:
        pickler.dump(value)
    except Exception:  # whatever objects of the user raise
        return None
    return pickler.found


def _differs(value: Any, copied: Any) -> type | None:
    """The class of the first tensor whose copy is another."""
    given, there = _parts(value), _parts(copied)
    if given is None:
        return None
    for one, other in zip(given, there or ()):
        if type(one) is not type(other) or not _same(one, other):
            return type(one)
    if len(given) != len(there or ()):
        return type(given[0] if given else value)
    return None


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return torch.equal(_bytes_of(one), _bytes_of(other))
    if one.dtype != other.dtype or one.is_nested != other.is_nested:
        return False
    if not one.is_nested and one.shape != other.shape:
        return False
    if one.layout != torch.strided or one.is_quantized or one.is_nested or one.is_meta:
        return True  # its parts are compared
    if not has_memory(one) or not has_memory(other):
        return has_memory(one) == has_memory(other)
    return torch.equal(_numbers(one), _numbers(other))


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's numbers in C order."""
    plain = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
    plain = plain.cpu().contiguous()
    size = plain.numel() * plain.element_size()
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(
        plain.untyped_storage(), plain.storage_offset() * plain.element_size(), (size,))


def _bytes_of(storage: Any) -> torch.Tensor:
    untyped = storage if isinstance(storage, UntypedStorage) else storage._untyped_storage
    if untyped.device.type == "meta":
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(untyped.cpu())
