# `make demo` and `make test` are all a newcomer needs; `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A group of tests is never divided; which tests are a group is said in tests/conftest.py.
ON_ALL_CORES := -n auto --dist loadscope --no-loadscope-reorder
# Each takes what the one before has installed, so that `make demo` waits for the server alone.
PYTHON_HERE := $(VENV)/.python
SERVER_HERE := $(VENV)/.server
INSTALLED := $(VENV)/.installed
INSTALL := $(BIN)/python -m pip install --constraint constraints.txt --config-settings editable_mode=compat --disable-pip-version-check

.PHONY: demo test docs lint types unit laws slow uvloop pure bare coverage simulate planted crash crash-nodes crash-log crash-spark fuzz storm soak soak-bounds cluster browser console-test pictures bench bench-nodes bench-peers stalls profiles bench-spark bench-loads bench-scale serve clean help

demo: $(SERVER_HERE)  ## a server, a live market feed and conflated topics, in one terminal
	$(BIN)/sow demo $(DEMO)

test: lint types unit  ## everything that must hold before a change lands

docs: $(INSTALLED)  ## write every generated page and part of a page: functions, configuration, metrics, sizes, figures
	$(BIN)/python -m tests.docs

lint: $(INSTALLED)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)  ## types, strictly
	$(BIN)/mypy

unit: $(INSTALLED)  ## all tests of the default run, on all cores
	SOW_TEST_S_MAX=600 $(BIN)/python -m pytest $(ON_ALL_CORES)

laws: $(INSTALLED)  ## the same, with twenty times as many examples and seeds for every law
	SOW_EFFORT=20 $(BIN)/python -m pytest $(ON_ALL_CORES)

slow: $(INSTALLED)  ## the tests that the default run leaves out; some minutes
	$(BIN)/python -m pytest $(ON_ALL_CORES) -m slow

uvloop: $(INSTALLED)  ## what has to do with sockets and processes once more, on uvloop
	$(INSTALL) --quiet --editable '.[uvloop]'
	SOW_LOOP=uvloop $(BIN)/python -m pytest $(ON_ALL_CORES) -m 'edge and not slow' tests

pure: $(INSTALLED)  ## what runs the inner loops once more, in Python instead of C
	SOW_PURE=1 $(BIN)/python -m pytest $(ON_ALL_CORES) tests/core tests/store tests/indexes tests/topic tests/query tests/engine tests/simulation

bare:  ## README's two commands in a clone, on a PATH of Python, git, make and base tools alone
	$(PYTHON) -m tests.bare

coverage: $(INSTALLED)  ## what the tests reach, and what only others' tests; about twice as long
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(ON_ALL_CORES)
	$(BIN)/coverage combine --quiet
	$(BIN)/python -m tests.covered --modules --write

simulate: $(INSTALLED)  ## thousands of random runs of the whole engine beside a naive model
	$(BIN)/python -m tests.simulation --seeds 3000
	$(BIN)/python -m tests.simulation --seeds 200 --clients 30 --steps 600
	$(BIN)/python -m tests.simulation --seeds 20 --clients 300 --steps 5000
	$(BIN)/python -m tests.simulation.nodes --seeds 300
	$(BIN)/python -m tests.simulation.nodes.log_run --seeds 100 --steps 60
	$(BIN)/python -m tests.shared_log.simulation --seeds 2000
	$(BIN)/python -m tests.laws.test_guarded_as_filtered 10000
	$(BIN)/python -m tests.laws.test_guarded_while_slow 0 10000

planted: $(INSTALLED)  ## plant bugs one at a time and see that the suite catches each
	$(BIN)/python -m tests.simulation.planted

crash: $(INSTALLED)  ## kill the server 500 times at random moments
	SOW_KILLS=500 $(BIN)/python -m pytest tests/crash --ignore tests/crash/test_nodes.py

crash-nodes: $(INSTALLED)  ## kill a server, its followers and its edges 500 times at random moments
	SOW_KILLS=500 $(BIN)/python -m pytest tests/crash/test_nodes.py

crash-log: $(INSTALLED)  ## kill the node that leads a shared log 200 times, on a real NATS cluster, for docs/reliability.md
	$(BIN)/python -m tests.crash.faults --write --engine nats --only "node killed" --faults 200

crash-spark: $(INSTALLED)  ## kill Spark's drivers and executors, and the server beside them, and run two attempts at once
	$(BIN)/python -m pytest -m slow tests/spark
	$(BIN)/python -m pytest tests/crash/spark/drivers.py
	$(BIN)/python -m pytest tests/crash/spark/copies.py
	$(BIN)/python -m pytest tests/crash/spark/executors.py
	$(BIN)/python -m pytest tests/crash/spark/speculation.py
	$(BIN)/python -m pytest tests/crash/spark/lives.py

faults-log: $(INSTALLED)  ## 2,000 faults of up to seven kinds under nodes of a shared log, over NATS, PostgreSQL and S3, for docs/reliability.md; hours, or FAULTS=60, ENGINE=nats, SEED=1, AT_ONCE=2, MORE="--add --beside"
	$(BIN)/python -m tests.crash.faults --write $(if $(FAULTS),--faults $(FAULTS)) $(if $(ENGINE),--engine $(ENGINE)) $(if $(SEED),--seed $(SEED)) $(if $(AT_ONCE),--at-once $(AT_ONCE)) $(MORE)

fuzz: $(INSTALLED)  ## a long run of every fuzz test; a million inputs where no socket is needed
	SOW_FUZZ_EXAMPLES=5000 SOW_FUZZ_INPUTS=1000000 SOW_FUZZ_QUESTIONS=100000 $(BIN)/python -m pytest tests/fuzz

storm: $(INSTALLED)  ## crowds of clients: half headers, idle, reconnecting, slow, too many topics; a few minutes
	$(BIN)/python -m tests.storm

soak: $(INSTALLED)  ## crowds, kills and reloads for an hour: memory, files and the longest step stay flat; SECONDS_MAX=600
	$(BIN)/python -m tests.soak $(or $(SECONDS_MAX),3600)

soak-bounds: $(INSTALLED)  ## 2,000 sessions kept away for an hour: memory stays under the stated sum; SECONDS_MAX=600
	$(BIN)/python -m tests.soak.bounds $(or $(SECONDS_MAX),3600)

cluster: $(INSTALLED)  ## SOW and Spark on a standalone cluster of real processes, some minutes
	$(INSTALL) --quiet --editable '.[connect]'
	SOW_TEST_S_MAX=1800 $(BIN)/python -m pytest tests/cluster

browser: $(INSTALLED)  ## what needs a browser or a Node, alone
	$(BIN)/python -m pytest -m 'browser or node'

console-test: $(INSTALLED)  ## the console in a Chromium, and how smoothly it draws 10,000 updates a second for a minute
	SOW_REQUIRE_BROWSER=1 $(BIN)/python -m pytest -m browser tests/browser
	$(BIN)/python -m tests.browser.frames

pictures: $(INSTALLED)  ## write the pictures of the console in the documents; two minutes
	$(BIN)/python -m tests.browser.pictures

bench: $(INSTALLED)  ## measure, each figure beside its floor, for docs/performance.md; over half an hour
	$(INSTALL) --quiet --editable '.[uvloop]'
	$(BIN)/python -m tests.benchmarks --write

bench-nodes: $(INSTALLED)  ## what edges, followers and nodes of a shared log cost and take over, for docs/results/nodes.md; a quarter of an hour, or QUICK=1, ONLY="passing crowd"
	$(BIN)/python -m tests.benchmarks.nodes $(ONLY) $(if $(QUICK),--quick,--write)

bench-peers: $(INSTALLED)  ## SOWbench: the same work through Redis, NATS, Perspective, SQLite and DuckDB; an hour, or QUICK=1, ONLY=W4, SERVERS=sow,redis
	$(INSTALL) --quiet --editable '.[peers]'
	$(BIN)/python -m tests.benchmarks.sowbench $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) $(if $(SERVERS),--servers $(SERVERS)) $(if $(QUICK)$(SERVERS),,--write)

stalls: $(INSTALLED)  ## how long others wait beside each large operation; ONLY="delete; reload" shows some of them, ONLY=load ROWS=50000000 a large load
	STALLS_ONLY="$(ONLY)" STALLS_ROWS="$(ROWS)" $(BIN)/python -m tests.benchmarks stalls $(if $(ONLY),,--write)

profiles: $(INSTALLED)  ## where the time goes on the paths that miss their aims; some minutes
	$(BIN)/python -m tests.benchmarks.profiles --write

bench-spark: $(INSTALLED)  ## the same for Spark: the data source and conflation, about half an hour
	$(BIN)/python -m tests.benchmarks.spark --write

bench-loads: $(INSTALLED)  ## loads by Spark of 1, 5 and 50 million rows, each killed and begun again, for docs/results/loads.md; ROWS="1000000 5000000"
	$(BIN)/python -m tests.benchmarks.spark.loads $(ROWS) --write

bench-scale: $(INSTALLED)  ## recorded days ten times over by 1, 2 and 4 executors, for docs/results/spark-scale.md
	$(BIN)/python -m tests.benchmarks.spark.scale --write

serve: $(SERVER_HERE)  ## run the shipped configuration
	$(BIN)/sow serve config.xml

$(PYTHON_HERE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	@echo "Making an environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(SERVER_HERE): $(PYTHON_HERE) pyproject.toml setup.py constraints.txt sow/core/_inner_loops.c sow/core/_key_index.c
	@echo "Installing the server into $(VENV); only the first time, a minute or so"
	@$(INSTALL) --editable '.[server]'
	@$(BIN)/python -c "from sow.core.inner_loops import in_c; in_c() or print('warning: without a C compiler the inner loops run in Python, which is slower')"
	@touch $@

$(INSTALLED): $(SERVER_HERE)
	@echo "Installing what the tests need into $(VENV), Spark among it; only the first time, some minutes"
	@$(INSTALL) --editable '.[dev,spark,polars,notebook,console-test]'
	@$(BIN)/python -m sow.spark.java || $(INSTALL) --editable '.[java]'
	@touch $@

clean:  ## remove the environment and everything built
	rm -rf $(VENV) sow/core/*.so .coverage build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/'
