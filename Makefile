# What there is to do here. `make` alone prints the list; what a target does stands in the script that it calls.

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
# A broker whose modules are compiled at every start takes twice as long to start.  Python keeps bytecode only where it may
# write and PYTHONDONTWRITEBYTECODE is not set, so changed modules are compiled here.
BYTECODE := $(PY) -m compileall -q broker/src/gantry
levels = $(wildcard $(addprefix tests/,$(1)))

# In a hurry, or without Java, Node and databases: `make test QUICK=1`. The run says what it left out.
ifdef QUICK
NOT_RUN := tests/spark (Java 17, PySpark); tests/interop (Java, Node.js, other people's clients); tests/e2e (Kubernetes)
LEFT_OUT := --ignore=tests/spark --ignore=tests/interop --ignore=tests/e2e
else ifneq ($(CI),true)
# Root gets Java installed; anybody else who has none gets the other tests.
ifneq ($(shell id -u),0)
ifeq ($(shell command -v java),)
NOT_RUN := tests/spark (Java 17, PySpark)
endif
endif
endif

.PHONY: help setup dev demo clean check lint types format test bare test-full interop conformance crash sim model fuzz planted kube cluster \
  e2e spark-env demo-spark test-spark bench-spark e2e-spark bench bench-compare bench-growth gate profile soak crds readme docs lock

help:
	@awk -F ':.*  ## ' '/^##@ / {print "\n" substr($$0, 5)} /^[a-z0-9-]+:.*  ## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

##@ Begin

setup: $(VENV)/.broker  ## make .venv with the broker and the client, hash-pinned (<= 60 MB)
	@$(BYTECODE)

dev: $(VENV)/.dev  ## add to .venv what tests and checks need
	@$(BYTECODE)

demo: setup  ## a minute of orders under kill -9 and the loss of a master (KEEP=1: leave it running)
	@$(PY) broker/demo/run.py $(if $(KEEP),--keep)

clean:  ## remove every environment and cache of this folder
	rm -rf .venv .venv-* .cache build broker/build broker/src/*.egg-info

##@ Change

check: dev lint types  ## lint, types and the fast tests: before each commit, some six minutes
	@$(PY) -m pytest -q $(SPREAD) -m "not slow" $(call levels,$(FAST_LEVELS))

lint: dev  ## ruff: style and imports
	@$(PY) -m ruff check broker operator spark tests

types: dev  ## mypy, strict
	@$(PY) -m mypy broker/src/gantry operator/src/gantry_operator spark/src/pyspark_gantrymq

format: dev  ## let ruff repair what it can
	@$(PY) -m ruff check --fix broker operator spark tests

##@ Test

ifdef QUICK
test: dev lint types
	@TESTS_NOT_RUN="$(NOT_RUN)" $(PY) -m pytest -q $(SPREAD) -m "not slow" $(LEFT_OUT) tests
else
test: dev tools lint types $(if $(NOT_RUN),,spark-env) $(CLUSTER)  ## everything that belongs to each commit; ends with pytest's summary (QUICK=1: a part)
	@$(if $(NOT_RUN),,$(SPARK_PY) -m pytest -q -m "not slow" tests/spark)
	@TESTS_NOT_RUN="$(NOT_RUN)" $(PY) -m pytest -q $(SPREAD) -m "not slow" tests
endif

bare:  ## as root: both commands of README on a bare Debian 12 (SUITE=trixie: 13; ONLY=demo)
	@requirements/system bare && $(PYTHON) tests/bare/run.py $(if $(SUITE),--suite $(SUITE)) $(if $(ONLY),--only $(ONLY))

test-full: dev tools lint types fuzz planted test-spark kube skaffold spark-operator  ## all tests, slow ones too, fuzzers and planted faults; as root, takes a night
	@HOSTILE_EXAMPLES=300 $(PY) -m pytest -q $(SPREAD) tests

interop: dev tools  ## other people's clients and servers against ours
	@$(PY) -m pytest -q $(SPREAD) tests/interop

conformance: dev tools  ## Apache's own integration tests against three brokers of ours (ONLY="Pop Batch")
	@$(PY) tests/interop/conformance.py $(ONLY)

crash: dev  ## power cuts, failing disks, kill -9: the slow rounds too
	@$(PY) -m pytest -q $(SPREAD) tests/crash

sim: dev  ## new seeds of the simulation (HOURS=0.1; COVERAGE=1: also which lines they ran)
	@PYTHONPATH=tests $(PY) -m simulation.run --hours $(or $(HOURS),0.1) $(if $(COVERAGE),--coverage)

model: dev  ## check the failover protocol's model within its full bounds: some hours
	@$(PY) tests/simulation/check_failover.py

fuzz: dev  ## the compiled leaves under sanitizers, on hostile bytes
	@$(PY) tests/bench/fuzz.py

planted: dev spark-env  ## plant each fault of tests/planted.txt in a copy: its test must find it
	@$(PY) tests/planted/run.py

##@ Kubernetes

kube: nodes  ## build Kubernetes and etcd from their Go modules: once per machine, 18 minutes, 1 GB

cluster: kube  ## a shell on four real kubelets with our images, until you leave it; as root
	@PYTHONPATH=tests $(PY) -m testkit.kube.shell

e2e: kube skaffold spark-operator  ## the tests on a cluster of four real kubelets; as root, takes hours
	@$(PY) -m pytest -q tests/e2e

##@ Spark

spark-env: .venv-spark/.made  ## make .venv-spark: PySpark and the data source; 900 MB, needs Java 17

demo-spark: spark-env  ## orders through a streaming job whose driver is killed, and the account; needs Java 17
	@$(PY) spark/demo/run.py

test-spark: dev tools spark-env .venv-spark-4.2/.made  ## the data source with a real Spark: all tests with the newest, the fast ones with 4.2
	@$(SPARK_PY) -m pytest -q tests/spark
	@.venv-spark-4.2/bin/python -m pytest -q -m "not slow" tests/spark

bench-spark: spark-env setup  ## figures of the data source, into tests/bench/RESULTS-spark.md (BENCH="--only sink")
	@PYTHONPATH=tests $(SPARK_PY) tests/bench/sparkrun.py $(BENCH)

e2e-spark: kube spark-operator  ## jobs run by the real spark-operator on Kubernetes; 12 GB while it runs
	@$(PY) -m pytest -q tests/e2e/test_spark_manifests.py tests/e2e/test_spark.py

##@ Measure

bench: dev  ## measure; rows go to tests/bench/results.json and are printed for RESULTS.md
	@requirements/system "bench?"
	@$(PY) tests/bench/run.py

gate: dev  ## instructions a message of the hot ways, no more than committed (WRITE=1: write them)
	@requirements/system "gate?"
	@$(PY) tests/bench/gate.py $(if $(WRITE),--write)

bench-compare: $(VENV)/.bench tools  ## Apache's broker and ours in turns (ONLY=sends ROUNDS=5 SECONDS=3 WRITE=1)
	@$(PY) tests/bench/compare.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS),--seconds $(SECONDS)) \
	  $(if $(ONLY),--only $(ONLY)) $(if $(WARMUP),--warmup $(WARMUP)) $(if $(PIN),--pin $(PIN)) $(if $(WRITE),--write)

bench-growth: $(VENV)/.bench  ## rate, memory and start by topics, queues, connections, log (ONLY=log ROUNDS=3 WRITE=1)
	@$(PY) tests/bench/growth.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS),--seconds $(SECONDS)) \
	  $(if $(ONLY),--only $(ONLY)) $(if $(WRITE),--write)

profile: dev  ## flame graphs of broker and client, into build/profile (WAY=transaction: one hot way)
	@$(PY) tests/bench/flames.py $(if $(WAY),--way $(WAY))

soak: dev  ## load on 500 topics for ten minutes: no error, loss or growing memory (SECONDS=600)
	@$(PY) tests/bench/soak.py $(if $(SECONDS),--seconds $(SECONDS))

##@ Generate

crds: dev  ## write the CRDs, and the schema, dashboards and alerts of the charts
	@$(PY) -m gantry_operator.api.definitions crds charts/gantrymq/crds
	@$(PY) -m gantry_operator.api.values charts/gantrymq-cluster && $(PY) -m gantry_operator.monitoring charts/gantrymq

readme: dev  ## write the generated tables of documents and charts
	@PYTHONPATH=tests $(PY) -m testkit.readme --write && $(PY) tests/interop/conformance.py --write
	@PYTHONPATH=tests $(PY) -m testkit.configuration --write && PYTHONPATH=tests $(PY) -m testkit.chartreadme --write

docs: .venv-docs/.made  ## the documentation as a site, build/site/index.html; a broken link or reference fails
	@PYTHONPATH=tests .venv-docs/bin/python -m testkit.docsite build/site

lock: $(UV)  ## compile requirements/*.in: newest versions, with hashes, without index addresses
	@requirements/lock

# Environments. A stamp is newer than what it was made from, so a second `make` does nothing.

$(UV): requirements/uv.txt requirements/apt.txt
	@requirements/system setup "compiled?"
	@requirements/install uv

$(VENV)/.broker: $(UV) requirements/broker.txt requirements/build.txt broker/pyproject.toml broker/setup.py $(FAST_SOURCES) \
  broker/src/gantry/proxy/messaging.proto
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

$(VENV)/.bench: $(VENV)/.dev requirements/bench.txt
	@requirements/install bench
	@touch $@

.PHONY: tools mysql control-plane nodes skaffold spark-operator
tools: dev             # what tests start: PostgreSQL, MariaDB, Redis; valgrind; Java, Node, other people's packages
	@requirements/system "interop?" "database?" "gate?"
	@$(PY) tests/interop/prepare.py

mysql: dev             # Debian unstable's MySQL, 560 MB; where it is there, the tests of the guarantee use it too
	@requirements/system mysql
	@PYTHONPATH=tests $(PY) -m testkit.mysqlserver

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
