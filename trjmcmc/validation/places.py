"""Points of the prior and of the posterior at which a likelihood is looked at."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..result.result import Result
from ..space.base import Space
from ..target.density import Density
from ..target.target import Target

PRIOR_POINTS = 24  # of each model, or of a space in all

POSTERIOR_POINTS = 24


@dataclass(frozen=True)
class Points:
    """Points of one likelihood.

    Attributes:
        density: Prior and likelihood.
        space: The models, bound to the coordinates.
        label: What to call it: the model, or the space.
        code: Models, shape (n, L).
        theta: Padded coordinates, shape (n, D), all finite.
        items: Items in use, shape (n, n_items); None in lists of models.
        seen: Which are draws of the posterior, shape (n,), bool.
    """

    density: Density
    space: Space
    label: str
    code: Tensor
    theta: Tensor
    items: Tensor | None
    seen: Tensor

    def of(self, target: Target) -> Points:
        """The same points of the same models in a target of another precision."""
        density = target.densities.of(self.code[0])
        theta = self.theta.to(target.dtype)
        return Points(density, target.space, self.label, self.code, theta, self.items, self.seen)


def places(target: Target, result: Result | None, generator: torch.Generator) -> list[Points]:
    """Points of each likelihood of a target.

    Arguments:
        target: The target.
        result: Of a run on it, whose draws are the posterior's points; None leaves them out.
        generator: Source of randomness.
    """
    space, found = target.space, []
    raw = None if result is None else result.raw.flat()
    for place, (density, _) in enumerate(target.densities.examples(1, target.device)):
        if space.has_items:
            half = PRIOR_POINTS // 2
            code = space.sample_prior(half, generator)
            code = torch.cat([code, space.examples(half, generator)])
            label = f"the {type(space).__name__} target"
        else:
            code = torch.full((PRIOR_POINTS, 1), place, device=target.device)
            label = f"model {target.models[place].name!r}"
        theta = target.sample_prior(code, generator)
        seen = torch.zeros(len(code), dtype=torch.bool)
        if raw is not None:
            rows = torch.arange(len(raw[0]))
            if not space.has_items:
                rows = (raw[0][:, 0] == place).nonzero()[:, 0]
            if len(rows):
                few = torch.linspace(0, len(rows) - 1, min(POSTERIOR_POINTS, len(rows)))
                rows = rows[few.round().long()]
                code = torch.cat([code, raw[0][rows].to(code)])
                theta = torch.cat([theta, raw[1][rows].to(theta)])
                seen = torch.cat([seen, torch.ones(len(rows), dtype=torch.bool)])
        fine = theta.isfinite().all(-1)
        code, theta, seen = code[fine], theta[fine], seen[fine.cpu()]
        if len(code):
            items = target.densities.items(code)
            found.append(Points(density, space, label, code, theta, items, seen))
    return found
