# %% [markdown]
# # A graph of proteins: which signals which?
#
# Sachs et al. (2005) measured eleven proteins in single human cells. Their data are not part of
# this package (`examples/sachs.py` takes a CSV of them); here 853 cells, as many as they had
# without intervention, are simulated from a linear network on 17 edges that later analyses hold to
# be true. All graphs together are compared with draws of them.

# %%
import pandas as pd
import torch
from matplotlib import pyplot as plt

import trjmcmc as trj
from trjmcmc import graphs

PARENTS = {  # in an order in which parents come first
    "PKC": [],
    "plcg": [],
    "PIP3": ["plcg"],
    "PIP2": ["PIP3", "plcg"],
    "PKA": ["PKC"],
    "raf": ["PKA", "PKC"],
    "mek": ["PKA", "PKC", "raf"],
    "erk": ["mek", "PKA"],
    "akt": ["erk", "PKA"],
    "jnk": ["PKA", "PKC"],
    "p38": ["PKA", "PKC"],
}

random = torch.Generator().manual_seed(1)
cells = pd.DataFrame()
for child, parents in PARENTS.items():
    noise = torch.randn(853, generator=random).numpy()
    cells[child] = sum((0.5 * cells[p] for p in parents), 0.0) + noise

scores = graphs.bge(cells, standardise=True)
exact = graphs.exact(scores)
result = trj.TRJSampler(graphs.target(scores), seed=1).run(max_seconds=60, progress=False)
found = graphs.GraphPosterior(result)
truth = pd.DataFrame(0.0, cells.columns, cells.columns)
for child, parents in PARENTS.items():
    truth.loc[parents, child] = 1.0
print("largest error of an edge:", abs(found.matrix() - exact.edges).to_numpy().max().round(4))
print(graphs.metrics(exact.edges, truth.to_numpy()).round(3).to_string())

# %% [markdown]
# Edges as wide as they are probable. The score cannot tell the directions inside a Markov
# equivalence class apart, so some edges are probable both ways.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
found.plot_graph(left)
found.plot_edges(right)
plt.show()
