# SPDX-License-Identifier: Apache-2.0
"""What torch's own tests of torch.distributed.checkpoint ask of a writer and a reader: each
behaviour with files, the control, and in memory. BEHAVIOURS.md is their table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import behaviour
import pytest
from lacks import WHY, needs

TABLE = Path(__file__).parent.parent / "BEHAVIOURS.md"


def cases(ranks: bool) -> Iterator[Any]:
    for name, each in behaviour.known().items():
        if each.ranks != ranks:
            continue
        for case in each.cases or (None,):
            wanted = each.needs(case)
            yield pytest.param(name, case, id=f"{name}[{_say(case)}]" if each.cases else name,
                               marks=needs(wanted) if wanted else ())
    if WHY["experimental"]:
        yield pytest.param("", None, id="behaviours_rank_local", marks=needs("experimental"))


def _say(case: Any) -> str:
    return getattr(case, "__name__", None) or re.sub(r"\s+", " ", str(case))


def judge(name: str, files: Any, memory: Any) -> None:
    """What is the same, or what is said to differ."""
    lines = behaviour.alike(files, memory)
    if behaviour.known()[name].differs:
        assert lines, "this differs no longer: the table says that it does"
    else:
        assert not lines, "\n".join(lines)


@pytest.mark.parametrize("name, case", list(cases(ranks=False)))
def test_in_one_process(name, case, base, folder):
    files = behaviour.run(name, behaviour.Place(f"{folder}/files"), case)
    judge(name, files, behaviour.run(name, behaviour.Memory(base), case))


def test_the_table_lists_every_behaviour_and_no_other():
    """A line for each: its name, and where it differs why."""
    text = TABLE.read_text()
    if WHY["experimental"]:
        text = re.sub(r"(?ms)^## `_experimental`.*?(?=^## )", "", text)
    lines = re.findall(r"^\| `(\w+)` \| [^|]+ \| (holds|differs: .*) \|$", text, re.M)
    table = dict(lines)
    assert len(table) == len(lines)
    assert table == {name: f"differs: {each.differs}" if each.differs else "holds"
                     for name, each in behaviour.known().items()}
