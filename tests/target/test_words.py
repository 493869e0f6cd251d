"""Targets in words."""

import torch
from torch.distributions import HalfCauchy, Normal

import trjmcmc as trj


def test_a_list_of_models_is_shown_with_their_parameters_and_axes():
    priors = {"tau": HalfCauchy(1.0), "effect": Normal(torch.zeros(8), 1.0)}
    models = [
        trj.Model("none", {}, lambda p: torch.zeros(())),
        trj.Model("alike", priors, lambda p: -p["tau"], dims={"effect": ("school",)}),
        trj.Joint("joint", {"x": (2, 3)}, lambda p: -p["x"].square().sum((-1, -2))),
    ]
    assert repr(trj.Target(models, dtype=torch.float64)).splitlines() == [
        "Target of 3 models, 15 coordinates, float64 on cpu",
        "  none: no parameters",
        "  alike: tau, effect[school=8]",
        "  joint (joint on a reference): x[2, 3]",
    ]


def test_many_models_and_spaces_are_shortened():
    many = [trj.Model(f"m{i}", {"x": Normal(0.0, 1.0)}, lambda p: -p["x"]) for i in range(15)]
    shown = repr(trj.Target(many)).splitlines()
    assert len(shown) == 14 and shown[-1] == "  and 3 more"
    space = trj.Subsets(["a", "b"], of="beta")
    target = trj.Target(space, {"beta": Normal(0.0, 1.0)}, lambda p, active: -p["beta"].sum(-1))
    assert repr(target).splitlines() == [
        "Target of 4 models, 2 coordinates, float32 on cpu",
        "  Subsets: beta[2]",
    ]
    counts = trj.problems.pulses()
    assert "Counts: " in repr(counts) and repr(counts).startswith("Target of ")
