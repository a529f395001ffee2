# RLTrainingJob: make demo trains a policy here; make test runs everything this machine can.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ROOMS  := crds operator trainer_image client
READY  := $(VENV)/.ready

# Two cores or two hundred: one thread a process, the processes are the parallelism.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test unit integration e2e lint format bench curves crd constraints clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make the virtual environment (.venv) with everything in it

$(READY): constraints.txt tests/requirements.txt $(ROOMS:%=%/pyproject.toml)
	@echo "setting up $(VENV) (the first time downloads torch: about 3 GB)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say which with: make PYTHON=python3.12")'
	@test -x $(BIN)/uv || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install -q -c constraints.txt uv; }
	@$(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt -r tests/requirements.txt $(ROOMS:%=-e ./%)
	@touch $@

demo: $(READY) ## train CartPole-v1 from a manifest, here, and show it
	$(BIN)/rltrain run examples/cartpole-impala.yaml --workdir runs/demo --overwrite

test: lint unit integration e2e ## everything this machine can run

unit: $(READY) ## the tests that need no process but their own: under a minute
	$(BIN)/python -m pytest tests/unit -n auto --dist worksteal

integration: $(READY) ## real processes, real RPC, real kills
	$(BIN)/python -m pytest tests/integration

e2e: $(READY) ## the command line and the examples, end to end
	$(BIN)/python -m pytest tests/e2e

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

crd: $(READY) ## write crds/rltraining.dev_rltrainingjobs.yaml from the models
	$(BIN)/rltrain crd > crds/rltraining.dev_rltrainingjobs.yaml

constraints: $(READY) ## resolve every dependency anew and pin it
	@sh tests/constraints.sh $(BIN)/uv > constraints.new && mv constraints.new constraints.txt

clean: ## remove what these commands made
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
