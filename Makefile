# Every target sets up what it needs in .venv by itself: `make demo` on a fresh machine is enough.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install demo test bench fmt

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/pip install --quiet --no-input --disable-pip-version-check --constraint constraints.txt

help:
	@echo "make install   the environment, in .venv"
	@echo "make demo      several jobs on a small local cluster, then the same in the simulator"
	@echo "make test      all checks and tests"
	@echo "make bench     the measurements in bench/"
	@echo "make fmt       format the code"

install: $(STAMP)

# The stamp is as new as the last installation that went through.
$(STAMP): pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory .debian-packages
	@echo "Installing into .venv (some minutes the first time)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@$(PIP) pip
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation --editable '.[live]' --group dev
	@touch $@

# What comes from Debian: Python's venv, and `ip` and `tc`, with which tests run by root build networks.
.PHONY: .debian-packages
.debian-packages:
	@missing=; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || missing="$$missing python3"; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	if [ "$$(id -u)" = 0 ]; then command -v tc >/dev/null || missing="$$missing iproute2"; fi; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "Headgate needs Python 3.11 or later with venv. Install as root:$$missing" >&2; \
	  echo "(on Debian: apt-get install$$missing), then run make again." >&2; exit 1; \
	fi; \
	echo "Installing Debian packages:$$missing"; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get -qq update; \
	apt-get -qq install --yes --no-install-recommends $$missing >/dev/null

demo: install
	@$(BIN)/headgate demo

test: install
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/pytest

bench: install
	@shopt -s nullglob; for script in bench/[!_]*.py; do echo "== $$script"; $(BIN)/python "$$script"; done

fmt: install
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
