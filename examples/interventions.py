"""Which way does the arrow point? Data leave it open; setting variables from outside does not.

A chain a -> b -> c of linear equations. Three graphs say the same independences: a -> b -> c,
a <- b <- c and a <- b -> c have the same BGe score, however many rows there are. Some rows in which
b was set by coin flips settle it: such rows say nothing of what causes b, and all of what b causes.

    python examples/interventions.py
"""

import argparse

import torch

from trjmcmc import graphs

NAMES = ["a", "b", "c"]


def chain(rows: int, generator: torch.Generator, set_b: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of a -> b -> c, and where variables were set from outside."""
    e = torch.randn(3, rows, generator=generator)
    a = e[0]
    b = 2.0 * torch.randint(0, 2, (rows,), generator=generator) - 1 if set_b else 0.8 * a + e[1]
    c = 0.8 * b + e[2]
    mask = torch.zeros(rows, 3, dtype=torch.bool)
    mask[:, 1] = set_b
    return torch.stack([a, b, c], 1), mask


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    watched, none = chain(300, generator, set_b=False)
    for rows in (0, 20, 100):
        done, mask = chain(rows, generator, set_b=True)
        x, interventions = torch.cat([watched, done]), torch.cat([none, mask])
        found = graphs.exact(graphs.bge(x, names=NAMES, interventions=interventions))
        print(f"\n300 rows watched, {rows} with b set: probability of each edge, parents in rows")
        print(found.edges.round(3).to_string())


if __name__ == "__main__":
    main()
