"""The build: what it compiles for, what it rebuilds, and what it says when something is missing.

The compilers are scripts that leave an empty object behind, so that the rules are tested in
seconds; test_cuda_compile.py compiles the sources for real.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cuda_impl import flags, toolkit

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "csrc").glob("*.cu"))

# An nvcc and a c++ that answer what torch's build asks, write the dependencies that the host
# compiler finds, and compile nothing.
FAKE_COMPILER = """#!/bin/sh
case "$*" in
  *--version*) echo "Cuda compilation tools, release {release}, V{release}.1"; exit ;;
  *--dryrun*) echo "#$ TOP={home}" >&2; exit ;;
  *-dumpfullversion*) echo 12.2.0; exit ;;
esac
while [ $# -gt 0 ]; do
  case "$1" in
    -o) output=$2; shift ;;
    -MF) depfile=$2; shift ;;
    *.cu|*.cpp) source=$1 ;;
  esac
  shift
done
[ -z "$depfile" ] || {host} -x c++ -MM -MG -MF "$depfile" -MT "$output" "$source"
: > "$output"
"""


@pytest.fixture
def fake_toolkit(tmp_path: Path) -> Path:
    """A folder that looks like CUDA 13.0, with compilers that take no time."""
    return make_toolkit(tmp_path / "cuda", "13.0")


def make_toolkit(home: Path, release: str) -> Path:
    for folder in ("bin", "include", "lib64"):
        (home / folder).mkdir(parents=True)
    host = shutil.which("c++")
    assert host, "the tests need a host compiler"
    for name in ("nvcc", "c++"):
        script = home / "bin" / name
        script.write_text(FAKE_COMPILER.format(release=release, home=home, host=host))
        script.chmod(0o755)
    (home / "include" / "cuda_fp16.h").touch()
    (home / "lib64" / "libcudart.so").touch()
    return home


def build(tree: Path, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    compiler = str(home / "bin" / "c++")
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=tree,
        env={
            **os.environ,
            "CUDA_HOME": str(home),
            "CXX": compiler,
            "CC": compiler,
            "TORCH_DONT_CHECK_COMPILER_ABI": "1",
            **environment,
        },
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("listed", "capability", "expected"),
    [
        ("8.6;9.0a", (9, 0), ("8.6", "9.0a")),
        ("8.6 9.0+PTX", None, ("8.6", "9.0a", "9.0+PTX")),
        ("8.0 9.0 10.0 12.0+PTX", (9, 0), ("8.0", "9.0a", "10.0", "12.0+PTX")),
        ("", (9, 0), ("9.0a",)),
        (None, (8, 6), ("8.6",)),
        ("", None, flags.DEFAULT_ARCHITECTURES),
        (None, None, flags.DEFAULT_ARCHITECTURES),
    ],
)
def test_architectures(
    listed: str | None, capability: tuple[int, int] | None, expected: tuple[str, ...]
) -> None:
    environment = {} if listed is None else {"TORCH_CUDA_ARCH_LIST": listed}
    assert flags.architectures(environment, capability) == expected


def test_nvrtc_compiles_for_what_nvcc_compiles_for() -> None:
    assert flags.nvrtc_arch((9, 0)) == "-arch=sm_90a"
    assert flags.nvrtc_arch((8, 0)) == "-arch=sm_80"
    assert flags.nvrtc_arch((10, 0)) == "-arch=sm_100"


def test_touching_one_source_rebuilds_one_object(tmp_path: Path, fake_toolkit: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("csrc", "cuda_impl"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("*.so"))
    shutil.copy(ROOT / "setup.py", tree)

    cutlass = tmp_path / "cutlass"
    (cutlass / "include" / "cutlass").mkdir(parents=True)
    (cutlass / "include" / "cutlass" / "cutlass.h").touch()

    def rebuilt() -> set[str]:
        started = time.time_ns()
        result = build(tree, fake_toolkit, CUTLASS_HOME=str(cutlass), TORCH_CUDA_ARCH_LIST="9.0a")
        assert result.returncode == 0, result.stdout + result.stderr
        objects = [path for path in tree.glob("build/temp*/**/*.o")]
        return {path.stem for path in objects if path.stat().st_mtime_ns >= started}

    everything = {path.stem for kind in ("cu", "cpp") for path in (ROOT / "csrc").glob(f"*.{kind}")}
    assert rebuilt() == everything
    assert rebuilt() == set()
    (tree / "csrc" / "chain_packed.cu").touch()
    assert rebuilt() == {"chain_packed"}
    (tree / "csrc" / "matmul_cutlass.cu").touch()
    assert rebuilt() == {"matmul_cutlass"}
    # A header that setup.py's globs don't build but that sources include.
    (tree / "csrc" / "kernels" / "softmax_row.cuh").touch()
    of_type = {f"softmax_registers_{name}" for name in ("float32", "float16", "bfloat16")}
    assert rebuilt() == {"softmax_online", *of_type}


def test_no_gpu_and_no_list_is_no_index_error(tmp_path: Path, fake_toolkit: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "csrc").mkdir(parents=True)
    (tree / "csrc" / "bindings.cu").touch()
    shutil.copytree(ROOT / "cuda_impl", tree / "cuda_impl")
    shutil.copy(ROOT / "setup.py", tree)
    result = build(tree, fake_toolkit, TORCH_CUDA_ARCH_LIST="", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0, result.stdout + result.stderr
    compiled_for = set(re.findall(r"gencode=arch=\w+,code=(\w+)", result.stdout))
    assert compiled_for == {"sm_80", "sm_90a", "sm_100", "compute_100"}


@pytest.mark.parametrize(
    ("listed", "reason"), [("8.0", "on Hopper alone"), ("8.0;9.0a", "pip install --no-deps")]
)
def test_without_cutlass_all_else_is_built(
    tmp_path: Path, fake_toolkit: Path, listed: str, reason: str
) -> None:
    tree = tmp_path / "tree"
    (tree / "csrc").mkdir(parents=True)
    for name in ("bindings.cu", "matmul_cutlass.cu"):
        (tree / "csrc" / name).touch()
    shutil.copytree(ROOT / "cuda_impl", tree / "cuda_impl", ignore=shutil.ignore_patterns("*.so"))
    shutil.copy(ROOT / "setup.py", tree)
    # Hides pip's package from the build where the tests' own environment has it.
    (tree / "cutlass_library.py").touch()
    result = build(tree, fake_toolkit, CUTLASS_HOME="", TORCH_CUDA_ARCH_LIST=listed)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(f"cuda_impl._cutlass is left out: .*{reason}", result.stdout)
    assert list((tree / "cuda_impl").glob("_C*.so"))
    assert not list((tree / "cuda_impl").glob("_cutlass*"))


def test_other_commands_need_no_compiler(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=ROOT,
        env={"PATH": "", "CUDA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("release", ["11.8", "12.9"])
def test_another_major_version_is_refused(tmp_path: Path, release: str) -> None:
    result = build(ROOT, make_toolkit(tmp_path / "old", release))
    assert result.returncode == os.EX_UNAVAILABLE
    assert f"nvcc {release}" in result.stderr
    assert "torch is built with CUDA 13" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wrong_cuda_home_is_named(tmp_path: Path) -> None:
    result = build(ROOT, tmp_path / "nowhere")
    assert result.returncode != 0
    assert f"CUDA_HOME is {tmp_path / 'nowhere'}" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No toolkit, no nvidia packages, nothing on PATH."""
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolkit, "SYSTEM_NVCC", tmp_path / "nvcc")
    monkeypatch.setattr(toolkit, "_pip_roots", lambda: [])
    return monkeypatch


def test_no_nvcc_says_how_to_get_it(bare_machine: pytest.MonkeyPatch) -> None:
    with pytest.raises(toolkit.ToolkitError, match=r"nvcc.*pip install 'nvidia-cuda-nvcc==13\.0"):
        toolkit.find_toolkit("13.0")


def test_torch_without_cuda_says_so(bare_machine: pytest.MonkeyPatch) -> None:
    with pytest.raises(toolkit.ToolkitError, match="without CUDA"):
        toolkit.find_toolkit(None)


def test_no_ninja_says_how_to_get_it(bare_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare_machine.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(toolkit.ToolkitError, match=r"ninja.*pip install ninja"):
        toolkit.find_ninja()
    ninja = tmp_path / "ninja"
    ninja.touch(mode=0o755)
    assert toolkit.find_ninja() == tmp_path


def test_no_host_compiler_says_how_to_get_it(bare_machine: pytest.MonkeyPatch) -> None:
    bare_machine.delenv("CXX", raising=False)
    with pytest.raises(toolkit.ToolkitError, match=r"c\+\+.*apt-get install g\+\+"):
        toolkit.require_host()


def test_no_python_headers_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toolkit.require_host()
    monkeypatch.setattr(toolkit.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(toolkit.ToolkitError, match=rf"{tmp_path}: apt-get install python3-dev"):
        toolkit.require_host()


def test_no_headers_says_how_to_get_them(bare_machine: pytest.MonkeyPatch) -> None:
    with pytest.raises(toolkit.ToolkitError, match=r"pip install nvidia-cuda-runtime"):
        toolkit.header_folders(None)


def test_pips_runtime_gets_the_link_that_the_linker_asks_for(
    bare_machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = tmp_path / "nvidia" / "cu13"
    (root / "lib").mkdir(parents=True)
    with pytest.raises(toolkit.ToolkitError, match="libcudart"):
        toolkit.runtime_library(root, tmp_path / "build")
    (root / "lib" / "libcudart.so.13").touch()
    folder = toolkit.runtime_library(root, tmp_path / "build")
    assert folder == tmp_path / "build"
    assert (folder / "libcudart.so").resolve() == root / "lib" / "libcudart.so.13"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_every_launch_is_checked(source: Path) -> None:
    text = source.read_text()
    launches = re.findall(r"<<<.*?>>>.*?;\s*(\S[^\n]*)", text, re.DOTALL)
    assert launches or "<<<" not in text
    for after in launches:
        assert "cudaGetLastError()" in after, f"{source.name}: {after}"


def test_a_kernel_header_includes_nothing_that_nvrtc_cannot_open() -> None:
    for header in sorted((ROOT / "csrc" / "kernels").glob("*.cuh")):
        for name in re.findall(r"#include <(.*)>", header.read_text()):
            assert name in ("cuda_bf16.h", "cuda_fp16.h"), f"{header.name} includes <{name}>"
