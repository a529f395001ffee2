# RLTrainingJob: make demo trains a policy here; make test runs everything this machine can.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ROOMS  := crds operator trainer_image client
READY  := $(VENV)/.ready
EXTRAS := $(ROOMS:client=client[atari,onnx])
KERNEL := trainer_image/rltraining_trainer/dataflow/replay/sum_tree.c
# One process more than cores: some tests wait.
UNIT   := $(BIN)/python -m pytest tests/unit -n $(shell $(PYTHON) -c 'import os; print(os.cpu_count() + 1)') --dist worksteal

# Two cores or two hundred: one thread a process, the processes are the parallelism.
export OMP_NUM_THREADS ?= 1
# Also where bytecode is not to be kept: each process would compile torch again, which takes seconds.
export PYTHONDONTWRITEBYTECODE :=

# For make images: which builder, what goes before and after the images' names, further arguments.
BUILDER      ?= $(shell for tool in docker podman; do $$tool version >/dev/null 2>&1 && echo $$tool && exit; done; command -v buildah)
IMAGE_PREFIX ?=
TAG          ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' operator/pyproject.toml)
BUILD_ARGS   ?=

# Its theme else says of MkDocs' future, at each build, what is of no use here.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

.DEFAULT_GOAL := help
.PHONY: help setup demo test unit integration e2e cluster lint format bench curves pictures docs docs-serve crd constraints images cluster-up cluster-down clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make the virtual environment (.venv) with everything in it

$(READY): constraints.txt tests/requirements.txt $(ROOMS:%=%/pyproject.toml) trainer_image/hatch_build.py $(KERNEL)
	@echo "setting up $(VENV) (the first time downloads torch: about 3 GB)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say which with: make PYTHON=python3.12")'
	@test -x $(BIN)/uv || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install -q -c constraints.txt uv; }
	@$(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt -r tests/requirements.txt $(EXTRAS:%=-e './%')
	@touch $@

demo: $(READY) ## train CartPole-v1 from a manifest, here, and show it
	$(BIN)/rltrain run examples/cartpole-impala.yaml --workdir runs/demo --overwrite

test: lint integration e2e ## everything this machine can run
	@$(MAKE) --no-print-directory cluster BESIDE='$(UNIT)'

unit: $(READY) ## the tests that need no process but their own: under a minute
	$(UNIT)

integration: $(READY) ## real processes, real RPC, real kills
	$(BIN)/python -m pytest tests/integration

e2e: $(READY) ## the command line and the examples, end to end
	$(BIN)/python -m pytest tests/e2e

cluster: $(READY) ## against a real Kubernetes, compiled once; with real pods where this may be root
	$(BIN)/python -m tests.cluster prepare
	@# What runs pods mostly waits: the tests that need none run beside it, and are shown when it is over.
	@log=$$(mktemp); { $(if $(BESIDE),$(BESIDE) &&) $(BIN)/python -m pytest tests/cluster --ignore=tests/cluster/live; } >$$log 2>&1 & \
	beside=$$!; $(BIN)/python -m pytest tests/cluster/live; live=$$?; wait $$beside; beside=$$?; cat $$log; rm $$log; \
	test $$live -eq 0 -a $$beside -eq 0

lint: $(READY) ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## let ruff write what lint asks for
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## print the tables of every measured claim
	$(BIN)/python -m tests.bench

curves: $(READY) ## train the examples and draw docs/images/
	$(BIN)/python docs/curves.py

pictures: curves ## make every picture of docs/images/ that shows this software; the curves take minutes
	$(BIN)/python docs/pictures.py

docs: $(READY) ## build the documentation's site into site/; a link that leads nowhere is an error
	$(MKDOCS) build

docs-serve: $(READY) ## show the site while its pages are written: http://127.0.0.1:8000
	$(MKDOCS) serve --watch crds --watch client

crd: $(READY) ## write crds/rltraining.dev_rltrainingjobs.yaml and the chart's copy from the models
	$(BIN)/rltrain crd > crds/rltraining.dev_rltrainingjobs.yaml
	cp crds/rltraining.dev_rltrainingjobs.yaml charts/rltraining-operator/files/crd.yaml

constraints: $(READY) ## resolve every dependency anew and pin it
	@sh tests/constraints.sh $(BIN)/uv > constraints.new && mv constraints.new constraints.txt

cluster-up: $(READY) ## a real Kubernetes on this machine: Linux, root, Go; the first time compiles it
	$(BIN)/python -m tests.cluster up

cluster-down: $(READY) ## remove that Kubernetes; what was compiled and its images stay for the next time
	$(BIN)/python -m tests.cluster down

images: ## build the images of operator and trainer: IMAGE_PREFIX=registry.example.com/team/ TAG=...
	@test -n "$(BUILDER)" || { echo "nothing here builds images: install docker, podman or buildah"; exit 1; }
	for image in operator:operator trainer:trainer_image; do \
	  BUILDAH_LAYERS=true $(BUILDER) build --file $${image#*:}/Dockerfile --tag $(IMAGE_PREFIX)rltraining-$${image%:*}:$(TAG) \
	    --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null) $(BUILD_ARGS) . || exit 1; \
	done

clean: ## remove what these commands made
	rm -rf $(VENV) runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
