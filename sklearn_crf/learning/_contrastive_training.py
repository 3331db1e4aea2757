"""Contrastive learning, which makes the true labeling probable within sets of labelings that grow during training."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._options import options
from sklearn_crf.encoding import sort_cost_by_class
from sklearn_crf.inference import (
    ICM,
    AutoMap,
    Inference,
    LoopyBP,
    NamedInference,
    choose_able_inference,
    convergence_left_to_caller,
)
from sklearn_crf.learning._costs import cost_matrix
from sklearn_crf.learning._growing_sets import (
    PlannedSets,
    choose_edge_penalty,
    collect_observed_labelings,
    extend_sets,
    join_labelings,
    train_by_rounds,
)
from sklearn_crf.learning._labeler import weigh_correct_nodes
from sklearn_crf.learning._learning import Learning
from sklearn_crf.learning._likelihood import choose_layout_trees
from sklearn_crf.learning._plan import Facts, FitPlan
from sklearn_crf.learning._pseudolikelihood import have_known_surroundings
from sklearn_crf.learning._solvers import LBFGS, SGD
from sklearn_crf.learning._training import HeldOutScores, TrainingRecord
from sklearn_crf.objectives import EmpiricalRisk, Generator, GibbsGenerator, MapGenerator, MostViolated, Objective

# If this number of rounds has not improved the training accuracy, the stop reason mentions this.
# Number of training nodes that are labelled to measure the training accuracy.
_PATIENCE, _NODES_TO_LABEL = 5, 100_000

# Up to this number of training nodes, training runs a second time, with equal penalties on edges and nodes.
_NODES_TO_TRAIN_TWICE = 20_000

# Allowed values of ``init``, which chooses the initial sub-objectives.
_INITS = ("pl", "gpl", "observed", "empty")

# Names of generators of labelings. Names that end in "mv" search for the most violated constraints.
_GENERATORS = ("icm", "map", "gibbs", "icm_mv", "map_mv", "gibbs_mv")
_BY_COSTS = ("icm_mv", "map_mv", "gibbs_mv")


@options
class ContrastiveTraining(Learning):
    r"""Contrastive learning, which makes the true labeling probable within sets of labelings that grow during training.

    Parameters
    ----------
    init : {"pl", "gpl", "observed", "empty"}, default="pl"
        Initial sub-objectives: "pl", the pseudolikelihood; "gpl", the generalised pseudolikelihood of ``blocks``;
        "observed", the pseudolikelihood and a set of all labelings in the training data, for examples of one lattice
        ("Contrastive" in the paper); "empty", none.
    generator : str, Generator, list or None, default="map"
        Generator of further labelings: "map", max-product from random messages; "icm", iterated conditional modes from
        random labels, which is quicker and more varied; "gibbs", ten Gibbs sweeps from the true labels. "icm_mv",
        "map_mv" and "gibbs_mv" add the number of errors to the scores (most violated constraints). An object may be a
        :class:`~sklearn_crf.objectives.MapGenerator`, :class:`~sklearn_crf.objectives.GibbsGenerator` or
        :class:`~sklearn_crf.objectives.MostViolated`. A list uses all its generators. None generates nothing.
    blocks : {"rows", "columns"}, int or list, default=2
        Blocks for ``init="gpl"``: the rows or columns of a lattice, windows with this number of nodes per side, or a
        list of arrays of nodes for each example. Nodes are numbered in the order of the labels.
    given : list of array-like of shape (m, \\*lattice), optional
        Additional sets of labelings ("Simple Contrastive"). A set is used for the examples whose lattice has its shape
        and whose true labeling it contains.
    given_weight : array-like of shape (n_sets,) or (n_sets, n_examples), optional
        Weights :math:`w_j(x_i)` of the sets in ``given``. None is one. If a set is chosen with probability
        :math:`P(C_j \mid y)` and labelings have importance :math:`Q(y)`, its weight is
        :math:`\sum_y P(C_j \mid y) \, Q(y)`.
    given_log_proposal : list of array-like of shape (m,), optional
        Logarithm of the probability with which each labeling of ``given`` was drawn, up to a constant. Labelings are
        weighted by the inverse of this probability. See
        :meth:`AssignmentSets.add_set <sklearn_crf.objectives.AssignmentSets.add_set>`.
    generated_weight : float or "n_nodes", default=1.0
        Weight :math:`w_j` of the set of generated labelings of an example. The paper uses 1. "n_nodes" stands for the
        number of nodes of the example, because the pseudolikelihood has one term for each node.
    are_drawn : bool, default=False
        Whether generated labelings are weighted by the inverse of their probability under the model that generated
        them. Labelings of a persistent :class:`~sklearn_crf.objectives.GibbsGenerator` are samples from the model, so
        that the set then estimates the likelihood near the weights of this model.
    n_new : int, default=1
        Number of labelings generated for each example by each generator in each round.
    max_rounds : int, default=10
        Maximum number of rounds of generation. With stochastic gradient descent, maximum number of epochs with
        generation.
    max_round_iter : int or None, default=10
        Maximum number of L-BFGS iterations in a round that is followed by generation. Two kinds of rounds have the
        limit ``max_iter`` of the estimator instead: the last round, and a round that follows a shortened round in which
        nothing new was generated. With None, all rounds have this limit.

    Examples
    --------
    >>> from sklearn_crf import ContrastiveCRF
    >>> from sklearn_crf.learning import ContrastiveTraining
    >>> ContrastiveCRF(learning=ContrastiveTraining(generator="icm")).set_params(
    ...     learning__max_rounds=5
    ... ).learning
    ContrastiveTraining(generator='icm', max_rounds=5)
    """

    _parameter_constraints: ClassVar[dict] = {
        "init": [StrOptions(set(_INITS))],
        "generator": [StrOptions(set(_GENERATORS)), Generator, list, None],
        "blocks": [StrOptions({"rows", "columns"}), Interval(Integral, 1, None, closed="left"), list],
        "given": [list, None],
        "given_weight": ["array-like", None],
        "given_log_proposal": [list, None],
        "are_drawn": ["boolean"],
        "generated_weight": [Interval(Real, 0, None, closed="neither"), StrOptions({"n_nodes"})],
        "n_new": [Interval(Integral, 1, None, closed="left")],
        "max_rounds": [Interval(Integral, 0, None, closed="left")],
        "max_round_iter": [Interval(Integral, 1, None, closed="left"), None],
    }

    name = "contrastive"
    takes_factors = True
    early_stopping = False
    of_examples = True
    init: str = "pl"
    generator: str | Generator | list | None = "map"
    blocks: str | int | list = 2
    given: list | None = None
    given_weight: Any = None
    given_log_proposal: list | None = None
    generated_weight: float | str = 1.0
    are_drawn: bool = False
    n_new: int = 1
    max_rounds: int = 10
    max_round_iter: int | None = 10

    # Choices -------------------------------------------------------------------------------------------------------

    def for_fit(self, inference: str | Inference, classes: Any, tol: Any) -> "Learning":
        for item in self._iterate_violated_generators():
            item.set_params(cost=sort_cost_by_class(item.cost, classes))
        return self

    def depends_on_width(self, inference: str | Inference) -> bool:
        return True

    def automatic_inference(self, facts: Facts, in_training: bool = False) -> NamedInference:
        if facts.chosen == "map":
            return NamedInference(AutoMap(bounded=True), "map")
        if facts.exact_is_affordable:
            return super().automatic_inference(facts, in_training)
        return choose_layout_trees(facts)

    def fallback(self, facts: Facts) -> Inference | None:
        return choose_layout_trees(facts).inference if facts.chosen == "map" else None

    def solver(self, solver: Any, plan: FitPlan, encoded: Any, potentials: Any = None) -> Any:
        found = LBFGS() if solver == "auto" else super().solver(solver, plan, encoded)
        if not isinstance(found, LBFGS | SGD):
            raise ValueError(f"solver={solver!r} is not supported with learning='contrastive': use 'lbfgs' or 'sgd'.")
        return found

    def packing(self, plan: FitPlan, encoded: Any) -> dict[str, int]:
        # Graphs can be packed into one batch, because the generators of labelings process each example separately.
        n_nodes = 1 if plan.solver.is_stochastic else 4096
        return {"max_nodes": n_nodes, "max_cyclic_nodes": n_nodes}

    def n_iterations(self, plan: FitPlan) -> int:
        return plan.max_iter if plan.solver.is_stochastic else self.max_rounds + 1

    # Checks and sets -----------------------------------------------------------------------------------------------

    def check_labels(self, labels: Any) -> None:
        self.generators(labels)
        if self.given_weight is not None and not self.given:
            raise ValueError(
                "given_weight needs the parameter 'given': without it there are no sets to which the weights could "
                "belong."
            )
        n_given = len(self.given or [])
        if self.given_log_proposal is not None and len(self.given_log_proposal) != n_given:
            raise ValueError(
                f"given_log_proposal must hold one array for each of the {n_given} sets in given, got "
                f"{len(self.given_log_proposal)} arrays."
            )

    def finds_terms(self, batches: Sequence) -> bool:
        return have_known_surroundings(batches)

    def check_shards(self, solver: Any) -> None:
        if isinstance(solver, SGD) or solver == "sgd":
            raise ValueError("solver='sgd' processes examples one by one, which Shards do not support: use 'lbfgs'.")
        if any(isinstance(item.cost, str) and item.cost == "weighted" for item in self._iterate_violated_generators()):
            raise ValueError(
                "MostViolated(cost='weighted') is only supported for X and y in memory: with Shards, pass the "
                "matrix of costs."
            )

    def _list_generators(self):
        several = self.generator if isinstance(self.generator, list) else [self.generator]
        return [item for item in several if item is not None]

    def _iterate_violated_generators(self) -> Iterator[MostViolated]:
        """Yield all generators of violated constraints, including generators nested in other generators."""
        for item in self._list_generators():
            while isinstance(item, MostViolated):
                yield item
                item = item.generator

    @property
    def weighs_nodes(self) -> bool:
        # Generators of violated constraints add an error cost to each node.
        return any(isinstance(item, MostViolated) or str(item) in _BY_COSTS for item in self._list_generators())

    def generators(self, labels: Any) -> list[Generator]:
        """Return the generators of further labelings as :class:`~sklearn_crf.objectives.Generator` objects.

        Parameters
        ----------
        labels : EncodedLabels

        Returns
        -------
        list of Generator
        """
        return [_generator(item, labels) for item in self._list_generators()]

    # Training ------------------------------------------------------------------------------------------------------

    def objective(self, plan: FitPlan, data: Any) -> Objective:
        encoded, labels = data.encoded, data.labels
        if not data.are_sharded:
            return PlannedSets(self, encoded.n_examples, labels).objective(encoded, data.batches, data.potentials)
        observed = join_labelings(data.call_on_shards(collect_observed_labelings)) if self.init == "observed" else None
        return PlannedSets(self, encoded.n_examples, labels, data.first_examples, observed)

    def train(self, risk: Any, plan: FitPlan, data: Any, make_start: Any, run: Any) -> TrainingRecord:
        record = self._train_under_penalty(risk, plan, data, make_start("zeros"), run)
        record.warn()
        return record

    def before_step(self, risk: EmpiricalRisk, coef: np.ndarray, members: Sequence[int]) -> None:
        if risk.objective.generators:
            extend_sets(risk, coef, members)

    def _train_under_penalty(self, risk, plan, data, start, run):
        """Train with one edge penalty, or with two in turn, and return the record of the more accurate training."""
        solver, facts = plan.solver, plan.facts
        score = _score_of_training(risk, plan.labeler())
        overrates_edges = facts.have_cycles and self.init != "empty" and not solver.is_stochastic

        def train(risk, start, run, score):
            held_out = HeldOutScores(score, _PATIENCE)
            record = train_by_rounds(risk, start, self, solver, replace(run, held_out=held_out))
            return record, held_out.latest if record.converged else held_out.best

        if not (overrates_edges and risk.objective.generators and run.edge_C is None):
            return train(risk, start, run, score)[0]
        edge_C, penalised, right = choose_edge_penalty(risk, start, run, score)
        is_large, inference = data.encoded.n_nodes > _NODES_TO_TRAIN_TWICE, None
        is_automatic = plan.inference == "auto"
        if is_large and is_automatic and not facts.exact_is_affordable:
            score_of_best_labeling = _score_of_training(risk, plan.labeler("map"))
            if score_of_best_labeling(penalised) > right:
                score, inference = score_of_best_labeling, "map"
        first, right = train(risk, penalised, replace(run, edge_C=edge_C), score)
        first.inference = inference
        if is_large or first.stopped or first.interrupted is not None:
            return first
        # Train again with the penalty on edges that ``edge_C`` sets.
        # Generated labelings can correct edge weights that are too large; the initial sets cannot.
        again = data.risk(plan, self.objective(plan, data))
        run = replace(run, on_iteration=lambda coef: False, verbose=0)
        second, right_second = train(again, start, run, _score_of_training(again, plan.labeler()))
        return second if second.interrupted is not None or right_second > right else first


def _score_of_training(risk, labeler):
    """Return a function that takes a flat weight vector and returns the accuracy on the first nodes of each shard."""

    def score(coef):
        right, total = risk.summed(_sum_correct_weight, labeler, coef, risk.n_nodes)
        return right / total if total else 1.0

    return score


def _sum_correct_weight(risk, labeler, coef, n_nodes):
    """Return, for the first nodes of a risk, the total weight of correctly labelled nodes and the total weight."""
    # n_nodes: total number of nodes in all shards. Every shard labels the same fraction of its own nodes.
    most, before = max(n_nodes, _NODES_TO_LABEL), np.cumsum([0] + [batch.example.n_nodes for batch in risk.batches])
    taken = before[:-1] * most < risk.n_nodes * _NODES_TO_LABEL
    truth = [batch for batch, is_taken in zip(risk.batches, taken, strict=True) if is_taken]
    labeler = replace(labeler, n_jobs=risk.n_jobs)
    with convergence_left_to_caller():
        columns = labeler.columns([replace(batch, labels=None) for batch in truth], risk.potentials, [coef])
    return np.array(weigh_correct_nodes(columns, truth))


def _generator(item, labels):
    if isinstance(item, MostViolated):
        generator = _generator(item.generator, labels)
        return clone(item).set_params(generator=generator, cost=cost_matrix(item.cost, None, labels))
    if isinstance(item, MapGenerator):
        # The messages are updated by residual scheduling, as in the paper.
        residual = LoopyBP(schedule="residual")
        inference = choose_able_inference(item.inference, "map", "a generator of labelings", residual)
        return clone(item).set_params(inference=inference)
    if isinstance(item, Generator):
        return item
    if item not in _GENERATORS:
        raise ValueError(
            f"generator must be one of {', '.join(_GENERATORS)}, a Generator, or a list of these, got {item!r}."
        )
    kind, _, violated = item.partition("_")
    generator = GibbsGenerator(10) if kind == "gibbs" else MapGenerator(ICM() if kind == "icm" else "auto")
    return _generator(MostViolated(generator, "hamming") if violated else generator, labels)
