"""Edge probabilities by sumu 0.1.2; run by an interpreter that has it, of data and settings.

    python graphs_sumu.py data.npy settings.json answer.json

Settings: ``budget``, processor seconds of sampling, and ``seed``. Gadget's parts, in its order:
16 tempered chains, every tenth state, from each one graph. Three tenths of the budget go to drawing
the graphs, half of the rest is left out as burn-in. Up to 16 nodes every other node is a candidate
parent. The prior is the fair one, which it can't change.
"""

import json
import sys
import time

import numpy as np
import sumu

CHAINS, THINNING, MOST_CANDIDATES = 16, 10, 15
OF_GRAPHS = 0.3  # share of the budget


def main(data: str, settings: str, answer: str) -> None:
    with open(settings) as file:
        asked = json.load(file)
    np.random.seed(asked["seed"])  # noqa: NPY002
    x = np.load(data)
    d = x.shape[1]
    gadget = sumu.Gadget(
        data=sumu.Data(x, discrete=False),
        scoref="bge",
        max_id=-1,
        K=min(d - 1, MOST_CANDIDATES),
        d=min(d - 1, 2),  # parents of which some are no candidates
        cp_algo="top" if d - 1 <= MOST_CANDIDATES else "greedy-lite",
        mc3_chains=CHAINS,
        tolerance=2**-32,
    )
    begun = time.process_time()
    gadget._find_candidate_parents()
    gadget._precompute_scores_for_all_candidate_psets()
    scored = time.process_time()
    gadget._precompute_candidate_restricted_scoring()
    gadget._precompute_candidate_complement_scoring()
    gadget._init_mcmc()
    end = scored + asked["budget"]
    middle = end - OF_GRAPHS * asked["budget"]
    seen = []
    while not seen or time.process_time() < middle:
        for _ in range(THINNING):
            partition = gadget.mcmc.sample()[0]
        seen.append([set(layer) for layer in partition])
    kept = seen[len(seen) // 2 :]
    edges, number = drawn(gadget, kept, end)
    found = {
        "edges": edges.tolist(),
        "seconds": time.process_time() - scored,
        "scores": scored - begun,
        "note": f"{THINNING * len(seen)} steps, {number} graphs",
    }
    with open(answer, "w") as file:
        json.dump(found, file)


def drawn(gadget, partitions, end):
    """Shares of edges in graphs drawn from partitions, as many as there is time for."""
    draw = sumu.gadget.DAGR(gadget.score, gadget.C, tolerance=gadget.tolerance)
    order = np.random.permutation(len(partitions))  # noqa: NPY002
    d = len(gadget.C)
    edges = np.zeros((d, d))
    limit = time.process_time() + (end - time.process_time()) / d
    for v in gadget.C:
        draw.precompute_pset_sampling(v)
        for count, place in enumerate(order):
            if v == 0 and count and time.process_time() > limit:
                order = order[:count]
                break
            family = draw.sample_pset(v, partitions[place])
            for parent in family[1] if len(family) > 1 else ():
                edges[parent, v] += 1
    return edges / len(order), len(order)


if __name__ == "__main__":
    main(*sys.argv[1:])
