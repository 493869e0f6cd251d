"""DiBS: particles of embeddings of graphs, moved by Stein variational gradient descent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from ..errors import ConfigurationError, ConvergenceWarning, InterruptedWarning, warn_user
from ..fit.stein import RootMeanSquare, SquaredExponential, stein_direction
from ..progress import progress_bar
from ..space.dags import Dags
from ..space.paths import adjacency, masks_of
from ..target.target import Target
from .embedding import (
    cyclicity_gradient,
    draw_graphs,
    hard_edges,
    relaxed_gradient,
    score_gradient,
    soft_edges,
)
from .particles import GraphParticles, listed
from .relaxed import GraphLikelihood, Workspace, likelihood_of

Schedule = float | Callable[[int], float]

SAMPLES, CONSTRAINT_SAMPLES = 128, 32  # graphs a particle for gradients of likelihood and of h

BOUND = 30.0  # of log odds, beyond which an edge is certain in any precision

# by what is sampled: slope of alpha, bandwidths of embeddings and parameters (DiBS, Table 2)
SETTINGS: Mapping[str, tuple[float, float, float]] = {
    "marginal": (2.0, 2.0, 1.0),
    "linear": (0.2, 5.0, 500.0),
    "nonlinear": (0.02, 5.0, 1000.0),
}


@dataclass(frozen=True)
class _Plan:
    """Schedules and numbers of a run of DiBS."""

    steps: int
    alpha: Callable[[int], float]
    beta: Callable[[int], float]
    relaxed: bool


def dibs(
    target: Target,
    *,
    particles: int = 30,
    steps: int = 3000,
    alpha: Schedule | None = None,
    beta: Schedule = 1.0,
    kernel: SquaredExponential | None = None,
    gradient: str | None = None,
    learning_rate: float = 0.005,
    seed: int = 0,
    progress: bool = True,
) -> GraphParticles:
    r"""Graphs, with parameters or without, by differentiable Bayesian structure learning.

    A graph is a random function of two vectors a node, each of as many numbers, k, as nodes,

    .. math:: p(i \to j) = \sigma(\alpha\, u_i^\top v_j), \qquad
              p(Z) \propto \exp(-\beta\, \mathrm{E}[h(G)])\, N(Z; 0, 1 / k),

    where h is zero for acyclic graphs; alpha and beta grow, so that in the end each particle is one
    graph. It is here for comparison, and for chains to start from
    (``run(start=particles)``): its answer has no guarantee; errors of 0.1 to 0.4 of an
    edge are usual.

    Arguments:
        target: Over :class:`~trjmcmc.graphs.Dags`: with local scores graphs alone; else their
            parameters too, those of absent edges counting as zero.
        particles: M, 2 or more.
        steps: T.
        alpha, beta: Slopes of the schedules alpha_t = alpha t, beta_t = beta t, or functions of t.
            Alpha is 2 for local scores, 0.2 for linear equations, 0.02 for others if omitted.
        kernel: Between particles, of one bandwidth for the embeddings and one for parameters; 2,
            (5, 500), (5, 1000) if omitted.
        gradient: Of the likelihood by the edges: ``"score"``, the score function, or
            ``"gumbel"``, by relaxed graphs, which local scores do not have. The second where there
            are parameters, if omitted.
        learning_rate: Of RMSProp.
        seed: Of all randomness.
        progress: Show a bar.

    Returns:
        The particles whose graphs are acyclic; a warning names those that are dropped.

    Raises:
        ConfigurationError: Another target; fewer than two particles; schedules that are negative,
            not finite, or fall, alpha also if it stands still; relaxed graphs of local scores; a
            graph with a cycle in every particle.

    Source:
        Lorch, Rothfuss, Schoelkopf & Krause (2021), https://arxiv.org/abs/2105.11839, Algorithm 2
        and appendices B to E

    Example:
        >>> from trjmcmc import graphs
        >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).cumsum(1)
        >>> target = graphs.target(graphs.bge(x, names=["a", "b", "c"]))
        >>> found = dibs(target, particles=10, steps=300, progress=False)
        >>> found.edges().shape, round(float(found.weights().sum()), 6)
        ((3, 3), 1.0)
    """
    if not isinstance(target, Target):
        raise ConfigurationError(
            "dibs: expected a target, such as trj.graphs.target(scores) or trj.graphs.network(x), "
            f"got {type(target).__name__}"
        )
    if target.space.orders:
        raise ConfigurationError("dibs: give the target over Dags, without orders of the nodes")
    if not target.space.graphs or not target.space.n_items:
        raise ConfigurationError("dibs: expected a target over Dags of two nodes or more")
    if not (isinstance(particles, int) and isinstance(steps, int)):
        raise ConfigurationError(
            f"dibs: particles and steps are integers, got {particles}, {steps}"
        )
    if particles < 2:
        raise ConfigurationError(
            f"dibs: expected 2 particles or more, got {particles}: they repel each other, and one "
            "alone is a mode"
        )
    if steps < 1 or not learning_rate > 0:
        raise ConfigurationError(
            f"dibs: expected steps >= 1 and learning_rate > 0, got {steps}, {learning_rate}"
        )
    likelihood = likelihood_of(target)
    if gradient not in (None, "score", "gumbel"):
        raise ConfigurationError(f'dibs: gradient: expected "score" or "gumbel", got {gradient!r}')
    if gradient == "gumbel" and not likelihood.relaxed:
        raise ConfigurationError(
            'dibs: gradient="gumbel" needs edges by degrees, which local scores do not have; '
            "leave it out, or sample the weights: trj.graphs.network"
        )
    kind = _kind(target)
    slope, of_embeddings, of_parameters = SETTINGS[kind]
    if kernel is None:
        own = (of_embeddings, of_parameters) if target.dim else (of_embeddings,)
        kernel = SquaredExponential(own)
    plan = _Plan(
        steps,
        _schedule("alpha", slope if alpha is None else alpha, steps, grows=True),
        _schedule("beta", beta, steps, grows=False),
        likelihood.relaxed if gradient is None else gradient == "gumbel",
    )
    moving = _Moving(target, likelihood, plan, particles, seed)
    rms = RootMeanSquare(learning_rate)
    with progress_bar(progress, total=steps, desc="dibs", unit="step") as bar:
        try:
            for t in range(1, steps + 1):
                moving.step(t, kernel, rms)
                bar.update()
        except KeyboardInterrupt:
            warn_user(
                "dibs interrupted; the particles are where they were, and may still be cyclic",
                InterruptedWarning,
            )
    advice = "let the weight of the constraint grow further (beta, or more steps)"
    found = GraphParticles(target, moving.graphs(), moving.theta, advice=advice)
    if found.dropped:
        warn_user(
            f"dibs: {len(found.dropped)} of {particles} particles have a cycle, or edges that the "
            f"prior excludes, and are dropped: {listed(found.dropped)}. More steps, or a larger "
            "beta, would help",
            ConvergenceWarning,
        )
    return found


def _kind(target: Target) -> str:
    if not target.dim:
        return "marginal"
    equations = target.equations
    return "linear" if equations is not None and not equations.nodes else "nonlinear"


def _schedule(name: str, given: Schedule, steps: int, *, grows: bool) -> Callable[[int], float]:
    """A function of t, checked at every step; what has to grow may not stand still."""

    def linear(t: int) -> float:
        assert not callable(given)
        return float(given) * t

    found = given if callable(given) else linear
    try:
        values = [float(found(t)) for t in range(1, steps + 1)]
    except (TypeError, ValueError) as error:
        wrong = f"dibs: {name}: expected a number or a function of t: {error}"
        raise ConfigurationError(wrong) from error
    first, last = values[0], values[-1]
    if not all(map(math.isfinite, values)):
        raise ConfigurationError(
            f"dibs: {name}: not finite at some step: {first:g} at first, {last:g} in the end"
        )
    stands = grows and steps > 1 and last == first
    if min(values) < 0 or last < first or stands or (grows and last == 0):
        raise ConfigurationError(
            f"dibs: {name}: expected a schedule that is not negative and grows, got {first:g} at "
            f"first and {last:g} in the end"
        )
    return found


class _Moving:
    """Embeddings and parameters on their way.

    Attributes:
        z: Embeddings u and v, (M, 2, d, k).
        theta: Coordinates, (M, D).
    """

    def __init__(
        self,
        target: Target,
        likelihood: GraphLikelihood,
        plan: _Plan,
        particles: int,
        seed: int,
    ) -> None:
        self._room, self.space = Workspace(), cast("Dags", target.space)
        self.likelihood, self.plan = likelihood, plan
        self.generator = torch.Generator(target.device).manual_seed(seed)
        dtype = target.dtype if target.dim else torch.get_default_dtype()
        d = len(self.space.nodes)
        shape = (particles, 2, d, d)
        self.sd = d**-0.5
        self.z = self.sd * torch.randn(
            shape, generator=self.generator, dtype=dtype, device=target.device
        )
        everything = self.space.together().expand(particles, -1)
        theta = target.sample_prior(everything, self.generator)
        self.theta = torch.where(theta.isfinite(), theta, 0.0)
        must, may = (adjacency(x[None])[0] for x in (self.space.must, self.space.may))
        self.must, self.free = must, may & ~must

    def logits(self, alpha: float) -> Tensor:
        """Log odds of edges, (M, d, d)."""
        found = (alpha * self.z[:, 0] @ self.z[:, 1].transpose(-1, -2)).clamp(-BOUND, BOUND)
        found = torch.where(self.free, found, -math.inf)
        return torch.where(self.must, math.inf, found)

    def graphs(self) -> Tensor:
        """The graph of each particle where alpha is infinite, masks (M, d)."""
        return masks_of(self.logits(1.0) > 0)

    def step(self, t: int, kernel: SquaredExponential, rms: RootMeanSquare) -> None:
        by_z, by_theta = self.gradients(t)
        blocks, slopes = [self.z.flatten(1)], [by_z.flatten(1)]
        if self.theta.shape[1]:
            blocks, slopes = [*blocks, self.theta], [*slopes, by_theta]
        go = rms.steps(stein_direction(blocks, slopes, kernel))
        self.z = self.z + go[0].view_as(self.z)
        if len(go) > 1:
            self.theta = self.theta + go[1]

    def gradients(self, t: int) -> tuple[Tensor, Tensor]:
        """Of the log posterior by embeddings and parameters, estimated; shapes as of these."""
        plan, alpha = self.plan, float(self.plan.alpha(t))
        logits = self.logits(alpha)
        field = draw_graphs(logits, SAMPLES, self.generator, self._room)
        hard, few = hard_edges(field, self._room), slice(CONSTRAINT_SAMPLES)
        if plan.relaxed:
            soft = soft_edges(field, self._room)
            value, slope = self.likelihood.by_edges(soft, self.theta)
            found = relaxed_gradient(soft, value, slope)
        else:
            found = score_gradient(logits, hard, self.likelihood.value(hard, self.theta))
            soft = soft_edges(field[:, :, few], self._room)
        found = found - plan.beta(t) * cyclicity_gradient(soft[:, :, few])
        found = found + self._of_prior(logits)
        found = alpha * torch.where(self.free, found, 0.0).to(self.z)
        u, v = self.z[:, 0], self.z[:, 1]
        by_z = torch.stack([found @ v, found.transpose(-1, -2) @ u], 1) - self.z / self.sd**2
        by_theta = self.theta
        if self.theta.shape[1]:
            by_theta = self.likelihood.by_theta(hard, self.theta)
        return by_z, by_theta

    def _of_prior(self, logits: Tensor) -> Tensor:
        """Gradient of the log prior of graphs at the edge probabilities, by their log odds."""
        p = torch.sigmoid(logits)
        with torch.enable_grad():
            own = p[:, self.space.parent_of, self.space.child_of].detach().requires_grad_()
            value = self.space.graded_log_prior(own)
            (slope,) = torch.autograd.grad(value.sum(), own, allow_unused=True)
        if slope is None:
            return torch.zeros_like(p)
        return self.space.matrix(slope) * p * (1 - p)
