# `make` alone prints this file's targets. Needs Python 3.12 or newer, git and make.

PY := .venv/bin/python
BIN := .venv/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup run test check fmt format lint types layers migrations \
	collect openapi readme fuzz-api smoke failover faults-scheduler faults-worker \
	faults-effects faults-web bench \
	bench-quick bench-api bench-register bench-herd bench-scale bench-full \
	bench-execution bench-peers

help: ## Print this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv and install what is needed; quick when nothing changed
	@sh dev/setup.sh

run: setup ## Start PostgreSQL, scheduler, worker and the demo; Ctrl-C stops all
	@$(PY) -m dev.run

test: setup ## Run the tests (PG=15 picks the server, ARGS="-k cron" the tests)
	@$(PY) -m pytest $(ARGS)

check: setup format lint types layers migrations collect ## All that must hold besides the tests

fmt: setup ## Rewrite the code in the one format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix-only .

format: setup ## Look whether the code is in the one format
	@$(BIN)/ruff format --check .

lint: setup ## Look for likely mistakes and banned calls
	@$(BIN)/ruff check .

types: setup ## Check the types
	@$(BIN)/mypy

layers: setup ## Check who imports whom
	@$(BIN)/lint-imports

migrations: setup ## Look whether the migrations say all that the models say
	@$(PY) -W "ignore:Got an error checking:RuntimeWarning" manage.py \
		makemigrations --settings tests.settings --check --dry-run

collect: setup ## Look whether each test's file can be imported
	@said=$$($(PY) -m pytest -q -p no:randomly --collect-only 2>&1) || \
		{ echo "$$said" | grep -v "::"; exit 1; }

openapi: setup ## Write docs/openapi.json anew from the views
	@$(PY) manage.py spectacular --settings tests.settings --format openapi-json \
		--validate --fail-on-warn --file docs/openapi.json

readme: setup ## Follow the README's first ten minutes on a stack of their own
	@$(PY) -m tests.rigs.readme $(ARGS)

fuzz-api: setup ## Send a live web what its document allows and forbids
	@$(PY) -m tests.rigs.fuzz $(ARGS)

smoke: setup ## Run the whole stack against an oracle and a ledger
	@$(PY) -m tests.rigs.smoke $(ARGS)

failover: setup ## Kill, stop and depose leaders under load
	@$(PY) -m tests.rigs.failover $(ARGS)

faults-scheduler: setup ## Strike schedulers, their servers, networks and clocks
	@$(PY) -m tests.rigs.faults_scheduler --seeds $(or $(SEEDS),1) $(ARGS)

faults-worker: setup ## Strike workers, their runs, targets and the server's disks
	@$(PY) -m tests.rigs.faults_worker --seeds $(or $(SEEDS),1) $(ARGS)

faults-effects: setup ## Count effects while their workers are killed
	@$(PY) -m tests.rigs.effects $(ARGS)

faults-web: setup ## Kill processes of the web in the middle of requests
	@$(PY) -m tests.rigs.web_kill $(ARGS)

bench-quick: setup ## Measure the speed once, under 60 s; last line is JSON
	@$(PY) -m benchmarks.quick $(ARGS)

bench: setup ## Measure several times and print the medians
	@$(PY) -m benchmarks.repeat $(ARGS)

bench-api: setup ## Measure the API and the admin on a live web process
	@$(PY) -m benchmarks.api $(ARGS)

bench-register: setup ## Register jobs through a live web (ARGS="--jobs 1000000")
	@$(PY) -m benchmarks.register $(ARGS)

bench-herd: setup ## Measure herds, and live runs beside a catch-up (ARGS="--small")
	@$(PY) -m benchmarks.herd $(ARGS)

bench-scale: setup ## Measure with up to ten million timers pending (ARGS="--small")
	@$(PY) -m benchmarks.scale $(ARGS)

bench-full: setup ## Measure on a full database and an empty one (ARGS="--small")
	@$(PY) -m benchmarks.full $(ARGS)

bench-execution: setup ## Measure what executes (ARGS="--small", "--only idle,claim")
	@$(PY) -m benchmarks.execution $(ARGS)

bench-peers: setup ## Measure Chrono beside other job systems (ARGS="longtx --only chrono")
	@$(PY) -m benchmarks.peers $(ARGS)
