# SPDX-License-Identifier: Apache-2.0
"""The package as a package: installed, as a wheel, where it finds the library, Python 3.10."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from pathlib import Path

import pytest

import hearth_checkpoint
from hearth_checkpoint import _ffi, errors

SOURCE = Path(__file__).resolve().parents[1]
FILES = sorted(SOURCE.glob("hearth_checkpoint/**/*.py"))

WHOLE_PATH = """
    import os, sys
    import torch, torch.distributed.checkpoint as dcp
    import hearth_checkpoint, hearth_checkpoint.torch as ht
    from hearth_checkpoint import _ffi
    base = sys.argv[1]
    dcp.save({"w": torch.arange(4.0)}, checkpoint_id=f"{base}/1",
             storage_writer=ht.HearthWriter(base), no_dist=True)
    state = {"w": torch.zeros(4)}
    dcp.load(state, checkpoint_id=f"{base}/1", storage_reader=ht.HearthReader(), no_dist=True)
    assert state["w"].tolist() == [0, 1, 2, 3]
    ht.leave(base, keep=False)
    print(os.path.realpath(hearth_checkpoint.__file__), os.path.realpath(_ffi.library()._name))
"""
FIND = """
    import os
    from hearth_checkpoint import _ffi
    print(os.path.realpath(_ffi.library()._name))
"""


def pip(*args: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *map(str, args)],
        capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source, so that what a build leaves lies elsewhere."""
    path = tmp_path_factory.mktemp("source") / "pytorch"
    path.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(SOURCE / name, path)
    shutil.copytree(SOURCE / "hearth_checkpoint", path / "hearth_checkpoint",
                    ignore=shutil.ignore_patterns("__pycache__"))
    return path


@pytest.fixture(scope="module")
def installed(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has installed it."""
    path = tmp_path_factory.mktemp("site")
    pip("install", "--no-deps", "--no-build-isolation", "--no-index", "--target", path, copy)
    return path


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C library, installed from the build that it is taken from."""
    build = Path(_ffi.library()._name).resolve().parents[1]
    if not (build / "cmake_install.cmake").exists() or shutil.which("cmake") is None:
        pytest.skip(f"{build} is no build folder, or there is no cmake")
    path = tmp_path_factory.mktemp("prefix")
    done = subprocess.run(["cmake", "--install", str(build), "--prefix", str(path)],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return path


def run(code: str, site: Path, *args: str, python: Path | str = sys.executable,
        flags: tuple[str, ...] = (), **environment: str) -> str:
    """A process that knows of the library only what it is told here; its standard output."""
    clean = {name: value for name, value in os.environ.items()
             if name not in ("HEARTH_LIBRARY", "LD_LIBRARY_PATH", "PYTHONPATH")}
    done = subprocess.run(
        [str(python), *flags, "-c", textwrap.dedent(code), *args], capture_output=True, text=True,
        timeout=120, cwd=site, env={**clean, "PYTHONPATH": str(site), **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def library_of(prefix: Path) -> str:
    (path,) = {str(path.resolve()) for path in prefix.glob("lib*/**/libhearth.so.0.1")}
    return path


def test_the_installed_package_works_with_a_library_that_is_named(installed, base):
    library = _ffi.library()._name
    where, used = run(WHOLE_PATH, installed, base, HEARTH_LIBRARY=library).split()
    assert where.startswith(str(installed)) and used == os.path.realpath(library)
    assert (installed / "hearth_checkpoint" / "py.typed").exists()


def test_the_installed_package_works_with_an_installed_prefix(installed, prefix, base):
    """hearthd in PATH is enough to find the library; it finds its modules by itself."""
    path = f"{prefix}/bin:{os.environ['PATH']}"
    where, used = run(WHOLE_PATH, installed, base, PATH=path).split()
    assert where.startswith(str(installed)) and used == library_of(prefix)


def test_the_library_is_found_where_the_system_looks(installed, prefix):
    """A bare name, as /etc/ld.so.conf and LD_LIBRARY_PATH have it."""
    out = run("""
        from hearth_checkpoint import _ffi
        assert _ffi.library()._name == "libhearth.so.0.1"
        with open("/proc/self/maps") as maps:
            print(next(line.split()[-1] for line in maps if "libhearth" in line))
    """, installed, LD_LIBRARY_PATH=os.path.dirname(library_of(prefix)), PATH="/usr/bin:/bin")
    assert out == library_of(prefix)


def test_the_library_is_found_in_the_prefix_of_python(installed, prefix, tmp_path):
    """As conda, or a venv that Hearth was installed into."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True,
                   timeout=60)
    shutil.copytree(prefix / "lib", tmp_path / "lib", symlinks=True, dirs_exist_ok=True)
    out = run(FIND, installed, python=tmp_path / "bin" / "python", PATH="/usr/bin:/bin")
    assert out.startswith(f"{tmp_path.resolve()}/lib")


def test_a_library_beside_the_package_comes_first(installed, prefix, tmp_path):
    site = tmp_path / "site"
    shutil.copytree(installed, site)
    shutil.copy(library_of(prefix), site / "hearth_checkpoint" / "libhearth.so.0.1")
    out = run(FIND, site, PATH=f"{prefix}/bin:/usr/bin:/bin")
    assert out == str((site / "hearth_checkpoint" / "libhearth.so.0.1").resolve())


def test_a_library_that_lacks_a_function_is_not_taken(installed, tmp_path):
    """What was looked at, and why each would not do, is in the error."""
    folder = tmp_path / "lib"
    folder.mkdir()
    (tmp_path / "bin").mkdir()
    daemon = tmp_path / "bin" / "hearthd"
    daemon.write_text("#!/bin/sh\n")
    daemon.chmod(0o755)
    libc = next(line.split()[-1] for line in open("/proc/self/maps") if "libc.so" in line)
    shutil.copy(libc, folder / "libhearth.so.0.1")
    out = run("""
        from hearth_checkpoint import _ffi, errors
        try:
            _ffi.library()
        except errors.HearthLibraryMissing as error:
            print(error)
    """, installed, PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    assert f"{folder}/libhearth.so.0.1 (" in out and "HEARTH_LIBRARY" in out


def look_into(wheel: Path) -> None:
    """The package, its licence's text, and whose it is."""
    assert wheel.name == f"hearth_checkpoint-{hearth_checkpoint.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        folder = f"hearth_checkpoint-{hearth_checkpoint.__version__}.dist-info"
        metadata = archive.read(f"{folder}/METADATA").decode()
        licence = archive.read(f"{folder}/licenses/LICENSE")
    assert {str(path.relative_to(SOURCE)) for path in FILES} <= names
    assert "hearth_checkpoint/py.typed" in names
    assert not [n for n in names if not n.startswith(("hearth_checkpoint/", "hearth_checkpoint-"))]
    assert licence == (SOURCE / ".." / ".." / "LICENSE").read_bytes()
    for line in ("Name: hearth-checkpoint", "License-Expression: Apache-2.0",
                 "License-File: LICENSE", "Provides-Extra: torch"):
        assert line in metadata.splitlines(), line


def test_a_wheel_is_built(copy, tmp_path):
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", tmp_path, copy)
    (wheel,) = tmp_path.glob("*.whl")
    look_into(wheel)


def test_a_wheel_is_built_of_a_source_distribution(tmp_path):
    """Which is made in a checkout, where the licence lies elsewhere."""
    checkout = tmp_path / "checkout" / "adapters" / "pytorch"
    shutil.copytree(SOURCE, checkout, symlinks=True,
                    ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    shutil.copy(SOURCE / ".." / ".." / "LICENSE", tmp_path / "checkout")
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=checkout, timeout=120,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (source,) = tmp_path.glob("hearth_checkpoint-*.tar.gz")
    with tarfile.open(source) as archive:
        (licence,) = [m for m in archive.getmembers() if m.name.endswith("/LICENSE")]
        assert licence.isfile(), "a link leads nowhere outside of the checkout"
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    look_into(wheel)


def test_without_torch_the_extra_is_named(installed):
    out = run("""
        import hearth_checkpoint, hearth_checkpoint.job
        try:
            import hearth_checkpoint.torch
        except ImportError as error:
            print(type(error).__name__, error)
    """, installed, flags=("-S",))
    assert out == ("ImportError hearth_checkpoint.torch needs PyTorch: "
                   "pip install 'hearth-checkpoint[torch]'")


def test_experimental_says_which_torch_it_wants(installed):
    """With 2.8, or another that lacks what it stands in for; the rest does not need that."""
    out = run("""
        import importlib, importlib.util, sys, torch
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name: None if "_experimental" in name else find(name)
        torch.__version__ = "2.8.0"
        from hearth_checkpoint.torch import *
        import hearth_checkpoint.torch, hearth_checkpoint.torch._whole
        assert "experimental" not in hearth_checkpoint.torch.__all__ and HearthWriter and dcp
        assert not [name for name in sys.modules if "checkpoint._experimental" in name]
        for how in ("hearth_checkpoint.torch.experimental",
                    "importlib.import_module('hearth_checkpoint.torch.experimental')"):
            try:
                eval(how)
            except ImportError as error:
                print(error)
    """, installed)
    assert out.splitlines() == [
        "hearth_checkpoint.torch.experimental needs torch.distributed.checkpoint._experimental, "
        "which is in torch from 2.9 on, and this is torch 2.8.0"] * 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_python_3_10_reads_it(path):
    """No syntax that is newer, and no annotation that would be evaluated."""
    text = path.read_text()
    tree = ast.parse(text, feature_version=(3, 10))
    assert "SPDX-License-Identifier: Apache-2.0" in text.splitlines()[0]
    assert ast.get_docstring(tree), "a module says what it is"


def test_the_version_is_the_librarys():
    text = (SOURCE / ".." / ".." / "include" / "hearth" / "version.h").read_text()
    line = next(line for line in text.splitlines() if line.startswith("#define HEARTH_VERSION "))
    version = line.split('"')[1]
    assert hearth_checkpoint.__version__ == version == _ffi.library().hearth_version().decode()


# Errors of arguments that the package never gives.
NOT_FROM_HERE = {"hearth_keep_list", "hearth_checkpoint_id", "hearth_handle_id", "hearth_item_at",
                 "hearth_item_find", "hearth_item_in"}


def test_errors_name_the_calls_of_python():
    """If an error text of the library names a function, Python's error has its Python name."""
    top = SOURCE.parents[1]
    named = set()
    for folder in ("client", "engine", "loader", "replication"):
        for path in top.glob(f"{folder}/**/*.c"):
            code = re.sub(r"/\*.*?\*/|#include[^\n]*", "", path.read_text(), flags=re.S)
            for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', code):
                named.update(re.findall(r"hearth_\w+(?:\(\)|\.\w+)", text))
    named = {name for name in named if name.removesuffix("()") not in NOT_FROM_HERE}
    assert len(named) > 8
    for name in named:
        said = str(errors.make(-108, f"first {name}"))
        assert name not in said, f"{name} has no name in errors.py"
