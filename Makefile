# Everything begins here: `make demo` to look, `make test` to trust. `make help` lists the rest.
# PYTHON chooses the interpreter (else the first of python3, python3.13, python3.12, python3.11, python that fits),
# VENV the virtual environment that make keeps for itself.

VENV ?= .venv
# Tests wait for processes for much of their time: two at once a core keep it busy. Each may run a Slurm and a browser of
# its own, so not more than 8
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 1); echo $$((cores < 4 ? 2 * cores : 8)))
APT ?= yes
TESTS ?= tests
# What bftrain can do without, but whose tests want to run
EXTRAS ?= cbc,gurobi,dask,docs,trainers,horovod

export PYTHON VENV APT
# What a site's module system puts there would reach into our virtual environment
unexport PYTHONPATH PYTHONHOME
# Container images often set it. Without bytecode each command compiles all it imports: twice the CPU time of a replay
unexport PYTHONDONTWRITEBYTECODE

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo live-demo test golden gpu-test check coverage mutants lowest versions bench soak horovod docs release messages peers clean

comma := ,
bin = "$(VENV)/bin"
pytest = $(bin)/python -m pytest
# Tests of one file share what is dear to set up, so they run in one process; those marked `apart`, which are long, run
# first and in any (tests/conftest.py). xdist would start files of few tests last
parallel = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
extras = $(if $(EXTRAS),$(comma)$(EXTRAS))
# One layer for tests and checks: to install a second one would disturb tests that run
layer = test,check$(extras)
# Tests without daemons and real schedulers
fast = tests/unit tests/cases
# What make bench measures: all, or what TESTS names
before = $(or $(BEFORE),$(if $(COMPARE),release))
bench = $(if $(filter tests,$(TESTS)),tests/perf,$(TESTS))
# Horovod is the one extra that pip alone cannot install
horovod = $(if $(filter horovod,$(subst $(comma), ,$(EXTRAS))),$(bin)/python tools/horovod_wheel.py)

help:
	@echo 'make demo    install bftrain into $(VENV), replay the sample log, write a report (demo/)'
	@echo 'make live-demo  train on four slots of this machine that come and go; needs no cluster'
	@echo 'make test    install what the tests need, and run them all'
	@echo 'make golden  record the outputs of all commands again, and show what changed'
	@echo 'make gpu-test  train on the GPU of this machine: NCCL, CUDA graphs, bf16, gigabytes of state'
	@echo 'make check   ruff, mypy, import contracts, unit tests'
	@echo 'make coverage  unit tests, and which lines they leave out: at most a tenth'
	@echo 'make mutants put known faults into a copy of the code, one by one: the tests must notice each'
	@echo 'make lowest  import a log and replay it with the lowest versions that are allowed: a minute'
	@echo 'make versions  unit tests with the lowest versions that are allowed, and on each Python'
	@echo 'make bench   measure, and print the figures; with COMPARE=yes beside those of the last release,'
	@echo '             with BEFORE=COMMIT beside those of that commit'
	@echo 'make soak    take nodes and kill processes for hours, and write the figures to soak.log'
	@echo 'make horovod build Horovod for the torch in $(VENV), once a machine, and install it'
	@echo 'make docs    build the documentation (site/)'
	@echo 'make release build wheel and source archive (dist/), and try them in an empty environment'
	@echo 'make messages list all texts that users read, with file and line'
	@echo 'make peers   compare resizes and kills with torchrun and torchft; MINUTES=3 for a short run'
	@echo 'make clean   remove all that make made, $(VENV) included'
	@echo
	@echo 'PYTHON=python3.12  use this Python        EXTRAS=cbc    test with no other extras than this'
	@echo '                                          (of $(EXTRAS); horovod brings torch)'
	@echo 'VENV=DIR           keep the venv there    WORKERS=4     run so many tests at once'
	@echo 'APT=no             install no Debian package for the tests, even as root'
	@echo 'TESTS=tests/unit   test only these folders or files; for make mutants words of tests/mutations.toml'

demo:
	@tools/venv.sh base
	@$(bin)/bftrain demo -o demo

live-demo:
	@tools/venv.sh torch
	@$(bin)/bftrain live --demo

test:
	@tools/venv.sh $(layer)
	@tools/debian-packages.sh
	@HOROVOD=$(if $(horovod),yes) tools/run-tests.sh -q $(parallel) --durations=10 --durations-min=2 $(TESTS)

golden:
	@tools/venv.sh $(layer)
	@$(bin)/python -m tests.golden.run

gpu-test:
	@tools/venv.sh test$(comma)trainers
	@$(pytest) -m gpu -rs tests/gpu

check:
	@tools/venv.sh $(layer)
	@# The static checks use one core, of a machine that has more
	@tools/beside.sh tools/static-checks.sh $(bin)/python tools/run_pytest.py -q $(parallel) $(fast)

coverage:
	@tools/venv.sh $(layer)
	@# Apart from make check, and without the property tests: it makes the ones twice and the others three times as slow
	@$(pytest) -q $(parallel) $(fast) --cov=bftrain --cov-branch --cov-fail-under=90 \
		--cov-report=term-missing:skip-covered

mutants:
	@tools/venv.sh $(layer)
	@$(bin)/python tools/mutants.py $(filter-out tests,$(TESTS))

lowest:
	@tools/try-lowest.sh

versions:
	@tools/try-versions.sh -q $(parallel) $(if $(filter tests,$(TESTS)),$(fast),$(TESTS))

bench:
	@tools/venv.sh $(layer)
	@$(if $(before),$(bin)/python tools/compare_benchmarks.py '$(before)' $(bench),$(pytest) -q -m bench $(bench))

soak:
	@tools/venv.sh $(layer)
	@tools/debian-packages.sh
	@$(if $(horovod),$(horovod) --if-possible)
	@$(pytest) -m soak tests/soak tests/e2e tests/golden

horovod:
	@tools/venv.sh horovod
	@$(bin)/python tools/horovod_wheel.py

messages:
	@tools/venv.sh base
	@$(bin)/python tools/messages.py

release:
	@tools/venv.sh test
	@tools/release.sh

peers:
	@tools/venv.sh torch
	@$(bin)/python tools/peers.py $(if $(MINUTES),--minutes $(MINUTES))

docs:
	@tools/venv.sh docs
	@# Not --quiet: MkDocs would not count its warnings then
	@NO_MKDOCS_2_WARNING=1 tools/quiet.sh $(bin)/python -m mkdocs build --strict
	@echo 'The documentation is in site/index.html'

clean:
	@tools/clean.sh
