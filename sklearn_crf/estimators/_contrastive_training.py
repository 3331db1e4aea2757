"""Contrastive constraint generation: optimise, look for assignments that the model likes too well, add them, repeat."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.estimators._problem import PenalisedRisk
from sklearn_crf.estimators._progress import progress_reporter
from sklearn_crf.estimators._training import Outcome, minimize_by_epochs, warn_of_lbfgs
from sklearn_crf.inference import convergence_left_to_caller
from sklearn_crf.optimize import minimize_lbfgs


class ContrastiveOptions(NamedTuple):
    """Constructor parameters that govern training."""

    solver: str
    C: float
    n_new: int
    max_rounds: int
    step_size: float
    step_schedule: str
    batch_size: int
    max_iter: int
    tol: float
    keeps_interrupted: bool
    verbose: int


@dataclass(eq=False)
class RoundsOutcome(Outcome):
    """What training found, and how its sets grew."""

    n_generated: list = field(default_factory=list)  # new assignments of each round
    round_starts: list = field(default_factory=list)  # entries of the trace at which rounds begin
    converged: bool = False
    n_assignments: int = 0


@dataclass(eq=False)
class Progress:
    """What a progress bar shows: an entry a round, or an epoch."""

    outcome: RoundsOutcome
    loss: list = field(default_factory=list)

    def summary(self):
        """The latest entry in words."""
        text = self.outcome.trace.summary()
        return f"{text}, {self.outcome.n_generated[-1]} new" if self.outcome.n_generated else text


class Generation:
    """Assignments for some batches under the weights of now.

    Every batch, and every visit to it, has random numbers of its own, so that nothing depends on the number of threads.
    """

    def __init__(self, risk, n_repetitions):
        self.risk = risk
        self._n_repetitions = n_repetitions
        self._n_visits = np.zeros(len(risk.batches), dtype=np.int64)

    def __call__(self, coef, members=None):
        """Extend the sets; number of assignments that are new."""
        members = range(len(self.risk.batches)) if members is None else [int(i) for i in members]
        counts = map_tasks(lambda i, n_threads: self._extend(i, coef, n_threads), members, self.risk.n_jobs)
        self._n_visits[list(members)] += 1
        return sum(counts)

    def _extend(self, i, coef, n_threads):
        batch, objective = self.risk.batches[i], self.risk.objective
        model = self.risk.potentials.model(coef, batch.example)
        parts = [(member, member.part_of(model)) for member in objective.members[i]]
        n_new = 0
        for number, generator in enumerate(objective.generators):
            for repetition in range(self._n_repetitions):
                rng = _random_state(self.risk.seed, i, self._n_visits[i], number, repetition)
                with convergence_left_to_caller(), batch.named_in_errors():
                    labels = self._generate(generator, i, parts, rng, n_threads)
                n_new += objective.sets[i].extend(model, _of_weight(batch, labels))
        return n_new

    def _generate(self, generator, i, parts, rng, n_threads):
        """One labeling of all members of batch i."""
        batch, cost = self.risk.batches[i], self.risk.objective.node_costs[i]
        return np.concatenate(
            [
                generator(
                    part,
                    batch.labels[member.nodes],
                    rng,
                    node_weight=None if cost is None else cost[member.nodes],
                    n_threads=n_threads,
                )
                for member, part in parts
            ]
        )


def _random_state(*key):
    return np.random.RandomState(np.random.SeedSequence([int(part) for part in key]).generate_state(4))


def _of_weight(batch, labels):
    """Labels generated, the true ones where an example weighs nothing: it is as if it were not there."""
    if batch.weight is None or batch.weight.all():
        return labels
    return np.where(np.repeat(batch.weight > 0, np.diff(batch.node_ptr)), labels, batch.labels)


def train_by_rounds(risk, start, options, rng, on_iteration):
    """Minimise a contrastive objective whose sets grow on the way.

    Parameters
    ----------
    risk : EmpiricalRisk
        Of a :class:`~sklearn_crf.estimators._contrastive_start.ContrastiveObjective`.
    start : ndarray of shape (n_coef,)
    options : ContrastiveOptions
    rng : RandomState
        For the order of mini-batches.
    on_iteration : callable(coef) -> bool
        Called after every round, or epoch of stochastic gradient descent; True asks to stop.

    Returns
    -------
    RoundsOutcome
        After Ctrl-C with ``keeps_interrupted`` it carries the interruption, to be raised once stored.
    """
    by_epochs = options.solver == "sgd"
    n_steps = options.max_iter if by_epochs else options.max_rounds + 1
    problem = PenalisedRisk(risk, options.C, n_steps if by_epochs else n_steps * options.max_iter)
    outcome = RoundsOutcome(np.array(start), problem.trace, 0)
    with progress_reporter(options.verbose, n_steps, "contrastive") as show:
        progress = Progress(outcome)

        def report(coef):
            progress.loss.append(problem.trace.loss[-1])
            show(progress)
            return on_iteration(coef)

        try:
            run = _train_sgd if by_epochs else _train_rounds
            run(problem, Generation(risk, options.n_new), options, outcome, rng, report)
        except KeyboardInterrupt as interruption:
            if not options.keeps_interrupted or problem.trace.latest is None:
                raise
            outcome.coef, outcome.interrupted = problem.trace.latest, interruption
    outcome.n_iter = len(problem.trace.loss)
    outcome.n_assignments = sum(sets.n_assignments for sets in risk.objective.sets)
    return outcome


def _train_rounds(problem, generate, options, outcome, rng, report):
    limits = {"max_iter": options.max_iter, "tol": options.tol}
    while True:
        # The same weights have another loss since the sets have grown.
        problem.evaluate(outcome.coef)
        outcome.round_starts.append(len(problem.trace.loss))
        problem.record(outcome.coef)
        found = minimize_lbfgs(problem.evaluate, outcome.coef, callback=lambda p: problem.record(p.x), **limits)
        outcome.coef = found.x
        if report(found.x):
            break
        if len(outcome.n_generated) == options.max_rounds or not problem.risk.objective.generators:
            outcome.converged = not problem.risk.objective.generators
            break
        outcome.n_generated.append(generate(found.x))
        if not outcome.n_generated[-1]:
            outcome.converged = True
            break
    if not found.success:
        warn_of_lbfgs(found, problem)


def _train_sgd(problem, generate, options, outcome, rng, report):
    n_epochs, n_with_generation = 0, options.max_rounds if problem.risk.objective.generators else 0

    def gradient(members, coef):
        if n_epochs < n_with_generation:
            if n_epochs == len(outcome.n_generated):
                outcome.n_generated.append(0)
                outcome.round_starts.append(n_epochs)
            outcome.n_generated[n_epochs] += generate(coef, members)
        return problem.evaluate(coef, members)

    def callback(point):
        nonlocal n_epochs
        n_epochs += 1
        problem.record(point.x)
        return report(point.x)

    found = minimize_by_epochs(problem, outcome.coef, options, rng, gradient, callback)
    outcome.coef = found.x
    outcome.converged = not outcome.n_generated or outcome.n_generated[-1] == 0
