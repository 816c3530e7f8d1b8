# SPDX-License-Identifier: Apache-2.0
"""The blocks `python run` of the pages, one after the other as they stand on a page, in a process
of one rank. Beside them are only names that the reader has: a state, a base, steps."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ranks import DEADLINE_S, port

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", "..", ".."))
BLOCK = re.compile(r"^```python run\n(.*?)^```$", re.M | re.S)

# What a page has done before its first block, beside _BEFORE.
PAGES = {
    "README.md": "dist.init_process_group()",
    "docs/start/pytorch.md": "",
    "docs/use/saving.md": "dist.init_process_group(); path, n = f'{base}/step-50_ckpt', 60",
    "docs/use/loading.md": "dist.init_process_group()",
    "docs/use/recovery.md": "dist.init_process_group(); saved(40)",
    "docs/use/gpu.md": "dist.init_process_group(); model, batch = torch.nn.Linear(4, 2), "
                       "torch.ones(1, 4); optimizer = torch.optim.SGD(model.parameters(), 0.1)",
    "docs/use/parts.md": "dist.init_process_group()",
    "adapters/pytorch/README.md": "",
}
_BEFORE = """
import io
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
base, storage, page = {base!r}, {storage!r}, {page!r}
state = {{"weight": torch.arange(8.0)}}
model_state, optim_state = {{"weight": torch.ones(4)}}, {{"moment": torch.zeros(4)}}
common_state = {{"iteration": 40}}
rank, step, n, first, last = 0, 40, 40, 38, 41


def saved(step):
    import hearth_checkpoint.torch.dcp
    hearth_checkpoint.torch.dcp.save(state, checkpoint_id=f"{{base}}/step-{{step}}_ckpt")


"""
_AFTER = """
if "future" in globals() and future:
    future.result()
import hearth_checkpoint.torch
hearth_checkpoint.torch.leave(base, keep=False)
print("to the end", flush=True)
"""
# torch is imported once, which takes longer than all pages.
_ALL = """
import json
import os
import sys
import traceback
import torch.distributed.checkpoint
import hearth_checkpoint.torch.dcp

for program, environment, log in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        os.environ.update(environment)
        for number in (1, 2):
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
        try:
            exec(program, {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.waitpid(child, 0)
"""


def run_blocks(page: str) -> list[tuple[int, str]]:
    """(number of its first line, code) of each."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        text = f.read()
    return [(text.count("\n", 0, found.start(1)) + 1, found.group(1))
            for found in BLOCK.finditer(text)]


def listed() -> list[str]:
    return subprocess.run(["git", "-C", ROOT, "ls-files", "*.md"], check=True, text=True,
                          capture_output=True).stdout.splitlines()


def test_each_page_with_blocks_is_run() -> None:
    """A page whose blocks are marked stands above."""
    if not os.path.exists(os.path.join(ROOT, ".git")):
        pytest.skip("the tree is no clone: git lists no pages")
    assert {page for page in listed() if run_blocks(page)} == set(PAGES)


def program_of(page: str, base: str, storage: str) -> str:
    program = _BEFORE.format(base=base, storage=storage, page=page) + PAGES[page] + "\n"
    for number, code in run_blocks(page):
        code = code.replace("/mnt/hearth/my-job", base).replace("/storage/run", storage)
        code = "\n" * (number - 1) + code  # a fault is told by the page's own line
        program += f"exec(compile({code!r}, page, 'exec'))\n"
    return program + _AFTER


@pytest.fixture(scope="module")
def printed() -> Iterator[dict[str, str]]:
    """What each page printed."""
    folder = tempfile.mkdtemp(prefix="hearth-pages-", dir="/dev/shm")
    tasks, logs = [], {}
    for number, page in enumerate(sorted(PAGES)):
        os.makedirs(f"{folder}/{number}/root")
        logs[page] = f"{folder}/{number}/log"
        environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(port()), "GLOO_SOCKET_IFNAME": "lo",
                       "HEARTH_ALLOW_DEGRADED": "1", "HEARTH_LINGER_S": "5",
                       "HEARTH_TRANSPORT": "tcp", "HEARTH_KEEP": "3"}
        program = program_of(page, f"{folder}/{number}/root/my-job", f"{folder}/{number}/storage")
        tasks.append((program, environment, logs[page]))
    path = os.pathsep.join([os.path.dirname(HERE), os.environ.get("PYTHONPATH", "")])
    ours = {name: value for name, value in os.environ.items()
            if not name.startswith("HEARTH_") or name == "HEARTH_LIBRARY"}
    subprocess.run([sys.executable, "-c", _ALL], input=json.dumps(tasks), text=True,
                   env=ours | {"PYTHONPATH": path}, timeout=2 * DEADLINE_S, check=True)
    texts = {}
    for page, log in logs.items():
        with open(log, encoding="utf-8") as f:
            texts[page] = f.read()
    yield texts
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_blocks_run_as_they_stand(page: str, printed: dict[str, str]) -> None:
    assert "to the end\n" in printed[page], printed[page][-4000:]


def test_a_block_that_fails_is_told_by_its_line(tmp_path: Path, monkeypatch: Any) -> None:
    """What the tests above rest on."""
    (tmp_path / "a.md").write_text("# A\n\n```python run\nfirst = 1\nfirst.gone\n```\n")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", str(tmp_path))
    monkeypatch.setitem(PAGES, "a.md", "")
    assert run_blocks("a.md") == [(4, "first = 1\nfirst.gone\n")]
    with pytest.raises(AttributeError) as failed:
        exec(program_of("a.md", "/nowhere", "/nowhere"), {})
    assert failed.traceback[-1].lineno + 1 == 5
