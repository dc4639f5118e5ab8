# Everything begins here: `make demo` to look, `make test` to trust. `make help` lists the rest.
# PYTHON chooses the interpreter (else the first of python3, python3.13, python3.12, python3.11, python that fits),
# VENV the virtual environment that make keeps for itself.

VENV ?= .venv
WORKERS ?= 2
APT ?= yes
TESTS ?= tests
# What bftrain can do without, but whose tests want to run
EXTRAS ?= cbc,gurobi,parquet,dask,docs,horovod

export PYTHON VENV APT
# What a site's module system puts there would reach into our virtual environment
unexport PYTHONPATH PYTHONHOME

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo live-demo test check bench soak horovod docs clean

comma := ,
bin = "$(VENV)/bin"
pytest = $(bin)/python -m pytest
# Tests of one file share what is dear to set up, so they run in one process
parallel = -n $(WORKERS) --dist loadfile
extras = $(if $(EXTRAS),$(comma)$(EXTRAS))
# Horovod is the one extra that pip alone cannot install
horovod = $(if $(filter horovod,$(subst $(comma), ,$(EXTRAS))),$(bin)/python tools/horovod_wheel.py)

help:
	@echo 'make demo    install bftrain into $(VENV), replay the sample log, write a report (demo/)'
	@echo 'make live-demo  train on four slots of this machine that come and go; needs no cluster'
	@echo 'make test    install what the tests need, and run them all'
	@echo 'make check   ruff, mypy, import contracts, unit tests with coverage'
	@echo 'make bench   measure, and print the figures'
	@echo 'make soak    take nodes and kill processes for hours, and write the figures to soak.log'
	@echo 'make horovod build Horovod for the torch in $(VENV), once a machine, and install it'
	@echo 'make docs    build the documentation (site/)'
	@echo 'make clean   remove all that make made, $(VENV) included'
	@echo
	@echo 'PYTHON=python3.12  use this Python        EXTRAS=cbc    test with no other extras than this'
	@echo '                                          (of $(EXTRAS); horovod brings torch)'
	@echo 'VENV=DIR           keep the venv there    WORKERS=4     run so many tests at once'
	@echo 'APT=no             install no Debian package for the tests, even as root'
	@echo 'TESTS=tests/unit   test only these folders or files'

demo:
	@tools/venv.sh base
	@$(bin)/bftrain demo -o demo

live-demo:
	@tools/venv.sh torch
	@$(bin)/bftrain live --demo

test:
	@tools/venv.sh test$(extras)
	@tools/debian-packages.sh
	@$(if $(horovod),$(horovod) --if-possible)
	@$(pytest) -q $(parallel) -m 'not bench and not soak' --durations=10 --durations-min=2 $(TESTS)

check:
	@tools/venv.sh test,check$(extras)
	@$(bin)/ruff check --quiet
	@$(bin)/ruff format --check --quiet || { echo 'Format with: $(VENV)/bin/ruff format'; exit 1; }
	@$(bin)/mypy --no-error-summary
	@tools/quiet.sh $(bin)/lint-imports
	@# Not the property tests, which coverage makes three times as slow: make test runs them
	@$(pytest) -q $(parallel) tests/unit \
		--cov=bftrain --cov-branch --cov-fail-under=90 --cov-report=term-missing:skip-covered

bench:
	@tools/venv.sh test$(extras)
	@$(pytest) -q -m bench tests/perf

soak:
	@tools/venv.sh test$(extras)
	@tools/debian-packages.sh
	@$(if $(horovod),$(horovod) --if-possible)
	@$(pytest) -m soak tests/soak

horovod:
	@tools/venv.sh horovod
	@$(bin)/python tools/horovod_wheel.py

docs:
	@tools/venv.sh docs
	@# Not --quiet: MkDocs would not count its warnings then
	@NO_MKDOCS_2_WARNING=1 tools/quiet.sh $(bin)/python -m mkdocs build --strict
	@echo 'The documentation is in site/index.html'

clean:
	@tools/clean.sh
