"""Targets in some coordinates of one model, given the others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .target import Target


class Conditional(Target):
    """The posterior of some coordinates of a model given the others: all else is held.

    Points keep their shape; what they say of the coordinates that are held is ignored. Densities
    are those of the target at the point so made, prior of the held coordinates included.
    Evaluations are counted as the target's own.

    Arguments:
        target: The target.
        code: The model, shape (L,); other models have no place here.
        theta: A point of it, shape (D,).
        free: Coordinates that are not held, shape (D,), bool.

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> code, point = torch.tensor([1]), torch.tensor([1.0, 2.0])
        >>> second = Conditional(target, code, point, torch.tensor([False, True]))
        >>> there = torch.tensor([[0.0, 3.0]])
        >>> second.log_joint(code[None], there) == target.log_joint(
        ...     code[None], torch.tensor([[1.0, 3.0]])
        ... )
        tensor([True])
    """

    def __init__(self, target: Target, code: Tensor, theta: Tensor, free: Tensor) -> None:
        vars(self).update(vars(target))
        self._known, self._code = {}, code
        self.target, self.held, self._free = target, theta, free
        self.truth = None  # what is known belongs to all coordinates

    def free(self, code: Tensor) -> Tensor:
        """Coordinates that are not held, (C, L) -> (C, D) bool."""
        return self._free.expand(len(code), -1)

    def to(
        self, *, dtype: torch.dtype | None = None, device: Any = None, probe: bool = True
    ) -> Conditional:
        """A copy in another precision or on another device, its own target with it."""
        moved = self.target.to(dtype=dtype, device=device, probe=probe)
        if moved is self.target:
            return self
        code, free = self._code.to(moved.device), self._free.to(moved.device)
        held = self.held.to(moved.device, moved.dtype)
        return Conditional(moved, code, held, free)

    def log_prior_and_likelihood(
        self,
        code: Tensor,
        theta: Tensor,
        *,
        surrogate: bool = False,
        total: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """As of any target, (C,) each, nats."""
        return super().log_prior_and_likelihood(
            code, self._at(theta), surrogate=surrogate, total=total
        )

    def log_joint_and_grad(
        self,
        code: Tensor,
        theta: Tensor,
        *,
        temper: float | Tensor = 1.0,
        surrogate: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """As of any target, (C,) nats and (C, D); the gradient is zero where all is held."""
        value, gradient = super().log_joint_and_grad(
            code, theta, temper=temper, surrogate=surrogate
        )
        return value, torch.where(self._free, gradient, 0.0)

    def sample_prior(self, code: Tensor, generator: torch.Generator) -> Tensor:
        """Draws of the prior of the free coordinates given the others, shape (C, D)."""
        seed = int(torch.randint(2**31, (1,), generator=generator, device=generator.device))
        keep = ~self.free(code)
        filled = self.target.refill(
            code, self._at(torch.zeros_like(keep).to(self.held)), keep, seed
        )
        return torch.where(self._free, filled, 0.0)

    def constrain(self, code: Tensor, theta: Tensor) -> dict[str, Tensor]:
        """Those entries of the parameters of points (n, D) that differ from the held point's."""
        here = self.target.constrain(code, self._at(theta))
        held = self.target.constrain(code, self.held[None])
        entries = {k: (v != held[k]).any(0) for k, v in here.items()}
        return {k: v[:, entries[k]] for k, v in here.items() if bool(entries[k].any())}

    def _at(self, theta: Tensor) -> Tensor:
        """Points with all else as it is held, shape (C, D)."""
        return torch.where(self._free, theta, self.held)
