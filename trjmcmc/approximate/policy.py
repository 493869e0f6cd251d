"""What a variational answer spends where; what chose each number."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import Checked


@dataclass(frozen=True)
class ApproximationPolicy(Checked):
    """How a variational answer is found.

    Attributes:
        particles: Chains of each model and replicate of the pilot run. 250 with ten moves take
            110 000 evaluations in the plane; where halves disagree twice as many follow.
        moves: Moves of each at each temperature.
        pilot_share: Share of the evaluations that the pilot run may grow to, until its halves
            agree.
        rough: Nats between the halves of the pilot run beyond which a map can't learn from it. What
            it has met is to be covered, in whatever proportion: weights put that right.
        fewest_ancestors: Prior draws that the pilot run's draws of a model descend from at least,
            for each coordinate, if a map is to learn from them.
        most_normal_coordinates: Coordinates up to which normals are the family that is tried
            first: a mixture of 64 has 64 (d + 1) (d + 2) / 2 numbers.
        fewest_normals: Normals that are tried, if the others predict held-out draws no better.
        most_normals: The same at most. On nine curved energies 64 end .004 to .02 nats off, 128
            about half of that in twice the time.
        predicted: Nats a held-out draw that more normals must be better by.
        first_round: Draws of the first round by which normals are fitted to weighted draws of
            their own; later ones are three times as large. On curved energies a round of 60 000
            takes the divergence from .05 to .015, one of 180 000 to .007.
        rounds: Rounds of these at most.
        order: Of the divergence that the rounds lower; above 1 what q is short of counts more.
        tail_share: Share of each normal that is made wider.
        tail_width: By how much.
        enough_share: Effective share of the weights from which a mixture is not trained further
            under a flow.
        batch: Draws of a training step. Large ones let steps be long.
        many_coordinates: Coordinates beyond which they are half as many, flows have no spline (a
            logistic regression of 100 takes 55 s, not 180, and ends .9 nats higher), and there is
            no pilot run, whose halves would differ by nats.
        learning_rates: Of Adam, tried in short trainings.
        tried_steps: Steps of each of these.
        short_steps: Steps of the first training by reverse KL; posteriors that are nearly normal
            need no more.
        polish_steps: Steps of the second one, at most.
        cover_share: Share of the evaluations left by the pilot run that normals may spend, in few
            coordinates, on draws for other families to learn from.
        fewest_effective: Draws that weighted ones must be worth, or a family learns from those of
            the pilot run.
        cover_steps: Steps of the training on draws of a pilot run, which evaluates nothing.
        cover_rate: Learning rate of that.
        cover_patience: Windows without progress after which it ends early.
        exact_steps: Steps of the training on draws that are nearly exact, which evaluates nothing.
            Neural flows that 1200 leave .04 to .13 nats off end at .003 to .06 after 2500.
        exact_rate: Learning rate of that. A neural flow on a curved energy that ends .066 nats off
            by .01 ends at .005.
        exact_patience: Windows without progress after which that ends early. After 8 the same flow
            ended .12 nats off.
        near_gap: Nats from its bound to the evidence beyond which a map that has learnt from nearly
            exact draws is tried from another start. Of five neural flows on a curved energy one
            stuck at .07 after polishing, the others at .001 to .014.
        near_share: Effective share of the weights from which a map that has learnt from nearly
            exact draws is near the posterior.
        near_rate: Learning rate of reverse KL from there; larger ones lose tails.
        layers: Coupling layers of the flow.
        layers_of_many: The same beyond ``many_coordinates``.
        hidden: Width of the conditioners of flows.
        hidden_of_many: The same of couplings beyond ``many_coordinates``.
        fixed_draws: Draws of each model by which a mean field is found. Its average standard
            deviation is then within .1 % of the best one in regressions of 2 to 100 columns.
        climb_steps: Quasi-Newton steps by these at most.
        moved_draws: Draws of a map beyond ``many_coordinates`` that moved ones are compared with.
        moved_chains: Chains that start at draws of it, in each model.
        moved_steps: Hamiltonian steps of each that count. 15 000 draws have the average standard
            deviation of 100 logistic coefficients within .2 % of a long run's, in five seconds;
            their covariances are mostly noise, so that there are more.
        moved_judges: Draws by which a map and one with other moments are compared.
        searched_draws: Prior draws, all models together, from which lost parts of posteriors are
            climbed to in the end. 20 000 find a mode of a third whose sides are a third as long,
            in 2 to 20 dimensions, in a second and 300 000 evaluations.
        searched_share: Share of the evaluations that these climbs take at most, once.
        answer_draws: Draws that the answer is made of.
    """

    particles: int = 250
    moves: int = 10
    pilot_share: float = 0.4
    rough: float = 0.5
    fewest_ancestors: float = 10.0
    most_normal_coordinates: int = 8
    fewest_normals: int = 4
    most_normals: int = 64
    predicted: float = 0.001
    first_round: int = 20_000
    rounds: int = 3
    order: float = 1.25
    tail_share: float = 0.02
    tail_width: float = 1.7
    enough_share: float = 0.95
    batch: int = 512
    many_coordinates: int = 30
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    tried_steps: int = 60
    short_steps: int = 300
    polish_steps: int = 1500
    cover_share: float = 0.5
    fewest_effective: float = 3000.0
    cover_steps: int = 1000
    cover_rate: float = 5e-3
    cover_patience: int = 8
    exact_steps: int = 2500
    exact_rate: float = 5e-3
    exact_patience: int = 25
    near_gap: float = 0.03
    near_share: float = 0.5
    near_rate: float = 1e-3
    layers: int = 6
    layers_of_many: int = 6
    hidden: int = 64
    hidden_of_many: int = 128
    fixed_draws: int = 2048
    climb_steps: int = 150
    moved_draws: int = 40_000
    moved_chains: int = 1500
    moved_steps: int = 24
    moved_judges: int = 3000
    searched_draws: int = 20_000
    searched_share: float = 0.3
    answer_draws: int = 10_000
