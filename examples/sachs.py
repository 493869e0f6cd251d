"""Which proteins signal which? Eleven of them in human cells, by all graphs added up.

Sachs et al. (2005), https://doi.org/10.1126/science.1105809: phosphorylation of eleven proteins in
7466 cells under nine conditions, the first 853 without intervention. The data are not part of this
package: give a CSV of 7466 rows and 11 columns with a header, or install the `cdt` wheel, which has
it (`pip install --no-deps cdt`).

Columns are standardised and have the BGe score. All 7466 rows mix conditions, which a linear
network explains by many edges: they test samplers, and say little of cells.

    python examples/sachs.py sachs.csv --quick
"""

import argparse
import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj
from trjmcmc import graphs

OBSERVED = 853  # rows without intervention, the first ones
# 17 edges held to be true by later analyses of these data
PARENTS = {
    "pakts473": ["p44/42", "PKA"],
    "p44/42": ["pmek", "PKA"],
    "pjnk": ["PKA", "PKC"],
    "pmek": ["PKA", "PKC", "praf"],
    "P38": ["PKA", "PKC"],
    "PIP2": ["PIP3", "plcg"],
    "PIP3": ["plcg"],
    "PKA": ["PKC"],
    "praf": ["PKA", "PKC"],
}


def read(path: Path | None) -> pd.DataFrame:
    """The table, from a file or from the wheel."""
    if path is None:
        found = importlib.util.find_spec("cdt")
        if found is None or not found.submodule_search_locations:
            raise SystemExit("give the path of a CSV, or: pip install --no-deps cdt")
        folder = Path(found.submodule_search_locations[0]) / "data" / "resources"
        path = folder / "cyto_full_data.csv"
    return pd.read_csv(path)


def truth(names: list[str]) -> np.ndarray:
    """0/1, parents in rows."""
    found = np.zeros((len(names), len(names)))
    for child, parents in PARENTS.items():
        for parent in parents:
            found[names.index(parent), names.index(child)] = 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", help="CSV with a header")
    parser.add_argument("--quick", action="store_true", help="short runs")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = read(options.data)
    names = [str(name) for name in data.columns]
    for rows in (OBSERVED, len(data)):
        print(f"\n{rows} rows")
        scores = graphs.bge(data.iloc[:rows], standardise=True)
        exact = graphs.exact(scores)
        print(f"log p(data) {exact.log_evidence:.2f}, {exact.expected_edges:.2f} edges expected")
        likely = exact.edges.stack().sort_values(ascending=False)
        print(likely[likely > 0.5].round(3).head(12).to_string())
        print("\nbeside 17 edges of the literature:")
        print(graphs.metrics(exact.edges, truth(names)).round(3).to_string())
        sampler = trj.TRJSampler(graphs.target(scores), seed=0)
        result = sampler.run(max_seconds=3 if options.quick else 10, progress=False)
        found = graphs.GraphPosterior(result)
        gap = np.abs(found.matrix() - exact.edges).to_numpy().max()
        print(f"\nsampled: largest error of an edge {gap:.4f}; most probable equivalence classes")
        classes = found.classes(3)[["probability", "se"]].round(4)
        print(
            classes.rename(lambda text: text if len(text) < 80 else text[:77] + "...").to_string()
        )


if __name__ == "__main__":
    main()
