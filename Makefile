# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
LANGUAGES := .venv/.languages
SITE := .venv/.site

WHEELS := wheels

.PHONY: demo demo-quick test test-whole lint types bench wheels docs clean

demo: $(STAMP)
	$(BIN)/python examples/coal_mining.py

demo-quick: $(STAMP)
	$(BIN)/python examples/coal_mining.py --quick

test: $(LANGUAGES)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

test-whole: $(LANGUAGES)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m whole

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# for a machine without an index that has torch, NumPy, SciPy, pandas and Matplotlib
wheels: $(STAMP)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w $(WHEELS) .
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
		--platform any -c constraints.txt -d $(WHEELS) zuko arviz xarray xarray-einstats tqdm packaging

# the site in build/site: pages of docs/, the gallery executed, the API; warnings are errors
docs: $(SITE)
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -c docs/site -b html . build/site
	$(BIN)/python docs/site/check.py build/site

# torch is installed by its exact version first: a plain `torch` would fetch gigabytes of CUDA
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

# PyMC, NumPyro, Pyro, Dask and scikit-learn, half a gigabyte that tests alone need
$(LANGUAGES): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,pymc,numpyro,pyro,dask,examples]'
	touch $(LANGUAGES)

# generator of the site, and what executes the gallery
$(SITE): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs,examples]'
	touch $(SITE)

clean:
	rm -rf .venv build $(WHEELS) *.egg-info .pytest_cache .mypy_cache .ruff_cache
