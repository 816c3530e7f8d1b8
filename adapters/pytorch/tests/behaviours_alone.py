# SPDX-License-Identifier: Apache-2.0
"""Behaviours of dcp.save() and dcp.load() in one process."""

from __future__ import annotations

import copy
import io
import os
import pathlib
import pickle
import warnings
from collections import OrderedDict
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from behaviour import Place, behaviour, outcome, plain, zeros
from torch import nn
from torch.distributed.checkpoint._checkpointer import _Checkpointer
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import (
    _load_state_dict,
    _load_state_dict_from_keys,
)
from torch.distributed.checkpoint.state_dict_saver import _save_state_dict


def small(seed: int = 1) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(seed)
    return {"w": torch.randn(4, 6, generator=draw), "b": torch.randn(6, generator=draw),
            "opt": {"m": torch.randn(3, generator=draw), "lr": 0.5 * seed}, "step": seed}


def net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 2, bias=False))


def stepped(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = net(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1 * seed)
    model(torch.randn(3, 5)).sum().backward()
    optimizer.step()
    return model, optimizer


class Counter:
    """Stateful."""

    def __init__(self, value: int) -> None:
        self.value, self.tensor, self.told = value, torch.full((2,), float(value)), 0

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "tensor": self.tensor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.told += 1
        self.value, self.tensor = state["value"], state["tensor"].clone()


# ---- states --------------------------------------------------------------------------------------


@behaviour()
def a_modules_state_comes_back(at: Place) -> Any:
    model, other = net(1), net(2)
    at.save({"model": model.state_dict()})
    state = at.load({"model": other.state_dict()})
    other.load_state_dict(state["model"], strict=True)
    assert all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))
    return plain(dict(other.state_dict()))


@behaviour()
def a_modules_state_at_the_top(at: Place) -> Any:
    """The state dict itself, an OrderedDict with _metadata, and no dict around it."""
    at.save(net(1).state_dict())
    return plain(dict(at.load(net(2).state_dict())))


@behaviour(cases=(False, True))
def a_model_and_its_optimizer_come_back(at: Place, flat: bool) -> Any:
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    model, optimizer = stepped(1)
    weights, moments = get_state_dict(model, optimizer, options=options)
    at.save({"model": weights, "optimizer": moments})
    model, optimizer = stepped(2)
    weights, moments = get_state_dict(model, optimizer, options=options)
    read = at.load({"model": weights, "optimizer": moments})
    set_state_dict(model, optimizer, model_state_dict=read["model"],
                   optim_state_dict=read["optimizer"], options=options)
    assert optimizer.param_groups[0]["lr"] == 0.1
    return plain(get_state_dict(model, optimizer, options=options))


@behaviour()
def an_optimizer_that_has_made_no_step_is_filled(at: Place) -> Any:
    model, optimizer = stepped(1)
    at.save({"optimizer": get_optimizer_state_dict(model, optimizer)})
    model = net(2)
    fresh = torch.optim.AdamW(model.parameters(), lr=0.9)
    read = at.load({"optimizer": get_optimizer_state_dict(model, fresh)})
    return plain(read)


@behaviour(cases=("sgd", "adagrad", "rmsprop", "lbfgs_like"))
def states_of_other_optimizers_come_back(at: Place, kind: str) -> Any:
    def make(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = net(seed)
        optimizer = {
            "sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            "adagrad": lambda: torch.optim.Adagrad(model.parameters(), lr=0.1),
            "rmsprop": lambda: torch.optim.RMSprop(model.parameters(), lr=0.1, centered=True),
            "lbfgs_like": lambda: torch.optim.Adam(
                [{"params": [p], "lr": torch.tensor(0.1 * i + 0.1)}
                 for i, p in enumerate(model.parameters())], foreach=False)}[kind]()
        model(torch.randn(3, 5)).sum().backward()
        optimizer.step()
        return model, optimizer

    at.save({"optimizer": make(1)[1].state_dict()})
    return plain(at.load({"optimizer": make(2)[1].state_dict()}))


@behaviour()
def values_that_are_no_tensors_come_back(at: Place) -> Any:
    state = {"int": 3, "big": 1 << 70, "float": -0.0, "text": "größe", "bytes": b"\0\1",
             "none": None, "true": True, "tuple": (1, "a", None), "list": [1, 2], "set": {1, 2},
             "complex": 1 - 2j, "dtype": torch.float16, "size": torch.Size([2, 3]),
             "empty": "", "path": pathlib.PurePosixPath("/a/b")}
    at.save(state)
    return at.load(dict.fromkeys(state))


@behaviour()
def nested_states_come_back(at: Place) -> Any:
    one = torch.arange(3.0)
    state: dict[str, Any] = {
        "d": {"e": {"f": one + 1, 7: one + 2}, "empty": {}}, "list": [one, {"g": one + 3}, [one]],
        "numbers": [1, 2, 3], "tuple": (1, (2, 3)), "nothing": [], "a.b": one + 4,
        "ordered": OrderedDict(z=one, a=one + 5)}
    at.save(state)
    return plain(at.load(zeros(state)))


@behaviour()
def names_that_flatten_alike_are_an_error(at: Place) -> Any:
    return outcome(lambda: at.save({"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}}))


@behaviour()
def tensors_of_all_shapes_and_layouts_come_back(at: Place) -> Any:
    base = torch.randn(6, 8, generator=torch.Generator().manual_seed(3))
    state = {"scalar": torch.tensor(2.5), "empty": torch.empty(0), "empty2": torch.empty(0, 4),
             "turned": base.t(), "every_other": base[::2, 1::3], "expanded": base[:1].expand(4, 8),
             "parameter": nn.Parameter(base[2]), "buffer": nn.Buffer(base[3]),
             "last": base.view(1, 6, 8, 1).to(memory_format=torch.channels_last)}
    at.save(state)
    read = at.load({key: torch.zeros(value.shape) for key, value in state.items()})
    assert all(torch.equal(read[key], value) for key, value in state.items())
    return plain(read)


@behaviour()
def tensors_that_share_memory_come_back(at: Place) -> Any:
    one = torch.arange(6.0)
    at.save({"a": one, "b": one, "c": one[2:4]})
    return plain(at.load({"a": torch.zeros(6), "b": torch.zeros(6), "c": torch.zeros(2)}))


@behaviour()
def targets_are_filled_in_place(at: Place) -> Any:
    at.save({"w": torch.arange(6.0).view(2, 3), "n": {"v": torch.ones(2)}})
    whole = torch.zeros(3, 2)
    target = {"w": whole.t(), "n": {"v": nn.Parameter(torch.zeros(2))}}
    kept = target["w"], target["n"], target["n"]["v"]
    at.load(target)
    assert (target["w"], target["n"], target["n"]["v"]) == kept or all(
        a is b for a, b in zip((target["w"], target["n"], target["n"]["v"]), kept))
    return whole, plain(target["n"])


@behaviour(cases=((torch.float32, torch.float16), (torch.float16, torch.float64),
                  (torch.float32, torch.int64), (torch.bfloat16, torch.float32),
                  (torch.complex64, torch.complex128), (torch.int32, torch.bool)))
def another_dtype_is_cast(at: Place, pair: Any) -> Any:
    stored, wanted = pair
    at.save({"w": torch.tensor([0, 1, -3, 7]).to(stored)})
    return at.load({"w": torch.zeros(4, dtype=wanted)})


@behaviour()
def stateful_and_other_values_side_by_side(at: Place) -> Any:
    at.save({"counter": Counter(5), "plain": torch.ones(2), "n": 3})
    counter = Counter(0)
    read = at.load({"counter": counter, "plain": torch.zeros(2), "n": 0})
    assert read["counter"] is counter and counter.told == 1
    return counter.value, counter.tensor, read["plain"], read["n"]


@behaviour(differs="sparse tensors are refused by name; files of torch.save keep them")
def sparse_tensors(at: Place) -> Any:
    found = outcome(lambda: at.save({"s": torch.eye(3).to_sparse()}) and "saved")
    if at.memory:
        assert "HearthError" in found.kinds[0]
    return found


# ---- what is asked for ---------------------------------------------------------------------------


@behaviour()
def less_than_was_saved_may_be_loaded(at: Place) -> Any:
    at.save(small())
    return plain(at.load({"b": torch.zeros(6), "opt": {"lr": 0.0}}))


@behaviour()
def a_missing_key_is_an_error_unless_partial_loads_are_allowed(at: Place) -> Any:
    at.save(small())
    strict = {"w": torch.zeros(4, 6), "new": torch.full((2,), 8.0)}
    found = [outcome(lambda: at.load(strict))]
    assert not strict["w"].any(), "nothing is loaded where something is missing"
    planner = dcp.DefaultLoadPlanner(allow_partial_load=True)
    for target in ({"w": torch.zeros(4, 6), "new": torch.full((2,), 8.0), "deep": {"k": 4}},
                   {"new": 1}):
        found.append(plain(at.load(target, planner=planner)))
    return found


@behaviour(cases=((4, 7), (3, 6), (24,), (4, 6, 1)))
def another_size_is_an_error(at: Place, shape: Any) -> Any:
    at.save(small())
    target = {"w": torch.zeros(shape), "b": torch.zeros(6)}
    found = outcome(lambda: at.load(target))
    assert found.kinds[0][0] == "ValueError", found
    return found, target


@behaviour()
def a_tensor_where_a_value_was_and_the_reverse(at: Place) -> Any:
    at.save({"tensor": torch.ones(2), "value": 5})
    return (outcome(lambda: at.load({"tensor": 1})),
            outcome(lambda: at.load({"value": torch.zeros(2)})))


@behaviour()
def keys_without_a_state(at: Place) -> Any:
    """A checkpoint, or parts of it, as a new dict."""
    at.save(small())
    return [plain(_load_state_dict_from_keys(
        keys, checkpoint_id=at.path(), storage_reader=at.reader()))
        for keys in (None, "w", {"w", "step"}, {"opt"}, "opt.lr", {"nothing"}, set())]


@behaviour()
def an_empty_state_is_filled_with_everything(at: Place) -> Any:
    at.save({**small(), "list": [torch.ones(1), {"k": 2}]})
    state: dict[str, Any] = {}
    _load_state_dict(state, storage_reader=at.reader(1), planner=_EmptyStateDictLoadPlanner(),
                     no_dist=True)
    return plain(state)


@behaviour()
def an_empty_state_can_be_saved(at: Place) -> Any:
    at.save({})
    return at.load({}), at.reader(1).read_metadata().state_dict_metadata


@behaviour()
def the_metadata_can_be_read_by_itself(at: Place) -> Any:
    at.save(small())
    metadata = at.reader(1).read_metadata()
    return metadata.state_dict_metadata, metadata.planner_data, sorted(
        (index.fqn, index.offset) for index in metadata.storage_data)


@behaviour(differs="save() returns Metadata without storage_data: reading it is the reader's part")
def the_metadata_that_save_returns(at: Place) -> Any:
    metadata = at.save(small())
    assert metadata.state_dict_metadata == at.reader(1).read_metadata().state_dict_metadata
    return metadata.storage_data is None


# ---- ids, writers and readers --------------------------------------------------------------------


@behaviour()
def an_id_may_be_a_path(at: Place) -> Any:
    dcp.save(small(), checkpoint_id=pathlib.Path(at.path()), storage_writer=at.writer())
    target = zeros(small())
    dcp.load(target, checkpoint_id=pathlib.Path(at.path()), storage_reader=at.reader())
    return plain(target)


@behaviour()
def a_writer_and_a_reader_may_know_their_checkpoint_themselves(at: Place) -> Any:
    dcp.save(small(), storage_writer=at.writer(1))
    target = zeros(small())
    dcp.load(target, storage_reader=at.reader(1))
    return plain(target)


@behaviour()
def one_writer_and_one_reader_serve_several_checkpoints(at: Place) -> Any:
    writer, reader, read = at.writer(), at.reader(), []
    for step in (1, 2, 3):
        at.save(small(step), step, storage_writer=writer)
        read.append(plain(at.load(zeros(small()), step, storage_reader=reader)))
    return read


@behaviour()
def the_deprecated_calls_work(at: Place) -> Any:
    target = zeros(small())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        dcp.save_state_dict(small(), at.writer(1), no_dist=True)
        dcp.load_state_dict(target, at.reader(1), no_dist=True)
    return plain(target)


@behaviour()
def a_checkpointer_of_a_writer_and_a_reader(at: Place) -> Any:
    """Its save() hands over an argument that torch 2.13's save() does not take."""
    checkpointer = _Checkpointer(at.writer(1), at.reader(1), no_dist=True)
    saved = outcome(lambda: checkpointer.save(small()) and "saved")
    checkpointer.async_save(small(2)).result(60)
    read = zeros(small())
    checkpointer.load(read)
    assert read["step"] == 2
    return saved, plain(read)


@behaviour()
def no_dist_is_one_process(at: Place) -> Any:
    at.save(small(), no_dist=True)
    return plain(at.load(zeros(small()), no_dist=True))


@behaviour()
def a_checkpoint_that_is_not_there_is_an_error(at: Place) -> Any:
    at.save(small())
    return outcome(lambda: at.load(zeros(small()), 9))


@behaviour()
def a_second_save_under_an_id_replaces_the_first(at: Place) -> Any:
    at.save(small(1))
    at.save({"other": torch.ones(3), "step": 2})
    assert list(at.reader(1).read_metadata().state_dict_metadata) == ["other", "step"]
    return plain(at.load({"other": torch.zeros(3), "step": 0}))


@behaviour()
def overwrite_false_refuses_a_second_save(at: Place) -> Any:
    at.save(small(1), storage_writer=at.writer(overwrite=False))
    found = outcome(lambda: at.save(small(2), storage_writer=at.writer(overwrite=False)))
    assert "RuntimeError" in found.kinds[0]
    return found, plain(at.load(zeros(small())))


@behaviour(differs="DCP chooses files by the look of an id; memory is chosen by naming "
                   "HearthWriter, or by hearth_checkpoint.torch.dcp")
def a_writer_is_found_by_the_look_of_an_id(at: Place) -> Any:
    kinds = type(at.writer()), type(at.reader())
    return [kind.validate_checkpoint_id(name)
            for kind in kinds for name in (at.path(), pathlib.Path(at.path()), "s3://a/b")]


@behaviour(differs="options of files (threads, fsync, one file per item, extensions, safetensors) "
                   "are refused by name")
def options_of_files(at: Place) -> Any:
    def tried(**option: Any) -> Any:
        return outcome(lambda: at.writer(**option) and "taken")

    found = [tried(single_file_per_rank=False), tried(thread_count=2), tried(sync_files=False),
             tried(cache_staged_state_dict=True), tried(_extensions=[])]
    if at.memory:
        assert all("TypeError" in each.kinds[-1] for each in found), found
    return found


# ---- conversions and older checkpoints -----------------------------------------------------------


@behaviour(differs="dcp_to_torch_save() reads files and finds none of them; the next behaviour is "
                   "how it is done")
def dcp_to_torch_save_of_its_folder(at: Place) -> Any:
    at.save(small())
    out = f"{at.folder}-one.pt"
    found = outcome(lambda: dcp_to_torch_save(at.path(), out))
    return plain(torch.load(out)) if found is None else found


@behaviour()
def a_checkpoint_becomes_a_file_of_torch_save(at: Place) -> Any:
    """What dcp_to_torch_save() does, with a reader that is named."""
    at.save(small())
    state: dict[str, Any] = {}
    _load_state_dict(state, storage_reader=at.reader(1), planner=_EmptyStateDictLoadPlanner(),
                     no_dist=True)
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return plain(torch.load(file))


@behaviour()
def a_file_of_torch_save_becomes_a_checkpoint(at: Place) -> Any:
    """What torch_save_to_dcp() does, with a writer that is named."""
    file = io.BytesIO()
    torch.save(small(), file)
    file.seek(0)
    _save_state_dict(torch.load(file), storage_writer=at.writer(1), no_dist=True)
    return plain(at.load(zeros(small())))


@behaviour()
def what_torch_save_to_dcp_wrote_is_loaded_and_saved_on(at: Place) -> Any:
    """From files in either case: storage is where such a conversion ends."""
    os.makedirs(f"{at.folder}-files", exist_ok=True)
    one, files = f"{at.folder}-files/one.pt", f"{at.folder}-files/dcp"
    torch.save(small(), one)
    torch_save_to_dcp(one, files)
    state = zeros(small())
    dcp.load(state, checkpoint_id=files)
    at.save(state)
    return plain(at.load(zeros(small())))


@behaviour()
def a_checkpoint_goes_from_one_storage_to_the_other(at: Place) -> Any:
    """Loaded with one reader, saved with the other's writer, and back."""
    at.save(small())
    state = at.load(zeros(small()))
    dcp.save(state, storage_writer=dcp.FileSystemWriter(f"{at.folder}-files"))
    back = zeros(small())
    dcp.load(back, storage_reader=dcp.FileSystemReader(f"{at.folder}-files"))
    at.save(back, 2)
    return plain(at.load(zeros(small()), 2))


@behaviour()
def a_writer_and_its_plans_can_be_copied_and_pickled(at: Place) -> Any:
    writer = pickle.loads(pickle.dumps(at.writer()))
    at.save(small(), storage_writer=writer)
    first = plain(at.load(zeros(small())))
    at.save(small(2), 2, storage_writer=copy.deepcopy(at.writer()))
    return first, plain(at.load(zeros(small()), 2))


@behaviour()
def weights_alone_go_into_another_optimizers_job(at: Place) -> Any:
    """Fine-tuning: the model's part of a checkpoint, a new head, a new optimizer."""
    model, optimizer = stepped(1)
    weights, moments = get_state_dict(model, optimizer)
    at.save({"model": weights, "optimizer": moments})
    tuned = nn.Sequential(*net(2)[:3], nn.Linear(7, 4))
    state = {"model": get_model_state_dict(tuned, options=StateDictOptions(
        ignore_frozen_params=True))}
    body = {"model": {key: value for key, value in state["model"].items()
                      if not key.startswith("3.")}}
    at.load(body)
    result = tuned.load_state_dict({**state["model"], **body["model"]})
    assert not result.missing_keys
    return plain(dict(tuned.state_dict()))
