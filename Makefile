# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
LANGUAGES := .venv/.languages
SITE := .venv/.site
PACKAGING := .venv/.packaging
EXACT := .ci/constraints/3.11.txt
VERSIONS ?= 3.11 3.13 oldest

WHEELS := wheels

.PHONY: demo demo-quick test test-whole test-versions lint types bench wheels package docs gallery clean

demo: $(STAMP)
	$(BIN)/python examples/coal_mining.py

demo-quick: $(STAMP)
	$(BIN)/python examples/coal_mining.py --quick

test: $(LANGUAGES)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

test-whole: $(LANGUAGES)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m whole

# all Pythons and the oldest packages claimed, or `make test-versions VERSIONS=3.13`
test-versions:
	.ci/test-versions $(VERSIONS)

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
		--platform any -c $(EXACT) -d $(WHEELS) zuko arviz xarray xarray-einstats tqdm packaging

# dist/: what a release publishes, built from a clean copy and looked at
package: $(PACKAGING)
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python .ci/check_package.py dist

# the site in build/site: pages of docs/, the gallery from stored runs, the API; warnings are errors
docs: $(SITE)
	$(BIN)/python -m sphinx -q -W --keep-going -c docs/site -b html . build/site
	$(BIN)/python docs/site/check.py build/site

# stored runs of the gallery whose code has changed, or `make gallery PAGES=galaxies`
gallery: $(SITE)
	OMP_NUM_THREADS=1 $(BIN)/python docs/site/percent.py $(PAGES)

# torch is installed by its exact version first: a plain `torch` would fetch gigabytes of CUDA
$(STAMP): pyproject.toml $(EXACT)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' $(EXACT))"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(EXACT) -e '.[dev]'
	touch $(STAMP)

# PyMC, NumPyro, Pyro, bilby, Dask and scikit-learn, half a gigabyte that tests alone need
$(LANGUAGES): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(EXACT) -e '.[dev,pymc,numpyro,pyro,dask,examples,bilby]'
	touch $(LANGUAGES)

# generator of the site, and what runs the gallery
$(SITE): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(EXACT) -e '.[dev,docs,examples]'
	touch $(SITE)

# builder and checker of packages
$(PACKAGING): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build twine
	touch $(PACKAGING)

clean:
	rm -rf .venv build dist $(WHEELS) *.egg-info .pytest_cache .mypy_cache .ruff_cache
