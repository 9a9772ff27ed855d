# Each target sets up .venv by itself, then does its one job. Nothing in the tree relies on make:
# where the packages are there already, the commands below are enough.

PYTHON ?= python3
BIN := .venv/bin
# CuPy is of use only where there is a GPU to launch on.
EXTRAS := dev$(shell nvidia-smi -L >/dev/null 2>&1 && echo ,cupy)
CSRC := $(shell find csrc -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.h')
# Nothing to find for a torch without CUDA; setup.py then says so.
FIND_NVCC = $(BIN)/python -c 'import torch; from cuda_impl import toolkit; \
	torch.version.cuda is None or toolkit.find_toolkit(torch.version.cuda)' 2>/dev/null

.PHONY: report test check extension

# Checks and measures all that this machine can run. Goes on where the extension fails to build,
# and says so by its exit code.
report: .venv/installed
	@$(MAKE) --no-print-directory extension; built=$$?; \
	$(BIN)/python -m pytest --benchmark && exit $$built

test: extension
	$(BIN)/python -m pytest

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CSRC)

# EX_UNAVAILABLE (69) is setup.py's answer where something is missing; it has said what.
extension: .venv/installed
	@$(FIND_NVCC) || $(BIN)/python -m pip install --editable '.[nvcc]' || true
	@$(BIN)/python setup.py build_ext --inplace || { code=$$?; [ $$code = 69 ] || exit $$code; \
	echo "Going on without the extension; what needs it is skipped."; }

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "Python 3.11 or later is needed: make PYTHON=python3.11, if that is its name here"; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	echo "$(PYTHON) can't make a virtual environment: apt-get install python3-venv"; exit 1; }
	[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --editable '.[$(EXTRAS)]'
	@touch $@
