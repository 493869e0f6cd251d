"""How many layers does the ground have, and what do they conduct?

A magnetotelluric sounding over horizontal layers: natural fields of high frequency see what is
shallow, those of low frequency what is deep. The number of interfaces is unknown, with their
depths and the resistivity below each. Data are simulated from three layers.

* layers.png: the data with draws of the posterior, the resistivity against depth, p(k | data).

    python examples/layers.py            # four minutes
    python examples/layers.py --quick
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from matplotlib import pyplot as plt
from torch.distributions import Normal, Uniform

import trjmcmc as trj

MOST = 4  # interfaces

MU = 4e-7 * math.pi  # magnetic permeability, H/m

FREQUENCY = torch.logspace(-1, 4, 12)  # Hz

ERRORS = torch.tensor([0.05, 2.0])[:, None]  # of log10 apparent resistivity, and degrees of phase

TRUE = {
    "top": torch.tensor([2.0]),
    "log_depth": torch.tensor([[2.3, 2.9]]),
    "below": torch.tensor([[1.0, 2.7]]),
}


def layers(p, active):
    """Depths of interfaces from above, log10 resistivity of all layers, which interfaces exist.

    Shapes (n, MOST), (n, MOST + 1) and (n, MOST); interfaces that do not exist come last.
    """
    order = torch.where(active, p["log_depth"], torch.inf).argsort(1)
    depth, below, there = (x.gather(1, order) for x in (p["log_depth"], p["below"], active))
    return 10**depth, torch.cat([p["top"][:, None], below], 1), there


def response(p, active):
    """Log10 apparent resistivity and phase in degrees at all frequencies, (n, 2, frequencies).

    The recursion of Wait (1954) from the deepest layer upwards.
    """
    depth, log_rho, there = layers(p, active)
    wave = 1j * 2 * math.pi * MU * FREQUENCY
    rho = 10 ** log_rho[..., None]
    own = (wave * rho).sqrt()  # impedance of each layer without an end, (n, layers, frequencies)
    impedance = own[:, -1]
    for i in reversed(range(depth.shape[1])):
        above = depth[:, i - 1] if i else torch.zeros_like(depth[:, 0])
        thick = (depth[:, i] - above).clamp(min=0)[:, None]
        reflected = (own[:, i] - impedance) / (own[:, i] + impedance)
        reflected = reflected * torch.exp(-2 * thick * own[:, i] / rho[:, i])
        over = own[:, i] * (1 - reflected) / (1 + reflected)
        impedance = torch.where(there[:, [i]], over, own[:, i])
    apparent = impedance.abs().square() / wave.abs()
    return torch.stack([apparent.log10(), torch.rad2deg(impedance.angle())], 1)


def simulated():
    """A sounding over three layers, (2, frequencies)."""
    exact = response(TRUE, torch.ones(1, 2, dtype=torch.bool))[0]
    return exact + ERRORS * torch.randn(exact.shape, generator=torch.Generator().manual_seed(1))


def target_of(seen):
    """0 to MOST interfaces, equally likely; log10 of depths in m and of resistivities in ohm m."""

    def log_likelihood(p, active):
        return Normal(response(p, active), ERRORS).log_prob(seen).sum((1, 2))

    resistivity = Uniform(0.0, 4.0)
    priors = {"top": resistivity, "below": resistivity, "log_depth": Uniform(1.0, 4.0)}
    return trj.Target(trj.Counts(MOST, of=("log_depth", "below")), priors, log_likelihood)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a sixth of the time")
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)

    seen = simulated()
    target = target_of(seen)
    result = trj.TRJSampler(target, seed=1).run(max_seconds=40 if options.quick else 240)
    print(result.counts().round(3).to_string())

    depth = torch.logspace(1, 4, 120)

    def profile(p, active):
        """Log10 resistivity at all depths, (draws, depths)."""
        ends, log_rho, there = layers(p, active)
        passed = (depth[:, None] > ends[:, None, :]) & there[:, None, :]
        return log_rho.gather(1, passed.sum(-1))

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    sounding = (np.asarray(FREQUENCY), np.asarray(seen[0]))
    result.plot_averaged(FREQUENCY, lambda p, active: response(p, active)[:, 0], sounding, left)
    left.set(xscale="log", xlabel="frequency, Hz", ylabel="log10 apparent resistivity, ohm m")
    result.plot_averaged(depth, profile, ax=middle, depth=True)
    true = profile(TRUE, torch.ones(1, 2, dtype=torch.bool))[0]
    middle.plot(true, depth, color="black", lw=1, label="true")
    middle.set(yscale="log", ylabel="depth, m", xlabel="log10 resistivity, ohm m")
    middle.legend(frameon=False, fontsize=8, loc="lower left")
    result.plot_models(right)
    right.set_xlabel("interfaces")
    path = options.output / "layers.png"
    figure.savefig(path, dpi=120)
    print(f"\nPicture: {path}")


if __name__ == "__main__":
    main()
