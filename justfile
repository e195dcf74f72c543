# Recipes of the project; `just` alone lists them. They use the environment in .venv.

python := ".venv/bin/python"

# Simulated runs of `just deep`; `just seeds=100000 deep` does more.
seeds := "5000"

_default:
    @just --list

# Everything CI runs: format, lint and types beside the tests.
[parallel]
check: lint test

# Format and fix what can be fixed.
fmt:
    .venv/bin/ruff format src tests benchmarks
    .venv/bin/ruff check --fix src tests benchmarks

# Format check, lint, mypy --strict.
lint:
    .venv/bin/ruff format --check src tests benchmarks
    .venv/bin/ruff check src tests benchmarks
    .venv/bin/mypy

# All tests, after the servers they need are built; four at a time since they wait as much as they compute; pass pytest arguments to narrow.
test *args:
    {{ python }} -m tests.wire.servers
    {{ python }} -m pytest -n 4 --dist worksteal {{ args }}

# Whole jobs in virtual time, under faults that a seed decides, e.g. `just simulate --seeds 1000 --new-seeds`.
simulate *args:
    {{ python }} -m tests.simulator {{ args }}

# The README's first command and all tests without Spark, with the newest versions that `pyproject.toml` allows, in .tools/newest.
newest *args:
    {{ python }} -m tests.newest {{ args }}

# What takes longer than CI may: seeds, all tests in depth, older Sparks, kills, s3a, newest libraries; goes on where it stopped; `--again`, or parts.
deep *parts:
    {{ python }} tests/deep.py --seeds {{ seeds }} {{ parts }}

# All tests with a real Spark: every query kind, faults, kills; half an hour on two cores.
spark *args:
    TIDELOG_DEEP=1 {{ python }} -m pytest -n 2 tests/spark {{ args }}

# The older Sparks that the plug-in supports, each with an interpreter of its own and tidelog's libraries in .tools.
other-sparks:
    for version in 4.1 4.2; do \
        python3 -m venv .tools/spark-$version; \
        .venv/bin/uv pip install -q --python .tools/spark-$version/bin/python -r pyproject.toml \
            --extra spark --extra kafka --extra postgres "pyspark==$version.*"; \
    done

# The versions and checksums of all libraries that CI installs, as `pyproject.toml` allows them now.
lock:
    .venv/bin/uv export -q --all-groups --all-extras --no-extra peers --no-emit-project \
        --no-annotate --no-header --format requirements.txt -o locked.txt >/dev/null

# The documentation as a site in .site, with strict links.
docs:
    NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict

# The tables of options in docs/reference/configuration.md, from their declarations.
configuration:
    {{ python }} -m tests.support.pages configuration

# The tables of docs/reference/metrics.md and cli-json.md, from their declarations.
metrics:
    {{ python }} -m tests.support.pages metrics cli-json

# The table of options in docs/reference/spark-plugin.md, from their declarations.
spark-settings:
    {{ python }} -m tests.support.pages spark-plugin

# The word count over Python's own sources.
demo:
    {{ python }} -m tidelog run wordcount \
        --input "$({{ python }} -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
        --include '*.py' --store out/store --output out/counts

# `tidelog bench`: experiments against the same system without the log, e.g. `just bench run all --quick`.
bench *args:
    {{ python }} -m tidelog bench {{ args }}

# The page of the recorded benchmarks, which README and docs quote.
figures:
    {{ python }} -m tidelog bench report --all --output benchmarks/results/README.md

# The peers of `tidelog bench run peers`, each in an environment of its own in .tools; Spark is in .venv.
peers:
    for peer in "bytewax bytewax>=0.21" "quix quixstreams>=3.20" "pyflink apache-flink==2.3.*"; do \
        set -- $peer; \
        .venv/bin/uv venv -q --allow-existing --python {{ python }} .tools/peer-$1; \
        .venv/bin/uv pip install -q --python .tools/peer-$1/bin/python "$2" || exit 1; \
    done

# Processor time of whole jobs beside an earlier revision's: the base in benchmarks/speed, or `--base REVISION`; `just speed stops`: how late records are.
speed *args:
    {{ python }} -m benchmarks.speed {{ args }}

# The micro-benchmarks, compared with the last run on this machine; `-k block` runs some, `--benchmark-compare-fail=min:10%` ends with 1.
bench-micro *args:
    {{ python }} -m pytest benchmarks/micro --benchmark-enable --benchmark-autosave --benchmark-compare \
        --benchmark-timer=time.thread_time --benchmark-max-time=0.3 --benchmark-columns=min,median,rounds {{ args }}
