PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
# Two processes of one thread each, a file of tests after the other: many tests wait for processes of their own.
TWO := -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help demo test check nightly lint bench-speed pictures screenshots results clean

help:  ## list the targets
	@grep -hE '^[a-z.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(READY)  ## the paper's first experiment: train, explain, score and check its claims (seven minutes on two cores)
	$(BIN)/agop bench xai-tris --out runs/xai-tris
	@$(BIN)/agop report runs/xai-tris > /dev/null
	@echo "open runs/xai-tris/index.html"

test: $(READY)  ## run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(TWO)

check: $(READY) lint  ## what continuous integration runs: ruff, strict mypy, all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(TWO) -m "not nightly"

nightly: $(READY)  ## ResNet-50 and ViT-B/16 at 224 px within 4 GiB, with every method (forty minutes on two busy cores)
	$(BIN)/python -m pytest -m nightly

lint: $(READY)  ## ruff and strict mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-speed: $(READY)  ## measure the speed claims as ratios in one run (eight minutes)
	$(BIN)/python benchmarks/speed.py

pictures: $(READY)  ## make the README's pictures anew, by its example (two minutes)
	$(BIN)/python examples/train_and_explain.py
	cp demo/linear.png demo/translations_rotations.png docs/pictures/

screenshots: $(READY) runs/xai-tris/rows.jsonl  ## make the README's screenshots anew, with chromium (seconds after `make demo`)
	$(BIN)/python docs/make_screenshots.py runs/xai-tris docs/pictures

runs/xai-tris/rows.jsonl: | $(READY)
	$(BIN)/agop bench xai-tris --out runs/xai-tris

results: $(READY)  ## make docs/results.md anew: 10 seeds of XAI-TRIS, one of CLEVR-XAI (an hour on two cores)
	$(BIN)/agop bench xai-tris --seeds 10 --out runs/xai-tris-10
	$(BIN)/agop bench xai-tris --seeds 10 --out runs/xor-signed --masks signed \
		--scenario xor --background uncorrelated --metric pointing_game --metric iou --metric energy
	$(BIN)/agop bench clevr-xai --out runs/clevr-xai
	$(BIN)/python docs/make_results.py runs/xai-tris-10 runs/xor-signed runs/clevr-xai > docs/results.md
	$(BIN)/python docs/make_clevr_picture.py runs/clevr-xai docs/pictures/clevr-xai.png

clean:  ## remove the environment and what the examples wrote
	rm -rf .venv demo runs

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@# Beside the environment, not in it: this torchvision cannot be imported with every torch build, and then
	@# other libraries fail next to it. The tests that need it put it on their path.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .venv/beside -c constraints.txt torchvision timm
	@touch $@
