# `make demo` and `make test` are all the set-up there is: each installs what is missing.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
# Images of containers set it. The tests start Python thousands of times, and without the compiled
# modules each would compile logfs again: half of the processor time of a daemon's start.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PYTHON := $(VENV)/bin/python
WITH_VENV := PATH="$(CURDIR)/$(VENV)/bin:$$PATH"
# More arguments for pytest or the benchmarks: make test ARGS="-k recovery"
ARGS :=
# A test that fails is run once more, two at most: these machines share their processors with others.
# Both tries are in the output, and the summary has their number. A rerun is to be looked into: the
# last ones were defects of logfs. Tests of stops and kills are not run again: a line that is lost once
# in a while is lost. This goes when ten runs in a row were green.
RERUNS := --reruns 1 --max-suite-reruns 2 --rerun-show-tracebacks --rerun-except Timeout \
	--rerun-exclude-path tests/model --rerun-exclude-path tests/simulation \
	--rerun-exclude-path tests/fs/test_kills.py \
	--rerun-exclude-path tests/semantics/test_promise_2.py --rerun-exclude-path tests/restarts
# Processes that run the tests, more than two processors: many wait for a disk, a clock or a broker.
# 0: all in this one.
PROCESSES := 4
# How long test-long runs: stops of the model, kills of daemons, minutes for all of it (no limit if
# empty), and the first seed of the model's schedules; each day has others.
STOPS := 10000
KILLS := 300
MINUTES :=
SEED := $(shell date +%Y%m%d)0000
# The versions of Kafka that test-kafka uses beside that of tests/kafka/pom.xml.
KAFKA_VERSIONS := 3.9.2 4.4.0

# The seeds of simulate: one that is given, or always the same ones.
SIMULATED := $(if $(filter command line,$(origin SEED)),$(SEED),1 --count 20)

.PHONY: help demo test test-fast test-long test-kafka simulate mutants night check format docs fuzz bench bench-peers bench-record plot install uninstall dist deb image clean
.PHONY: system-packages kafka spark connector remote

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: system-packages $(VENV)/.installed ## a guided tour on a mounted log
	@$(WITH_VENV) bash examples/demo.sh

test: connector remote ## all tests, those with a Kafka broker and with Spark too
	@.ci/system-packages programs
	@.ci/system-packages systemd
	@$(WITH_VENV) python -m pytest -n $(PROCESSES) $(RERUNS) $(ARGS)

test-fast: $(VENV)/.installed ## the tests that need no mount and no network, under a minute
	@$(WITH_VENV) python -m pytest -m "not fuse and not slow and not spark and not kafka and not programs" $(ARGS)

test-long: connector remote ## thousands of stops, hundreds of kills: STOPS=10000 KILLS=300 MINUTES=60 SEED=1
	@.ci/system-packages programs
	@.ci/system-packages systemd
	@.ci/system-packages long
	@LOGFS_LONG_STOPS=$(STOPS) LOGFS_LONG_KILLS=$(KILLS) LOGFS_LONG_MINUTES=$(MINUTES) \
		LOGFS_LONG_SEED=$(SEED) $(WITH_VENV) python -m pytest -m "long or random" $(ARGS)
	@$(MAKE) --no-print-directory test-kafka

test-kafka: kafka ## the tests with a broker, with other versions of it: KAFKA_VERSIONS="3.9.2 4.4.0"
	@for version in $(KAFKA_VERSIONS); do \
		echo "logfs: with Kafka $$version"; export LOGFS_KAFKA_VERSION=$$version; \
		$(PYTHON) -m tests.kafka.jars && $(PYTHON) -m tests.kafka.archive; \
		$(WITH_VENV) python -m pytest -n $(PROCESSES) -m "not spark and not long" tests/kafka $(ARGS); \
	done

check: $(VENV)/.installed ## lint, formatting, types, warnings of the C compiler
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	@PYTHON=$(PYTHON) .ci/check-c

format: $(VENV)/.installed ## format, and mend what lint can mend
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

docs: $(VENV)/.installed ## the documents as a site, build/docs/site/index.html, with all links checked
	@$(PYTHON) -m docs

simulate: $(VENV)/.installed ## the whole daemon in a simulation, about a minute: make simulate SEED=12345678
	@$(WITH_VENV) python -m tests.simulation.daemon $(SIMULATED) --repeat 2 $(ARGS)

mutants: $(VENV)/.installed ## planted defects: which of them short sequences find, and how soon
	@$(WITH_VENV) python -m tests.simulation defects $(ARGS)

# SECONDS is bash's own for the time it runs, so make has to be asked for what was given.
night: $(VENV)/.installed ## the same with new seeds, until the time is over: make night SECONDS=28800 PROCESSES=2
	@$(WITH_VENV) python -m tests.simulation.daemon $$(date +%s)0000 --count 1000000000 --quiet \
		--seconds $(or $(SECONDS),28800) \
		--processes $(if $(filter command line,$(origin PROCESSES)),$(PROCESSES),1) $(ARGS)

fuzz: $(VENV)/.installed ## random input for what reads files, names and requests: make fuzz SECONDS=600
	@$(WITH_VENV) python -m tests.fuzz --seconds $(or $(SECONDS),300) $(ARGS)

bench: system-packages spark remote $(VENV)/.installed-bench ## the budgets, measured
	@$(WITH_VENV) python -m benchmarks $(ARGS)

bench-peers: connector $(VENV)/.installed-bench ## the same beside a Kafka broker, its tools and kcat
	@.ci/system-packages peers
	@$(WITH_VENV) python -m benchmarks --peers $(ARGS)

bench-record: ## both, kept in benchmarks/runs and shown in the README
	@status=0; for which in bench bench-peers; do \
		$(MAKE) --no-print-directory $$which ARGS='--record $(ARGS)' || status=$$?; \
	done; exit $$status

plot: $(VENV)/.installed-bench ## the plot and the tables of the last runs that were kept
	@$(WITH_VENV) python -m benchmarks.publish

install: system-packages ## for everybody, below /opt/logfs and PREFIX=/usr/local: sudo make install
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' SBINDIR='$(SBINDIR)' UNITDIR='$(UNITDIR)' EXTRAS='$(EXTRAS)' .ci/install install

uninstall: ## remove what install has put there; data and /etc/logfs stay
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' SBINDIR='$(SBINDIR)' UNITDIR='$(UNITDIR)' .ci/install uninstall

dist: system-packages ## the source distribution, a wheel, and hashes of what they need, in dist/
	@.ci/dist

deb: system-packages ## a Debian package of this release, in dist/, with all of PyPI's in it: EXTRAS=arrow
	@.ci/system-packages deb
	@EXTRAS='$(EXTRAS)' WHEEL='$(WHEEL)' .ci/deb

image: system-packages ## an OCI image that mounts, for podman and in dist/: sudo make image EXTRAS=remote
	@.ci/system-packages deb
	@.ci/system-packages image
	@EXTRAS='$(EXTRAS)' WHEEL='$(WHEEL)' DEB='$(DEB)' .ci/image

clean: ## remove all that was built, the virtual environment too
	rm -rf $(VENV) build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -f logfs/records/_*.c logfs/disk/_*.c logfs/log/writing/_*.c logfs/*/_*.*.so logfs/*/*/_*.*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

system-packages:
	@.ci/system-packages

# Java, and the jars of a broker and its tools in a cache outside this tree, its classes beside them.
kafka: $(VENV)/.installed
	@.ci/system-packages kafka
	@$(PYTHON) -m tests.kafka.jars
	@$(PYTHON) -m tests.kafka.archive

# Java, and PySpark, which is half a gigabyte; matplotlib, with which one of the examples draws.
spark: $(VENV)/.installed-spark
	@.ci/system-packages spark

# Go, and the servers of objects that it builds, in the same cache.
remote: $(VENV)/.installed
	@.ci/system-packages remote
	@$(PYTHON) -m tests.remote.programs

# Spark's own Kafka source and sink, and a broker for them.
connector: kafka spark
	@$(PYTHON) -m tests.spark.connector.jars

# The package is installed editable: a change of Python takes effect at once, these need a new build.
$(VENV)/.installed: pyproject.toml setup.py logfs/log/reading/_cursor.h $(wildcard $(addprefix logfs/records/*., pyx pxd pxi h) $(addprefix logfs/disk/*., pyx h) $(addprefix logfs/log/writing/*., pyx pxd pxi h) $(addprefix logfs/fs/kernel/native/*., c h))
	@.ci/system-packages
	@echo "logfs: setting up $(VENV), two minutes or so the first time"
	@$(PYTHON) -m pip --version >/dev/null 2>&1 || "$$(.ci/find-python)" -m venv --clear $(VENV)
	@# Debian 12's pip forgets the certificates it is configured with when it builds.
	@$(PYTHON) -m pip install --disable-pip-version-check --quiet 'pip>=24'
	@# setuptools keeps a module that is newer than its source, even if setup.py changed.
	@rm -rf build logfs/*/_*.*.so logfs/*/*/_*.*.so
	@.ci/patiently $(PYTHON) -m pip install --disable-pip-version-check --quiet --editable '.[dev]'
	@touch $@

# The package is there already: only what its extras require is installed.
REQUIRE = .ci/patiently $(PYTHON) -m pip install --disable-pip-version-check --quiet -r <($(PYTHON) .ci/requirements $(1))

$(VENV)/.installed-bench: pyproject.toml Makefile | $(VENV)/.installed
	@$(call REQUIRE,bench)
	@touch $@

$(VENV)/.installed-spark: pyproject.toml Makefile | $(VENV)/.installed
	@echo "logfs: installing PySpark, about a minute the first time"
	@$(call REQUIRE,spark-dev bench iceberg)
	@PYTHON='$(CURDIR)/$(PYTHON)' .ci/compile-pyspark
	@touch $@
