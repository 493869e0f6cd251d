"""From a fitted q to its answer, and from a run's draws to how far off that was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..errors import NonFiniteError
from ..estimate.estimate import Estimate
from ..estimate.importance import (
    CHUNK,
    EVEN,
    log_weights,
    pareto_k,
    pareto_smoothed,
    probabilities,
    rounded,
    smoothed,
)
from ..estimate.reach import FarDraws, far_draws
from ..pilot.report import AuditReport
from ..promises import PARETO_K_RELIABLE
from ..space.base import Space
from ..space.codes import distinct
from ..target.target import Target
from ..transport.base import Transport
from ..weights.base import ModelWeights
from ..weights.score_gradient import CategoricalWeights
from .axes import description
from .moments_of_q import wrong_moments
from .variational import Variational
from .variational_draws import VariationalDraws
from .variational_files import inclusion_of

if TYPE_CHECKING:
    import pandas as pd

Q_DRAWS = 8192  # from q that its answer is made of

FEWEST_OF_A_MODEL = 1024  # draws of each model of a small space, by which q(m) is found

MODELS_LISTED = 50  # models in the table at most

EVIDENCES_APART = 0.3  # nats between the evidence and that of a small pilot run that are a doubt

FAR = 0.5  # nats from q to the posterior that are a doubt

FAR_A_COORDINATE = 0.01  # nats beside that, of each coordinate

INCLUSION_APART = 0.05  # difference of a model's or an item's probability that is a doubt

SIGMAS = 5.0  # standard errors of it

FAR_DRAWS = 32_768  # of longer tails, of all models together

OF_NOTE = 0.05  # probability of a model whose evidence has to be known

BEYOND = 0.01  # share of the posterior beyond the reach of q that is a doubt

NARROWER = 0.05  # share by which a standard deviation under q is short, that is a doubt

NARROWER_SIGMAS = 3.0  # standard errors of that

BEYOND_SIGMAS = 3.0  # standard errors by which an evidence with longer tails must be larger

MOST_SUMMED = 4096  # models whose known evidences are added up

FREQUENT = 25  # expected draws of a model from where their number is that of a normal

MISCOUNTED = 7.0  # standard deviations of it

LOOKED_AFTER = 20  # models that q draws most, whose neighbours are weighed

NEIGHBOURS = 256  # of these at most

DRAWS_OF_A_NEIGHBOUR = 32

OVERLOOKED = 0.05  # share of the evidence in models that q does not draw, that is a doubt


class Weighed(NamedTuple):
    """Draws from q.

    Attributes:
        code: Shape (S, L).
        theta: Shape (S, D).
        log_joint: Shape (S,), float64, nats.
        log_q: Of model and theta together, shape (S,), float64, nats.
    """

    code: Tensor
    theta: Tensor
    log_joint: Tensor
    log_q: Tensor

    @property
    def log_w(self) -> Tensor:
        """Log importance weights, shape (S,), nats; -inf where the density is zero."""
        return (self.log_joint - self.log_q).nan_to_num(-math.inf, -math.inf, -math.inf)


@torch.no_grad()
def variational(
    target: Target,
    weights: ModelWeights | None,
    transport: Transport,
    generator: torch.Generator,
    *,
    n: int = Q_DRAWS,
    family: str = "",
) -> Variational:
    """Draw from q, and weigh the draws.

    Arguments:
        target, transport: As fitted.
        weights: q(m); None for that which fits best, in a small space.
        generator: Source of randomness.
        n: Draws from q.
        family: Of the map, by name.

    Raises:
        NonFiniteError: No draw of q lies where the posterior has a density.
    """
    import pandas as pd

    space = target.space
    kind = type(weights).__name__ if weights is not None else ""
    models = None
    if weights is None:
        models, weights = best_weights(target, transport, generator, n)
        kind = "their evidence bounds" if space.several else ""
    weighed = weigh(target, weights, transport, generator, n)
    log_w = weighed.log_w
    if not bool((log_w > -math.inf).any()):
        raise NonFiniteError(
            f"variational answer: none of {n} draws of q lies where the posterior has a finite "
            "density; train longer, or by another family"
        )
    codes, which, _ = distinct(weighed.code)
    log_p = weights.log_prob(codes).double()
    top = log_p.argsort(descending=True)[:MODELS_LISTED]
    probabilities = pd.Series(
        log_p[top].exp().tolist(), index=space.label(codes[top]), name="probability"
    )
    values = target.padded_values(weighed.code, weighed.theta)
    weighted, k = smoothed(log_w), pareto_k(log_w)
    log_evidence = rounded(weighted, target.dtype)
    out_there: list[str] = []
    if models is not None:
        models, out_there = _with_longer_tails(models, target, transport, generator)
        unknown = models["log_evidence_se"].isna() & (models["probability"] > OF_NOTE)
        log_evidence = _in_total(models, space)
        k = max([k, *models["pareto_k"][unknown]])
    ess_share = weighted.ess / len(log_w)
    answer = Variational(
        kind,
        probabilities,
        _inclusion(space, weighed.code),
        rounded(bound(log_w), target.dtype),
        family=family,
        log_evidence=log_evidence,
        ess_share=ess_share,
        pareto_k=k,
        models=models,
        sample=VariationalDraws(
            tuple(space.label(codes)),
            which.cpu(),
            {name: value.cpu() for name, value in values.items()},
            weighed.theta.cpu(),
            weighed.log_joint.cpu(),
            weighed.log_q.cpu(),
            {model.name: description(model, plain=True) for model in target.models},
        ),
        exact=_exact(target),
        transport=transport,
        weights=weights,
    )
    assert answer.sample is not None
    found = [
        *_doubts(answer, space, weighed),
        *out_there,
        *wrong_moments(answer.sample),
        *_of_draws(answer, space, weights, weighed),
        *_of_neighbours(answer, target, weights, transport, weighed, generator),
    ]
    return replace(answer, doubts=tuple(found))


def weigh(
    target: Target,
    weights: ModelWeights,
    transport: Transport,
    generator: torch.Generator,
    n: int,
) -> Weighed:
    """Draws from q with both log densities."""
    parts = []
    for size in [CHUNK] * (n // CHUNK) + ([n % CHUNK] if n % CHUNK else []):
        code = weights.sample(size, generator)
        z = transport.reference.sample((size, target.dim), generator, target.dtype)
        theta, log_q = transport.push(z, code)
        theta = torch.where(target.space.active(code), theta, 0.0)
        log_joint = target.log_joint(code, theta)
        target.check_finite(code, theta, log_joint)
        log_q = log_q.double() + weights.log_prob(code).double()
        parts.append((code, theta, log_joint.double(), log_q))
    return Weighed(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def best_weights(
    target: Target, transport: Transport, generator: torch.Generator, n: int
) -> tuple[pd.DataFrame, CategoricalWeights]:
    r"""Of a small space, what the map says of each model, and the q(m) that fits it best.

    .. math:: q(m) \propto p(m) \exp \mathrm{ELBO}(m)

    Returns:
        The table of :attr:`Variational.models`, and q(m).
    """
    import pandas as pd

    space = target.space
    codes = space.enumerate()
    log_prior = space.log_prior(codes).double()
    each, bounds, rows = max(FEWEST_OF_A_MODEL, n // len(codes)), [], []
    for code, prior in zip(codes, log_prior.tolist(), strict=True):
        log_w = log_weights(target, transport, code, each, generator)
        elbo, log_evidence = (rounded(e, target.dtype) for e in (bound(log_w), smoothed(log_w)))
        bounds.append(elbo.value)
        numbers = (elbo.shifted(-prior), log_evidence.shifted(-prior))
        row = [x for e in numbers for x in (e.value, e.std_error)]
        rows.append([*row, log_evidence.ess / each, pareto_k(log_w)])
    weights = CategoricalWeights(space).to(target.device)
    weights.logits.copy_(torch.tensor(bounds).to(weights.logits).nan_to_num(neginf=-1e30))
    columns = ["elbo", "elbo_se", "log_evidence", "log_evidence_se", "ess_share", "pareto_k"]
    table = pd.DataFrame(rows, pd.Index(space.label(codes), name="model"), columns)
    table.insert(0, "probability", weights.logits.double().softmax(0).tolist())
    return table, weights


def _with_longer_tails(
    table: pd.DataFrame, target: Target, transport: Transport, generator: torch.Generator
) -> tuple[pd.DataFrame, list[str]]:
    """The table of models, with evidences by draws of longer tails.

    Draws of q keep theirs where the others can't be averaged, unless these find more by several
    errors.

    Returns:
        The table, and in words what of common models lies beyond the reach of q.
    """
    space, table = target.space, table.copy()
    codes, doubts = space.enumerate(), list[str]()
    n = max(FEWEST_OF_A_MODEL, FAR_DRAWS // len(codes))
    for code, (label, row) in zip(codes, table.copy().iterrows(), strict=True):
        draws = far_draws(target, transport, code, n, generator)
        if draws is None:
            continue
        prior = float(space.log_prior(code[None]).double()[0])
        far = rounded(draws.log_evidence(), target.dtype).shifted(-prior)
        own, own_error = row["log_evidence"], row["log_evidence_se"]
        more = far.value - own > BEYOND_SIGMAS * math.hypot(far.std_error, own_error)
        unknown = math.isnan(own_error) and not far.warning
        beyond = -math.expm1(min(0.0, own - far.value)) if more or unknown else 0.0
        if float(row["probability"]) * beyond > BEYOND:
            share = float(row["probability"]) * beyond
            doubts.append(
                f"{share:.1%} of the posterior lies further out in the tails of {label} than draws "
                "of q reach: standard deviations and outer quantiles are too small, and "
                "corrected=True can't mend them"
            )
        elif not far.warning and float(row["probability"]) > OF_NOTE:
            doubts += _of_spread(draws, str(label), target, code)
        if more or not far.warning:
            error = math.nan if far.warning else far.std_error
            table.loc[label, ["log_evidence", "log_evidence_se"]] = far.value, error
    return table, doubts


def _of_spread(draws: FarDraws, label: str, target: Target, code: Tensor) -> list[str]:
    """The coordinate whose standard deviation is shortest, where one is short."""
    gap, error = draws.spread_missed()
    short = torch.where(gap > NARROWER_SIGMAS * error, gap, 0.0)
    if not float(short.max()) > NARROWER:
        return []
    slot = target.space.active(code[None])[0].nonzero()[short.argmax(), 0]
    share = 1 - 1 / (1 + float(short.max()))
    return [
        f"standard deviations under q are short by up to {share:.0%} ({target.slot_names[slot]} of "
        f"{label}): the posterior has longer tails, by draws further out than those of q, which "
        "corrected=True has not; see run()"
    ]


def _in_total(table: pd.DataFrame, space: Space) -> Estimate:
    """Log evidence of all models together by that of each."""
    log_prior = space.log_prior(space.enumerate()).double().cpu()
    masses = torch.tensor(table["log_evidence"].to_numpy()) + log_prior
    masses = masses.nan_to_num(-math.inf, math.inf, -math.inf)
    p, error = masses.softmax(0), torch.tensor(table["log_evidence_se"].to_numpy())
    error = torch.where(p > OF_NOTE, error, error.nan_to_num(1.0))  # of a small share no matter
    total = (p * error).square().sum().sqrt()
    return Estimate(float(masses.logsumexp(0)), float(total))


def bound(log_w: Tensor) -> Estimate:
    """The evidence lower bound of q where the density is not zero, nats.

    Arguments:
        log_w: Log weights of draws from q, shape (n,), nats; -inf outside the support.
    """
    finite = log_w[log_w.isfinite()]
    if not len(finite):
        return Estimate(-math.inf, math.inf, 0.0, "no draw in the support")
    share = len(finite) / len(log_w)
    spread = float(finite.std()) if len(finite) > 1 else math.nan
    error = math.hypot(
        spread / math.sqrt(len(finite)), math.sqrt((1 - share) / (share * len(log_w)))
    )
    return Estimate(float(finite.mean()) + math.log(share), error, float(len(finite)))


def _exact(target: Target) -> float | None:
    """Log evidence of all models together where the target knows it, nats."""
    space, size = target.space, target.space.size
    if size is None or size > MOST_SUMMED:
        return None
    truth = target.truth
    if truth is None or not truth.log_evidence:
        return None
    codes = space.enumerate()
    labels = space.label(codes)
    if any(label not in truth.log_evidence for label in labels):
        return None
    known = torch.tensor([float(truth.log_evidence[label]) for label in labels])
    total = (known.double() + space.log_prior(codes).double().cpu()).logsumexp(0)
    return float(total) if math.isfinite(total) else None


def _inclusion(space: Space, code: Tensor, weight: Tensor | None = None) -> pd.Series | None:
    """Inclusion probabilities by draws (S, L) with weights of sum one, shape (S,)."""
    if not space.has_named_items:
        return None
    items = space.items(code).double()
    share = items.mean(0) if weight is None else weight @ items
    return inclusion_of(dict(zip(space.names, share.tolist(), strict=True)))


# ---- what is known against it -----------------------------------------------------------------


def audited(
    answer: Variational, audit: AuditReport | None, notes: Sequence[str] = ()
) -> Variational:
    """The answer with what independent tempered draws say against it.

    Arguments:
        answer: The answer.
        audit: What they say of the map, if they could be relied on.
        notes: What else there is to know against it, in words.
    """
    found = (*_of_audit(audit), *notes, *answer.doubts)
    return replace(answer, audited=audit is not None, doubts=found)


def _doubts(answer: Variational, space: Space, weighed: Weighed) -> list[str]:
    """What draws and weights say against an answer, gravest first, in words."""
    found = _of_weights(answer, weighed)
    known = answer.log_evidence.value if answer.exact is None else answer.exact
    gap = known - answer.elbo.value
    coordinates = float(space.active(weighed.code).sum(-1).double().mean())
    if gap > FAR + FAR_A_COORDINATE * coordinates:
        found.append(
            f"the bound is {gap:.2f} nats below the evidence: q is that far from the posterior. "
            "Use corrected=True where Pareto k allows it, or a richer family"
        )
    return found + (_of_inclusion(answer, space, weighed) or _of_models(answer, space))


def _of_audit(audit: AuditReport | None) -> list[str]:
    if audit is None:
        return []
    found = []
    for m in audit.models:
        if not m.matters:
            continue
        if m.uncovered:
            found.append(
                f"q misses a part of the posterior of {m.model}: it covers {m.covered:.0%} of "
                f"independent tempered draws and has lost {m.lost:.1%}"
            )
        elif m.verdict == "evidences differ" and abs(m.difference) > EVIDENCES_APART:
            found.append(
                f"the evidence of {m.model} differs from that of independent tempered draws by "
                f"{m.difference:+.2f} +- {m.difference_se:.2f} nats"
            )
    return found


def _of_weights(answer: Variational, weighed: Weighed) -> list[str]:
    found = []
    lost = float((weighed.log_w == -math.inf).double().mean())
    if lost > 0.01:
        found.append(f"{lost:.1%} of q lies where the posterior has no density")
    if answer.pareto_k > PARETO_K_RELIABLE and answer.ess_share <= EVEN:
        found.append(
            f"Pareto k {answer.pareto_k:.2f}: the importance weights can't be averaged; neither "
            "the evidence nor corrected=True can be relied on"
        )
    return found


def _of_inclusion(answer: Variational, space: Space, weighed: Weighed) -> list[str]:
    """Items whose probability under q is not that by importance weights."""
    if answer.inclusion is None or not len(answer.inclusion):
        return []
    if answer.pareto_k > PARETO_K_RELIABLE and answer.ess_share <= EVEN:
        return []  # nothing to compare with
    weight = pareto_smoothed(weighed.log_w)[0].softmax(0)
    corrected = _inclusion(space, weighed.code, weight)
    assert corrected is not None
    gap = (answer.inclusion - corrected).abs()
    noise = math.sqrt(0.25 / (answer.ess_share * len(weight)))
    worst = str(gap.idxmax())
    if gap[worst] <= max(INCLUSION_APART, SIGMAS * noise):
        return []
    return [
        f"the probability of {worst} is {answer.inclusion[worst]:.2f} under q and "
        f"{corrected[worst]:.2f} by importance weights"
    ]


def _of_models(answer: Variational, space: Space) -> list[str]:
    """A model whose probability by its bound is not that by its evidence.

    q(m) follows the bounds, and these fall short of the evidences by KL(q | p), of each model by
    its own: a model that q fits 0.7 nats worse than another has half the odds.
    """
    if answer.models is None or not space.several:
        return []
    log_prior = space.log_prior(space.enumerate()).double().tolist()
    possible = [prior > -math.inf for prior in log_prior]
    table = answer.models[possible]
    priors = [prior for prior in log_prior if prior > -math.inf]
    masses = table["log_evidence"] + priors
    errors = table["log_evidence_se"].fillna(0.0)
    corrected = probabilities([Estimate(*x) for x in zip(masses, errors, strict=True)])
    found = []
    for (label, row), by_weights in zip(table.iterrows(), corrected, strict=True):
        p = float(row["probability"])
        noise = math.hypot(by_weights.std_error, p * (1 - p) * float(row["elbo_se"]))
        gap = abs(p - by_weights.value)
        if gap > max(INCLUSION_APART, SIGMAS * noise):
            found.append((gap, f"{label} is {p:.2f} under q and {by_weights.value:.2f}"))
    if not found:
        return []
    return [f"the probability of {max(found)[1]} by importance weights: q fits some models worse"]


def _of_draws(
    answer: Variational, space: Space, weights: ModelWeights, weighed: Weighed
) -> list[str]:
    """Whether models are drawn as often as q(m) says."""
    if not space.several or answer.sample is None:
        return []
    codes, which, _ = distinct(weighed.code)
    p = weights.log_prob(codes).double().exp()
    expected = p * len(which)
    deviation = torch.bincount(which, minlength=len(codes)) - expected
    z = deviation / (expected * (1 - p)).clamp(min=1e-12).sqrt()
    z = torch.where((expected >= FREQUENT) & (p < 1 - 1e-6), z.abs(), 0.0)
    worst = int(z.argmax())
    if float(z[worst]) < MISCOUNTED:
        return []
    share = float(torch.bincount(which, minlength=len(codes))[worst]) / len(which)
    (label,) = space.label(codes[worst : worst + 1])
    return [f"q(m) says {float(p[worst]):.3f} of {label} and draws it with {share:.3f}"]


def _of_neighbours(
    answer: Variational,
    target: Target,
    weights: ModelWeights,
    transport: Transport,
    weighed: Weighed,
    generator: torch.Generator,
) -> list[str]:
    """Whether models one change away from those that q draws are as good, and undrawn."""
    space = target.space
    if space.few or not space.several or space.graphs:
        return []
    codes, which, _ = distinct(weighed.code)
    top = torch.bincount(which, minlength=len(codes)).argsort(descending=True)[:LOOKED_AFTER]
    near, there = space.neighbours(codes[top])
    near = distinct(near[there])[0]
    drawn = {tuple(row) for row in codes.tolist()}
    new = [i for i, row in enumerate(near.tolist()) if tuple(row) not in drawn]
    near = near[new][torch.randperm(len(new), generator=generator, device=near.device)]
    near = near[:NEIGHBOURS]
    if not len(near):
        return []
    code = near.repeat_interleave(DRAWS_OF_A_NEIGHBOUR, 0)
    z = transport.reference.sample((len(code), target.dim), generator, target.dtype)
    theta, log_q = transport.push(z, code)
    theta = torch.where(space.active(code), theta, 0.0)
    log_w = (target.log_joint(code, theta) - log_q).double()
    log_w = log_w.nan_to_num(-math.inf, -math.inf, -math.inf).view(len(near), -1)
    log_mass = log_w.logsumexp(1) - math.log(DRAWS_OF_A_NEIGHBOUR) - answer.log_evidence.value
    mass = float(log_mass.logsumexp(0).clamp(max=50.0).exp())
    if not mass > OVERLOOKED:
        return []
    (label,) = space.label(near[log_mass.argmax()][None])
    return [
        f"models that q(m) hardly draws are at least {mass:.2g} times as probable as all that it "
        f"does, such as {label}"
    ]
