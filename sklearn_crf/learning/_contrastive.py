"""Contrastive constraint generation: optimise, look for assignments that the model likes too well, add them, repeat."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from sklearn_crf._reports import progress_reporter
from sklearn_crf._threads import map_tasks
from sklearn_crf.distributed import ClusterGoneError
from sklearn_crf.inference import convergence_left_to_caller
from sklearn_crf.learning._convergence import minimize_in_bulk, warn_of_lbfgs
from sklearn_crf.learning._solvers import SGD, Solver
from sklearn_crf.learning._training import PenalisedRisk, TrainingRecord, TrainingRun
from sklearn_crf.models import clamped
from sklearn_crf.optimize import SHARE_LEFT, minimize_lbfgs


@dataclass(eq=False)
class RoundsRecord(TrainingRecord):
    """Iterates of training in rounds, and how its sets grew."""

    # n_generated: list of int, new assignments of each round
    # round_starts: list of int, entries of the record at which rounds begin
    # converged: whether the last round found nothing new, and its weights converged
    # n_assignments: number of assignments in all sets at the end
    # inference: what predicts with the weights, where training chose it
    # warn: tells of a last round that did not converge; the caller calls it, who may have better weights

    n_generated: list = field(default_factory=list)
    round_starts: list = field(default_factory=list)
    converged: bool = False
    n_assignments: int = 0
    inference: str | None = None
    warn: Callable[[], None] = lambda: None

    def fitted(self):
        found = super().fitted() | {
            "n_rounds_": len(self.n_generated),
            "n_generated_": np.array(self.n_generated, dtype=np.int64),
            "n_assignments_": self.n_assignments,
            "round_starts_": np.array(self.round_starts, dtype=np.int64),
        }
        return found if self.inference is None else found | {"inference_": self.inference}


def extend_sets(risk, coef, members=None):
    """Extend the sets of some batches of a risk by what is generated under weights; number of assignments added.

    Every batch, and every visit to it, has random numbers of its own, so that nothing depends on the number of threads.
    """
    members = range(len(risk.batches)) if members is None else [int(i) for i in members]
    counts = map_tasks(lambda i, n_threads: _extend(risk, i, coef, n_threads), members, risk.n_jobs)
    risk.objective.n_visits[list(members)] += 1
    return sum(counts)


def _extend(risk, i, coef, n_threads):
    batch, objective = risk.batches[i], risk.objective
    grows = objective.grows[i]
    if not grows.any():
        return 0
    model, _ = risk.model_by_weight(i, coef)
    truth, known = objective.sets[i].labels, batch.labels >= 0
    if not known.all():
        # What surrounds the nodes that may change is labelled.
        model = clamped(model, np.where(grows | ~known, -1, truth))
    parts = [(member, member.part_of(model)) for member in objective.members[i]]
    n_new = 0
    for number, generator in enumerate(objective.generators):
        for repetition in range(objective.n_new):
            rng = _random_state(risk.seed, i, objective.n_visits[i], number, repetition)
            with convergence_left_to_caller(), batch.named_in_errors():
                latest = objective.latest[i].get((number, repetition))
                labels = _generate(generator, truth, objective.node_costs[i], parts, rng, n_threads, latest)
            if generator.persistent:
                objective.latest[i][number, repetition] = labels
            labels = np.where(grows, _of_weight(batch, labels), truth)
            n_new += objective.sets[i].extend(model, labels, are_drawn=objective.are_drawn)
    return n_new


def _generate(generator, truth, cost, parts, rng, n_threads, latest):
    """One labeling of all members of a batch."""

    def start_of(member):
        return {"start": None if latest is None else latest[member.nodes]} if generator.persistent else {}

    return np.concatenate(
        [
            generator(
                part,
                truth[member.nodes],
                rng,
                node_weight=None if cost is None else cost[member.nodes],
                n_threads=n_threads,
                **start_of(member),
            )
            for member, part in parts
        ]
    )


def _n_assignments(risk):
    return sum(part.n_assignments for part in risk.objective.sets)


def _random_state(*key):
    return np.random.RandomState(np.random.SeedSequence([int(part) for part in key]).generate_state(4))


def _of_weight(batch, labels):
    """Labels generated, the true ones where an example weighs nothing: it is as if it were not there."""
    if batch.weight is None or batch.weight.all():
        return labels
    return np.where(np.repeat(batch.weight > 0, np.diff(batch.node_ptr)), labels, batch.labels)


def train_by_rounds(risk, start: np.ndarray, sets, solver: Solver, run: TrainingRun) -> RoundsRecord:
    """Minimise a contrastive objective whose sets grow on the way."""
    # risk: EmpiricalRisk of a ContrastiveObjective, or ShardedRisk whose shards have one each
    # start: (n_coef,); sets: ContrastiveTraining
    # run: ``on_iteration`` is called after every round, or epoch of stochastic gradient descent
    # run.held_out: chooses among rounds of which none came to an end, or None
    # returns RoundsRecord; after Ctrl-C with ``run.keeps_interrupted`` it carries the interruption
    by_epochs = isinstance(solver, SGD)
    n_steps = run.max_iter if by_epochs else sets.max_rounds + 1
    n_visits = n_steps if by_epochs else n_steps * run.max_iter
    problem = PenalisedRisk(risk, run.C, n_visits, run.edge_C, run.outer_gradient)
    problem.record = record = RoundsRecord(risk.path, coef=np.array(start))
    train = _train_by_epochs if by_epochs else _train_in_rounds
    n_given = risk.summed(_n_assignments)
    with progress_reporter(run.verbose, n_steps, "contrastive") as show:

        def report(coef):
            n_new = f", {record.n_generated[-1]} new" if record.n_generated else ""
            show(lambda: record.summary() + n_new)
            return run.on_iteration(coef)

        try:
            train(problem, partial(risk.summed, extend_sets, changes=True), sets, solver, run, report)
        except (KeyboardInterrupt, ClusterGoneError) as interruption:
            if not run.keeps_interrupted or record.latest is None:
                raise
            record.coef, record.interrupted = record.latest, interruption
    record.n_assignments = n_given + sum(record.n_generated)
    return record


# Shares of C that edges may have, and iterations for each. Labels of noisy squares and street scenes are best by the
# largest, those of photographs of horses by the least; the labels of training examples tell which.
_EDGE_SHARES, _N_ITER_OF_SHARE = (1e-6, 1e-5, 1e-4, 1e-3), 30


def choose_edge_penalty(risk, start: np.ndarray, run: TrainingRun, score) -> tuple[float, np.ndarray, float]:
    """Inverse strength of the penalty on edges under which the first sets label training examples best, the weights
    and their score."""
    # score: share of the nodes that weights label right
    chosen = run.C, start, -np.inf
    for share in _EDGE_SHARES:
        problem = PenalisedRisk(risk, run.C, _N_ITER_OF_SHARE, share * run.C)
        start = minimize_lbfgs(problem.evaluate, start, max_iter=_N_ITER_OF_SHARE, tol=run.tol).x
        found = score(start)
        if found > chosen[2]:
            chosen = share * run.C, start, found
    return chosen


_STILL_NEW = "STOP: max_rounds reached while the sets still grew"


def _train_in_rounds(problem, generate, sets, solver, run, report):
    record, generators = problem.record, problem.risk.objective.generators
    n_rounds = sets.max_rounds if generators else 0
    n_short = run.max_iter if sets.max_round_iter is None else min(run.max_iter, sets.max_round_iter)
    is_last, round_ends = not n_rounds, []
    while True:
        # The same weights have another loss since the sets have grown.
        problem.evaluate(record.coef)
        record.round_starts.append(record.n_iter)
        problem.visit(record.coef)
        max_iter = run.max_iter if is_last else n_short
        options = {"tol": run.tol, "most_left": SHARE_LEFT, "callback": lambda point: problem.visit(point.x)}
        n_left = partial(_n_left, record, record.n_iter + max_iter)
        found = minimize_lbfgs(problem.evaluate, record.coef, max_iter=max_iter, **options)
        found = minimize_in_bulk(minimize_lbfgs, problem, found, n_left, **options)
        record.coef = found.x
        round_ends.append(record.n_iter - 1)
        if generators and run.held_out is not None:
            run.held_out.visit(found.x)
        record.stopped = report(found.x)
        if record.stopped:
            break
        if len(record.n_generated) == n_rounds:
            record.converged = not generators
            break
        record.n_generated.append(generate(found.x))
        is_finished = found.success or max_iter == run.max_iter
        if not record.n_generated[-1] and is_finished:
            record.converged = True
            break
        # Weights of a round cut short may miss what better ones find.
        is_last = not record.n_generated[-1] or len(record.n_generated) == n_rounds
    record.stop_reason, record.best_iter = found.message, record.n_iter - 1
    if record.stopped:
        record.stop_reason = "STOP: by the callback"
    elif generators and found.success and not record.converged:
        record.stop_reason = _STILL_NEW
    elif not found.success:
        record.converged = False
        record.warn = partial(warn_of_lbfgs, found, problem)
    if generators and run.held_out is not None and not record.converged:
        run.held_out.choose(record)
        record.best_iter = round_ends[record.best_iter]


def _n_left(record, last):
    return last - record.n_iter


def _train_by_epochs(problem, generate, sets, solver, run, report):
    record = problem.record
    n_epochs, n_with_generation = 0, sets.max_rounds if problem.risk.objective.generators else 0

    def gradient(members, coef):
        if n_epochs < n_with_generation:
            if n_epochs == len(record.n_generated):
                record.n_generated.append(0)
                record.round_starts.append(n_epochs)
            record.n_generated[n_epochs] += generate(coef, members)
        return problem.evaluate(coef, members)

    def callback(point):
        nonlocal n_epochs
        n_epochs += 1
        problem.visit(point.x)
        record.stopped = report(point.x)
        return record.stopped

    found = solver.minimize_by_epochs(problem, record.coef, run, gradient, callback)
    record.coef, record.stop_reason, record.best_iter = found.x, found.message, record.n_iter - 1
    record.converged = bool(found.success and (not record.n_generated or record.n_generated[-1] == 0))
