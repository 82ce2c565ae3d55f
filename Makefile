PYTHON ?= python3
BIN := .venv/bin
# The package with its required libraries, and everything that the tests and the documentation need.
PACKAGE := .venv/package
READY := .venv/dev
# Two worker processes with one thread each. A test file stays in one worker.
TWO := -n 2 --dist loadfile
# Some containers set it. Then every new process compiles all libraries again: importing lightning takes 22 s instead of 12.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo hello test rest check nightly hostile lint docs docs-serve bench-speed house pictures photos screenshots results clean

help:  ## list the targets
	@grep -hE '^[a-z.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: hello $(PACKAGE)  ## set up, run the paper's first experiment and write its report (under 6 minutes on 2 cores)
	$(BIN)/agop bench xai-tris --out runs/xai-tris
	@$(BIN)/agop report runs/xai-tris > /dev/null
	@echo "The lines below \"In short\" say what was found."
	@echo "All maps and scores are on one page: open runs/xai-tris/index.html"
	@echo "Next: explain a photograph, with \"Thirty seconds\" in README.md."

hello:
	@echo "1. Install torch and agop into .venv, unless they are there (1 to 2 minutes)."
	@echo "2. Train 24 small networks on shapes in noise, explain 400 images of each by 21 methods, and score the maps"
	@echo "   against the true shapes (4 minutes on one core, less on several). A line says what is left; Ctrl-C pauses."

test: $(READY)  ## set up, and run the fast tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(TWO)

rest: $(READY) lint docs  ## run what `make test` leaves out: ruff, strict mypy, the documentation, the slow tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(TWO) -m "slow and not nightly and not hostile"

check:  ## run `make test` and `make rest`, as in continuous integration
	$(MAKE) test
	$(MAKE) rest

nightly: $(READY)  ## test ResNet-50 and ViT-B/16 at 224 px: every method within 4 GiB (40 minutes on 2 busy cores)
	$(BIN)/python -m pytest -m nightly

hostile: $(READY)  ## damage files, kill processes, send hostile input; update docs/reliability.md (under 20 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python docs/make_reliability.py > docs/reliability.md.part
	mv docs/reliability.md.part docs/reliability.md

lint: $(READY)  ## run ruff and strict mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)  ## build the documentation into site/, offline and strict
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

docs-serve: docs  ## serve the documentation at http://127.0.0.1:8000, with search
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory site 8000

house: $(READY)  ## print the size of the code and how many files one call opens
	$(BIN)/python benchmarks/house.py

bench-speed: $(READY)  ## measure the speed claims, as ratios (15 minutes)
	$(BIN)/python benchmarks/speed.py

pictures: $(READY)  ## update the example images of the documentation, and the output in the tutorials (5 minutes)
	$(BIN)/python examples/train_and_explain.py
	cp demo/linear.png demo/translations_rotations.png docs/pictures/
	for page in shortcut training own-method beyond-classification; do (folder=$$(mktemp -d) && ln -s $(CURDIR)/examples $$folder && cd $$folder && \
		PATH=$(CURDIR)/$(BIN):$$PATH PYTHONPATH=$$folder:$(CURDIR) MPLBACKEND=agg \
		python -m tests.unit.test_pages $(CURDIR)/docs/tutorials/$$page.md --update && cp *.png $(CURDIR)/docs/pictures/) || exit 1; done

photos: $(READY)  ## update the README's picture of photographs (1 minute)
	$(BIN)/python docs/make_photo_picture.py docs/pictures/photos.png

screenshots: $(READY) runs/xai-tris/rows.jsonl  ## update the screenshots of the documentation; needs chromium (seconds after `make demo`)
	$(BIN)/python docs/make_screenshots.py runs/xai-tris docs/pictures

runs/xai-tris/rows.jsonl: | $(PACKAGE)
	$(BIN)/agop bench xai-tris --out runs/xai-tris

# MNIST's idx files and photographs for the composite benchmark, CIFAR-10 for planted shortcuts:
# make results DIGITS=FOLDER PHOTOS=FOLDER CIFAR10=FOLDER; with OBJECTS=CSV also cut-outs, by benchmarks/pretrained.py
DATA := $(if $(DIGITS),--digits $(DIGITS)) $(if $(PHOTOS),--photos $(PHOTOS))
CLASSES := $(if $(CIFAR10),--data $(CIFAR10))
# The paper's methods and the controls that don't depend on the model.
PAPER := $(addprefix --method ,random vanilla integrated-gradients smoothgrad gradcam gradcam++ agop-local agop-weighted \
	agop-global input sobel laplace centre mean-mask)
results: $(READY)  ## update docs/results.md: 10 seeds of XAI-TRIS, 3 at 64×64 and of digits on photographs, CLEVR-XAI (3 hours)
	$(BIN)/agop bench xai-tris --full --seeds 10 $(PAPER) --out runs/xai-tris-10
	$(BIN)/agop bench xai-tris --full --seeds 10 --network cnn --background uncorrelated --out runs/xai-tris-agop
	$(BIN)/agop bench xai-tris --full --seeds 10 --out runs/xor-signed --masks signed \
		--network cnn --scenario xor --background uncorrelated --metric pointing_game --metric iou --metric energy
	$(BIN)/agop bench xai-tris --full --seeds 10 --out runs/xor-once --restarts 0 \
		--network cnn --scenario xor --background uncorrelated --metric iou --metric average_precision
	$(BIN)/agop bench xai-tris-64 --out runs/xai-tris-64
	$(BIN)/agop bench composite $(DATA) --out runs/composite
	$(BIN)/agop bench clevr-xai --out runs/clevr-xai
	$(BIN)/agop bench xai-tris --untrained --seeds 10 --out runs/xai-tris-untrained
	$(BIN)/agop bench composite --untrained $(DATA) --scenario composite --out runs/composite-untrained
	$(BIN)/agop bench shortcuts $(CLASSES) --classes 3 --samples 3000 --first-seed 3 --seeds 3 --out runs/shortcuts
	$(BIN)/agop bench shortcuts $(CLASSES) --seeds 3 --out runs/watermark --kind watermark --strength strong \
		--prevalence confounder --prevalence balanced --prevalence none --label 3 --label 5 --detector audit
	for network in $(if $(OBJECTS),mobilenet_v2 efficientnet_lite0 efficientnet_lite1:240 efficientnet_lite2:260 resnet50); do \
		$(BIN)/agop bench cutouts --objects $(OBJECTS) --photos $(PHOTOS) --network benchmarks.pretrained:$${network%:*} \
		--size $$(expr $$network : '.*:\(.*\)' || echo 224) --out runs/cutouts-$${network%:*} || exit 1; done
	$(BIN)/python benchmarks/patch_speed.py runs/patch-speed.json
	$(BIN)/python docs/make_results.py runs docs
	$(BIN)/python docs/make_clevr_picture.py runs/clevr-xai docs/pictures/clevr-xai.png

clean:  ## remove .venv, demo, runs and site
	rm -rf .venv demo runs site

# `.venv/installing` exists during an install. If one failed or was interrupted, the next one starts from an empty
# environment: a killed pip may leave half a package behind.
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
define new_venv
	@if [ -e .venv/installing ]; then echo "the last install didn't finish: starting again"; rm -rf .venv; fi
	@mkdir -p .venv && touch .venv/installing
	$(PYTHON) -m venv .venv
endef

$(PACKAGE): pyproject.toml constraints.txt
	$(new_venv)
	$(PIP) -e .
	@rm .venv/installing && touch $@

$(READY): pyproject.toml constraints.txt
	$(new_venv)
	$(PIP) -e '.[dev]'
	@# In a separate folder: this torchvision fails to import with some torch builds, and then breaks other libraries.
	@# Tests that need torchvision or timm add the folder to their path.
	$(PIP) --no-deps --upgrade --target .venv/beside torchvision timm
	@rm .venv/installing && touch $(PACKAGE) $@
