# What there is to do here. `make` alone prints this list; what a target does stands in the script that it calls.

# Another Python has environments of its own: `make check PYTHON=python3.13` makes .venv-3.13 and leaves .venv alone.
ifeq ($(origin PYTHON),undefined)
PYTHON := python3
VENV := .venv
else
VENV := .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
endif
export PYTHON VENV
PY := $(VENV)/bin/python
SPARK_PY := .venv-spark/bin/python
UV := .cache/uv/bin/uv
export UV_PYTHON_DOWNLOADS := never
export UV_LINK_MODE := copy
# Empty is unset: tests that may keep their bytecode are collected in a third of the time.
export PYTHONDONTWRITEBYTECODE :=
ifeq ($(CI),true)
# CI must not pass on the slow twin by accident.
export GANTRY_COMPILED := required
# Nor must it pass without the tests that need a real Kubernetes; elsewhere `make kube` makes one, if it is wanted.
CLUSTER := nodes
endif

FAST_SOURCES := $(wildcard broker/src/gantry/leaves/_fast/*.p[yx]* broker/src/gantry/leaves/_fast/*.[ch])
FAST_LEVELS := tidy unit golden differential
# Half of a run is waiting: for a JVM, for a check that must not come. A file stays with one worker, and so do the levels
# whose servers cost most (tests/conftest.py).
WORKERS ?= 3
SPREAD := -n $(WORKERS)
# A broker whose modules are compiled anew at every start takes twice as long to start.  Python keeps what it compiled only
# where it may write and PYTHONDONTWRITEBYTECODE is not set; so it is done here, of what changed.
BYTECODE := $(PY) -m compileall -q broker/src/gantry
levels = $(wildcard $(addprefix tests/,$(1)))

.PHONY: help setup dev demo demo-spark check lint types test test-full test-spark bench-spark spark-env interop kube cluster e2e e2e-spark crash sim bench soak fuzz model planted format crds readme docs lock clean

help:            ## this list
	@sed -n 's/^\([a-z0-9-]*\): .*## /\1  /p' $(MAKEFILE_LIST) | awk '{n=$$1; $$1=""; printf "  make %-10s %s\n", n, $$0}'

setup: $(VENV)/.broker ## .venv with the broker and the client, hash-pinned; nothing else (<= 60 MB)
	@$(BYTECODE)

dev: $(VENV)/.dev      ## the same .venv with what tests and checks need
	@$(BYTECODE)

demo: setup            ## the main job in under a minute (a minute and a half with the first installation): orders in transactions, kill -9 everywhere, a lost master, the tables (KEEP=1 leaves it running)
	@$(PY) broker/demo/run.py $(if $(KEEP),--keep)

demo-spark: spark-env  ## orders through a streaming job whose driver is killed in the middle, and the account; needs Java 17
	@$(PY) spark/demo/run.py

check: dev lint types  ## lint, types and the fast tests: what every commit passes, some three minutes of two cores
	@$(PY) -m pytest -q $(SPREAD) -m "not slow" $(call levels,$(FAST_LEVELS))

test: dev tools lint types spark-env $(CLUSTER)  ## everything that belongs to each commit; the last line is pytest's summary
	@$(SPARK_PY) -m pytest -q -m "not slow" tests/spark
	@$(PY) -m pytest -q $(SPREAD) -m "not slow" tests

test-full: dev tools lint types fuzz planted test-spark kube skaffold spark-operator  ## everything, once: the slow tests, both versions of Spark, all of e2e, the fuzzers, the planted faults; for root, a night long
	@HOSTILE_EXAMPLES=300 $(PY) -m pytest -q $(SPREAD) tests

bench-spark: spark-env setup  ## figures of the data source, into tests/bench/RESULTS-spark.md (BENCH="--only sink")
	@PYTHONPATH=tests $(SPARK_PY) tests/bench/sparkrun.py $(BENCH)

test-spark: dev tools spark-env .venv-spark-4.2/.made  ## the data source with a real Spark: all with the newest, the fast ones with 4.2
	@$(SPARK_PY) -m pytest -q tests/spark
	@.venv-spark-4.2/bin/python -m pytest -q -m "not slow" tests/spark

spark-env: .venv-spark/.made  ## .venv-spark: PySpark and the data source; 900 MB, needs Java 17

interop: dev tools     ## other people's clients and servers against ours
	@$(PY) -m pytest -q $(SPREAD) tests/interop

kube: nodes            ## Kubernetes and etcd built from their Go modules, once per machine: some 18 minutes, 1 GB

cluster: kube          ## four real kubelets on this machine with our images, and a shell that knows them; for root, until you leave it
	@PYTHONPATH=tests $(PY) -m testkit.kube.shell

e2e: kube skaffold spark-operator  ## a cluster of four real kubelets on this machine, and what has to hold there; for root
	@$(PY) -m pytest -q tests/e2e

e2e-spark: kube spark-operator  ## of these, Spark: jobs run by the real spark-operator; 12 GB while it runs
	@$(PY) -m pytest -q tests/e2e/test_spark_manifests.py tests/e2e/test_spark.py

crash: dev             ## power cuts, failing disks, kill -9: the slow rounds too
	@$(PY) -m pytest -q $(SPREAD) tests/crash

sim: dev               ## seeds of the simulation from a new one on (HOURS=0.1; COVERAGE=1: and which lines they ran)
	@PYTHONPATH=tests $(PY) -m simulation.run --hours $(or $(HOURS),0.1) $(if $(COVERAGE),--coverage)

bench: dev             ## measure; rows with day and machine go to tests/bench/results.json, and are printed for RESULTS.md
	@requirements/system "bench?"
	@$(PY) tests/bench/run.py

soak: dev              ## ten minutes of load on 500 topics: no error, no loss, no memory that grows (SECONDS=600)
	@$(PY) tests/bench/soak.py $(if $(SECONDS),--seconds $(SECONDS))

fuzz: dev              ## the compiled leaves under address and undefined-behaviour sanitizers, on hostile bytes
	@$(PY) tests/bench/fuzz.py

model: dev             ## the failover protocol's model within its full bounds; some half an hour, results beside it
	@$(PY) tests/simulation/check_failover.py

planted: dev spark-env ## each fault of tests/planted.txt, planted in a copy, must be found by its test
	@$(PY) tests/planted/run.py

lint: dev              ## ruff: style and format of imports
	@$(PY) -m ruff check broker operator spark tests

types: dev             ## mypy, strict
	@$(PY) -m mypy broker/src/gantry operator/src/gantry_operator spark/src/pyspark_gantrymq

format: dev            ## let ruff repair what it can
	@$(PY) -m ruff check --fix broker operator spark tests

crds: dev              ## write the definitions of the operator's kinds anew, and the chart's dashboards and alerts
	@$(PY) -m gantry_operator.api.definitions crds charts/gantrymq/crds
	@$(PY) -m gantry_operator.api.values charts/gantrymq-cluster && $(PY) -m gantry_operator.monitoring charts/gantrymq

readme: dev            ## bring the generated tables of all READMEs and of the configuration in step with the code
	@PYTHONPATH=tests $(PY) -m testkit.readme --write
	@PYTHONPATH=tests $(PY) -m testkit.configuration --write && PYTHONPATH=tests $(PY) -m testkit.chartreadme --write

docs: .venv-docs/.made ## the documentation as a site, build/site/index.html; a broken link or reference ends it
	@PYTHONPATH=tests .venv-docs/bin/python -m testkit.docsite build/site

lock: $(UV)            ## compile requirements/*.in anew: newest versions, with hashes, without index addresses
	@requirements/lock

clean:                 ## forget every environment and cache of this folder
	rm -rf .venv .venv-* .cache build broker/build broker/src/*.egg-info

# Environments. A stamp is newer than what it was made from, so a second `make` does nothing.

$(UV): requirements/uv.txt requirements/apt.txt
	@requirements/system setup "compiled?"
	@requirements/install uv

$(VENV)/.broker: $(UV) requirements/broker.txt requirements/build.txt broker/pyproject.toml broker/setup.py $(FAST_SOURCES)
	@requirements/install broker
	@touch $@

$(VENV)/.operator: $(VENV)/.broker requirements/operator.txt operator/pyproject.toml
	@requirements/install operator
	@touch $@

.venv-spark/.made: $(VENV)/.dev requirements/spark.txt spark/pyproject.toml
	@requirements/system spark && requirements/install spark
	@touch $@

.venv-spark-4.2/.made: $(VENV)/.dev requirements/spark42.txt spark/pyproject.toml
	@requirements/system spark && requirements/install spark 4.2
	@touch $@

.venv-docs/.made: $(UV) requirements/docs.txt requirements/docs/package-lock.json
	@requirements/system docs && requirements/install docs
	@touch $@

$(VENV)/.dev: $(VENV)/.operator requirements/dev.txt spark/pyproject.toml
	@requirements/install dev
	@touch $@

.PHONY: tools control-plane nodes skaffold spark-operator
tools: dev             # what tests start: PostgreSQL; Java, Node, other people's packages
	@requirements/system "interop?" "database?"
	@$(PY) tests/interop/prepare.py

control-plane: dev     # an API server, etcd, helm in two versions, kinds
	@requirements/system "kube?"
	@PYTHONPATH=tests $(PY) -m testkit.kube.prepare control-plane charts

skaffold: control-plane  # what reads skaffold.yaml
	@PYTHONPATH=tests $(PY) -m testkit.kube.prepare skaffold --tidy

spark-operator: control-plane  # what runs Spark's jobs on Kubernetes
	@PYTHONPATH=tests $(PY) -m testkit.kube.prepare spark --tidy

nodes: control-plane   # and four kubelets
	@requirements/system "nodes?"
	@PYTHONPATH=tests $(PY) -m testkit.kube.prepare control-plane charts nodes --tidy
