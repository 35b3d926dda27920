PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
QUICK := $(VENV)/quick-java
LOCK := requirements/dev.txt
# On Linux this one is compiled when it is installed, and a fresh machine may lack a compiler: it may fail.
AMQP_LOCK := requirements/amqp.txt
AMQP_LOG := $(VENV)/amqp.log
# What a program that uses reknit gets, and what builds its list of parts.
RUNTIME_LOCK := requirements/runtime.txt
BUILD_LOCK := requirements/build.txt
# What builds the site of the documentation.
SITE_LOCK := requirements/site.txt
RUNTIME_EXTRAS := spark pipelines zenoh http crypto jwt uprotocol
EXTRAS := dev spark pipelines zenoh http crypto jwt bench
# What is imported is compiled once, not at every start (tests start hundreds of processes), and the rest not at all.
export PYTHONDONTWRITEBYTECODE :=
# Many tests wait more than they compute: two more of them than there are cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min((os.cpu_count() or 1) + 2, 8))')

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench sim sim-coverage mutants fuzz chaos soak overload attack dist lock docs site screenshots clean

help: ## Show what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv with the locked dependencies and reknit itself

$(STAMP): $(LOCK) $(AMQP_LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "reknit needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1); try make PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/python || { echo "Creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing what $(LOCK) lists (a minute or two the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --requirement $(LOCK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m pip install --disable-pip-version-check --requirement $(AMQP_LOCK) > $(AMQP_LOG) 2>&1 || \
	  echo "Without AMQP: python-qpid-proton could not be built; it needs gcc, and for TLS pkg-config and libssl-dev (see $(AMQP_LOG))"
	@touch $(STAMP)
	@echo "Ready: $$($(BIN)/reknit --version) in $(VENV)"

demo: setup ## Run a small fabric, break it, and show that nothing is lost
	@$(BIN)/reknit demo

test: setup ## Check style and types, then run every test
	@$(MAKE) --no-print-directory --jobs 2 check $(QUICK)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --max-worker-restart=0

$(QUICK): $(STAMP) tests/spark/quick.py
	@$(BIN)/python -m tests.spark.quick

check: setup ## Lint, formatting, the direction of imports, and strict types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache > $(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }
	@$(BIN)/mypy --strict src tests bench

PARTS ?= recovery tunnel dispatch anycast queues amqp group spark lake audit

bench: setup ## Measure reknit beside its peers (writes bench/results.json); PARTS="recovery tunnel" chooses what follows
	@$(BIN)/python -m bench
	@for part in $(PARTS); do echo; echo "python -m bench.$$part"; $(BIN)/python -m bench.$$part || exit 1; done

sim: setup ## Replay a simulation: SEED=7, or many: SEEDS=20000 START=0 KEEP_GOING=1; FABRIC=1 or LARGE=1 for whole fabrics, GROUP=1
	@$(BIN)/python -m reknit.testing.simulate $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),200) --start $(or $(START),0)) \
	  $(if $(FABRIC),--fabric) $(if $(LARGE),--large) $(if $(GROUP),--group) $(if $(KEEP_GOING),--keep-going) $(addprefix --set ,$(SET))

sim-coverage: setup ## Print which part of the code the simulations run: SEEDS=500 FABRICS=500
	@$(BIN)/python scripts/sim_coverage.py --seeds $(or $(SEEDS),500) --fabrics $(or $(FABRICS),500) $(if $(MISSING),--missing)

mutants: setup ## Plant faults one at a time, and say after how many seeds each is found; ONLY=ack-before-sync runs one
	@$(BIN)/python -m reknit.testing.mutants $(addprefix --only ,$(ONLY)) $(if $(WRITE),--write docs/explanation/proof.md)

chaos: setup ## Break a fabric of real processes for ten minutes, and account for every event; SEED=7 MINUTES=10 WITHOUT=spark
	@$(BIN)/python -m reknit.testing.chaos $(addprefix --seed ,$(SEED)) $(addprefix --minutes ,$(MINUTES)) \
	  $(addprefix --without ,$(WITHOUT)) --report $(or $(REPORT),chaos.html)

soak: setup ## Run a fabric under load, and say whether memory, files or latency grow; MINUTES=30
	@$(BIN)/python -m reknit.testing.soak $(addprefix --minutes ,$(MINUTES)) --report $(or $(REPORT),soak.html)

overload: setup ## Give a node three times of what it can take for a minute; nothing may be lost
	@$(BIN)/python -m reknit.testing.overload $(addprefix --seconds ,$(SECONDS))

fuzz: setup ## Send mutated messages, requests and files to a node, with a canary beside: INPUTS=1000000 TARGET=tcp SEED=1 MINUTES=10
	@$(BIN)/python -m reknit.testing.fuzz --target $(or $(TARGET),all) --seed $(or $(SEED),0) $(if $(INPUTS),--inputs $(INPUTS)) \
	  $(if $(MINUTES),--minutes $(MINUTES))

attack: setup ## Try every door of a node with every credential, and the ways around its rules; WRITE=1 writes the table
	@$(BIN)/python -m reknit.testing.attack $(if $(WRITE),--write docs/explanation/security.md)

docs: setup ## Write the reference pages that come from code
	@$(BIN)/python scripts/reference.py

site: ## Build the documentation with search into site/, or show it at http://127.0.0.1:8000/ with SERVE=1
	@test -x $(VENV)/site/bin/mkdocs || { $(PYTHON) -m venv $(VENV)/site && \
	  $(VENV)/site/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --requirement $(SITE_LOCK); }
	@$(VENV)/site/bin/mkdocs $(if $(SERVE),serve,build --quiet --clean)

screenshots: setup ## Take the pictures of the console in docs/images/
	@$(BIN)/python scripts/screenshots.py

dist: setup ## Build the wheel and the sdist, a list of their parts (SBOM, CycloneDX) and checksums into dist/
	@test -x $(VENV)/build/bin/cyclonedx-py || { $(PYTHON) -m venv $(VENV)/build && \
	  $(VENV)/build/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --requirement $(BUILD_LOCK); }
	@rm -rf dist
	@$(BIN)/python -m hatchling build --directory dist
	@PYTHONWARNINGS=ignore $(VENV)/build/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --mc-type library \
	  --output-file dist/reknit-$$($(BIN)/python -c 'from reknit.version import __version__; print(__version__)').cdx.json $(RUNTIME_LOCK)
	@cd dist && sha256sum * > SHA256SUMS && ls -l

lock: ## Resolve the dependencies anew into requirements/
	@test -x $(VENV)/uv/bin/uv || { $(PYTHON) -m venv $(VENV)/uv && $(VENV)/uv/bin/pip install --quiet uv; }
	@$(VENV)/uv/bin/uv pip compile --quiet --upgrade --no-config --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(EXTRAS:%=--extra %) \
	  --constraint requirements/constraints.txt --output-file $(LOCK) pyproject.toml
	@echo 'python-qpid-proton>=0.39' | $(VENV)/uv/bin/uv pip compile --quiet --upgrade --no-config --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	  --constraint requirements/constraints.txt --output-file $(AMQP_LOCK) -
	@$(VENV)/uv/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(RUNTIME_EXTRAS:%=--extra %) \
	  --constraint $(LOCK) --output-file $(RUNTIME_LOCK) pyproject.toml
	@echo 'cyclonedx-bom>=7' | $(VENV)/uv/bin/uv pip compile --quiet --upgrade --no-config --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	  --output-file $(BUILD_LOCK) -
	@echo 'mkdocs-material>=9.6' | $(VENV)/uv/bin/uv pip compile --quiet --upgrade --no-config --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	  --output-file $(SITE_LOCK) -
	@echo "$(LOCK) and $(AMQP_LOCK): $$(cat $(LOCK) $(AMQP_LOCK) | grep -c '^[a-z].*==') pins"

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
