PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.DEFAULT_GOAL := help
.PHONY: help demo test check lint bench-speed pictures clean

help:  ## list the targets
	@grep -hE '^[a-z.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(READY)  ## train the paper's small network with the hook and explain a few images (two minutes)
	$(BIN)/python examples/demo.py

test: $(READY)  ## run the tests
	$(BIN)/python -m pytest

check: $(READY) lint  ## what continuous integration runs: ruff, strict mypy, all tests
	$(BIN)/python -m pytest -m "slow or not slow"

lint: $(READY)  ## ruff and strict mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-speed: $(READY)  ## measure the speed claims as ratios in one run (five minutes)
	$(BIN)/python benchmarks/speed.py

pictures: demo  ## make the README's pictures anew
	cp demo/linear.png demo/translations_rotations.png docs/pictures/

clean:  ## remove the environment and what the demo wrote
	rm -rf .venv demo

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@# Beside the environment, not in it: this torchvision cannot be imported with every torch build, and then
	@# other libraries fail next to it. The tests that need it put it on their path.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .venv/beside -c constraints.txt torchvision timm
	@touch $@
