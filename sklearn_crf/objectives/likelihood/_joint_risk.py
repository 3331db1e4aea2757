"""Relaxed likelihoods as joint problems over weights and other unknowns: shares of scores, or tree distributions."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from sklearn_crf._threads import map_tasks
from sklearn_crf.inference import (
    FactorParts,
    NormProductBP,
    TightenBound,
    TRWMessagePassing,
    choose_component_forests,
    convergence_left_to_caller,
    divide_scores,
    mutual_information,
    tighten_with_information,
)
from sklearn_crf.models import (
    FactorGraph,
    Statistics,
    compute_labeling_statistics,
    compute_score_terms,
    convert_to_pairwise_statistics,
    expand_edge_tables,
    factor_graph_of,
)
from sklearn_crf.objectives._base import Loss
from sklearn_crf.objectives._risk import (
    EmpiricalRisk,
    RiskValue,
    expand_weights_to_edges,
    expand_weights_to_nodes,
    total_of,
    weighted_loss,
)
from sklearn_crf.objectives.likelihood._likelihood import compute_bound_loss
from sklearn_crf.potentials import ExtendedPotentials


def make_tangent(value_grad: Callable[[np.ndarray], RiskValue], at: np.ndarray) -> Callable[[np.ndarray], RiskValue]:
    """Return the tangent of a convex risk at the weights ``at``: a function of weights that never exceeds the risk."""
    found: Any = value_grad(at)
    return lambda coef: found._replace(value=found.value + float(found.gradient @ (coef - at)))


def chooses_trees(trees: Any) -> bool:
    """Return whether training alternates between the weights and the choice of trees of each example."""
    return isinstance(trees, str) and trees == "optimal"


def choose_trees(risk: EmpiricalRisk, coef: np.ndarray, tol: float) -> float:
    """Choose the trees that minimise the bound of each example at the given weights.

    All later evaluations of the risk use these trees.

    The risk has a relaxed likelihood whose inference keeps the trees of its warm starts. The bound given the known
    labels keeps its trees, because trees that lower this bound would raise the objective.
    """
    # tol: the search stops if no tree lowers a bound by more than this fraction
    # returns 0.0, because results of shards are added
    likelihood: Any = getattr(risk.objective, "likelihood", risk.objective)
    tol = max(likelihood.inference.tol, tol)
    inference = clone(likelihood.inference).set_params(outer_iter=TightenBound.outer_iter, tol=tol)

    def choose(i, n_threads):
        batch = risk.batches[i]
        model = risk.objective.augmented(risk.build_model_by_weight(i, coef)[0], batch.labels, batch.node_weight)
        free, observed = risk.carried[i] or (None, None)
        with convergence_left_to_caller(), batch.named_in_errors():
            found = inference.marginals_for_learning(model, init=free, n_threads=n_threads)
        risk.carried[i] = found.state, observed

    map_tasks(choose, range(len(risk.batches)), risk.n_jobs)
    return 0.0


class RiskLessObserved(EmpiricalRisk):
    """Risk minus the log-partition given the known labels, or minus a tangent of this log-partition."""

    # observed: function that evaluates the log-partition given the known labels, or a tangent of this log-partition
    # ``observed`` is None if all nodes are labelled.

    def __init__(self, risk: EmpiricalRisk, observed: Callable[[np.ndarray], RiskValue] | None = None):
        super().__init__(risk.objective, risk.potentials, risk.batches, n_jobs=risk.n_jobs, seed=risk.seed)
        self._weights, self._observed = risk.potentials, observed

    def value_grad(self, coef: np.ndarray, members: Sequence[int] | None = None) -> RiskValue:
        found = super().value_grad(coef, members)
        if self._observed is None:
            return found
        n_weights = self._weights.n_coef
        fixed = self._observed(coef[:n_weights])
        found.gradient[:n_weights] -= fixed.gradient
        return found._replace(value=found.value - fixed.value, converged=found.converged and fixed.converged)


class RiskOfWeightsAndOthers(RiskLessObserved):
    """Risk as a function of a flat vector: the weights, followed by the unpenalised unknowns of each batch."""

    def _lay_out(self, sizes):
        """Assign a range of the flat vector to the unknowns of every batch."""
        self._ends = self._weights.n_coef + np.cumsum([0, *sizes])
        self.potentials = WeightsAndOthers(self._weights, self._ends[-1] - self._weights.n_coef)

    def _lay_out_shares(self, nodes):
        """Lay out the shares of every batch, and give each share the weight of its node's example."""
        each = zip(self.batches, nodes, strict=True)
        self._weight_of_shares = [expand_weights_to_nodes(batch)[of_batch] for batch, of_batch in each]
        self._lay_out(map(len, self._weight_of_shares))

    def _get_part_slice(self, i):
        """Return the slice of the flat vector that contains the unknowns of batch i."""
        return slice(self._ends[i], self._ends[i + 1])

    def _evaluate(self, coef: np.ndarray, members: Sequence[int] | None) -> RiskValue:
        members = range(len(self.batches)) if members is None else members
        n_weights, gradient = self._weights.n_coef, np.zeros(len(coef))
        found = map_tasks(lambda i, n_threads: self._compute_loss(i, coef, n_threads), members, self.n_jobs)
        for i, (part, of_others) in zip(members, found, strict=True):
            gradient[:n_weights] += self._weights.pullback(self.batches[i].example, part.statistics)
            gradient[self._get_part_slice(i)] = of_others
        return total_of([part for part, _ in found], gradient)

    def build_model(self, i: int, coef: np.ndarray) -> tuple:
        """Return the model of batch i for inference, and the result of ``group_tables_by_weight`` for the batch."""
        batch = self.batches[i]
        model, by_weight = self.build_model_by_weight(i, coef)
        return self.objective.augmented(model, batch.labels, batch.node_weight), by_weight

    def _build_zero_models(self) -> list:
        """Return the model of each batch at zero weights."""
        zeros = np.zeros(self._weights.n_coef)
        return [self.build_model(i, zeros)[0] for i in range(len(self.batches))]

    def _compute_loss(self, i: int, coef: np.ndarray, n_threads: int) -> tuple[RiskValue, np.ndarray]:
        """Return the weighted loss of batch i and its derivative with respect to the unknowns of the batch."""
        raise NotImplementedError(type(self).__name__)


class JointRisk(RiskOfWeightsAndOthers):
    r"""Sum over examples of upper bounds on log-partitions minus scores of the labels, for given shares of scores.

    .. math::
        R(w, \lambda) = \sum_i \omega_i \Bigl( \sum_T \rho(T) \log Z(\theta_i(T)) - \mathrm{score}(y_i) \Bigr)

    The unknowns :math:`\lambda`, called shares, divide the scores of an example among the trees T. The risk is jointly
    convex in the weights and the shares, smooth, and has no inner problem. The minimum over the shares is the risk with
    :class:`TightenBound`. For partly labelled examples, the score is replaced by the log-partition given the known
    labels. With the trivial entropy, the parts T are single edges of weight one. With the entropy of factors, the parts
    are single edges and single nodes. One flat vector contains the weights, followed by the shares of each batch.
    Source: Jancsary 2012, CRF recipe 4.
    """

    # entropy: "trw", "trivial" or "factors"
    # trees: for the entropy "trw", the parameter ``trees`` of TightenBound; "optimal" stands for the trees that
    # ``choose_trees`` has chosen for the risk, or for covering trees before the first choice
    # observed: function that evaluates the log-partition given the known labels; None if all nodes are labelled

    def __init__(self, risk, entropy="trw", trees="covering", observed=None):
        super().__init__(risk, observed)
        is_chosen = chooses_trees(trees)
        found = [state[0] if is_chosen and state is not None else None for state in risk.carried]
        chosen = [getattr(state, "trees", "covering" if is_chosen else trees) for state in found]
        models = zip(self._build_zero_models(), chosen, strict=True)
        nodes, self._bounds = zip(*(divide_scores(model, entropy, rule) for model, rule in models), strict=True)
        self._lay_out_shares(nodes)
        #: Shares at which training starts: the shares of the chosen trees, or else even shares.
        self.shares = np.concatenate(
            [getattr(state, "scores", np.zeros(len(of_batch))) for state, of_batch in zip(found, nodes, strict=True)]
        )

    def _compute_loss(self, i, coef, n_threads):
        batch, objective = self.batches[i], self.objective
        model, by_weight = self.build_model(i, coef)
        found = self._bounds[i](model, coef[self._get_part_slice(i)])
        loss = compute_bound_loss(model, batch.labels, found.marginals, objective.temperature)
        gradient = objective.temperature * found.gradient * self._weight_of_shares[i]
        return weighted_loss(batch, loss, by_weight), gradient


class JointHingeRisk(RiskOfWeightsAndOthers):
    r"""Sum over examples of maximum scores of all parts minus scores of the labels, for given shares of scores.

    .. math::
        R(w, \lambda) = \sum_i \omega_i \Bigl( \sum_P c_P \max_y \bigl[ \theta_i(P) + \Delta_{y_i} \bigr](y)
            - \mathrm{score}(y_i) \Bigr)

    The unknowns :math:`\lambda`, called shares, divide the scores of an example among the parts P. The risk is jointly
    convex in the weights and the shares, and not smooth. The minimum over the shares is the risk of
    :class:`RelaxedHinge`. Every model is treated as a factor graph.

    Source: Jancsary 2012, M3N recipe 4.
    """

    def __init__(self, risk, entropy="trw", trees="covering"):
        super().__init__(risk)
        models = map(factor_graph_of, self._build_zero_models())
        self._parts = [FactorParts.of(model, entropy, trees=trees) for model in models]
        self._lay_out_shares(parts.share_nodes for parts in self._parts)

    def _compute_loss(self, i, coef, n_threads):
        batch, parts = self.batches[i], self._parts[i]
        model, by_weight = self.build_model(i, coef)
        terms, found, slope, mean = parts.best_value(
            factor_graph_of(model), parts.project(coef[self._get_part_slice(i)])
        )
        statistics: Any = found
        if not isinstance(model, FactorGraph):
            statistics = Statistics(mean, convert_to_pairwise_statistics(model, found.log_table))
        loss = Loss(
            statistics=statistics.minus(compute_labeling_statistics(model, batch.labels)),
            terms=terms - compute_score_terms(model, batch.labels),
            predicted=np.argmax(mean, axis=1).astype(np.int32),
        )
        return weighted_loss(batch, loss, by_weight), slope * self._weight_of_shares[i]


class EdgeProbabilityRisk(RiskOfWeightsAndOthers):
    r"""Sum over examples of tree-reweighted bounds minus scores of the labels, for given edge probabilities.

    .. math::
        R(w, \rho) = \sum_i \omega_i \Bigl( \max_{\tau \in L} \langle \theta_i, \tau \rangle + \sum_s H(\tau_s)
            - \sum_e \nu_{ie} I(\tau_e) - \mathrm{score}(y_i) \Bigr), \qquad \nu_i = \sum_T \rho_i(T) \, [e \in T]

    The risk is jointly convex in the weights and the distributions over trees, as the bound is a maximum of functions
    linear in both. The derivative of the bound with respect to the probability of an edge is the negative mutual
    information I of its ends. Edge probabilities are means over trees, so they stay in the spanning tree polytope. The
    method :meth:`grown` adds the steepest tree. Projections are onto a simplex, not onto the polytope. One flat vector
    contains the weights of the field, followed by the weights of the trees of each batch.

    In a factor graph, trees are replaced by sets of factors without cycles. The set with the most information is hard
    to find. Sets are therefore built greedily from the factors with the most information.
    Source: Jancsary 2012, CRF recipe 2, Eq. 160-163.
    """

    # max_iter: maximum number of message sweeps for a batch
    # tol: change of messages at which sweeps stop
    # observed: as in JointRisk

    def __init__(self, risk, max_iter=2000, tol=1e-6, observed=None):
        super().__init__(risk, observed)
        self._limits = {"max_iter": max_iter, "tol": tol}
        self._edge_weights = [
            # Examples with factors are alone in their batch.
            expand_weights_to_nodes(batch)[0] if isinstance(model, FactorGraph) else expand_weights_to_edges(batch)
            for batch, model in zip(risk.batches, self._build_zero_models(), strict=True)
        ]
        self._set_trees(list(map(choose_component_forests, self._build_zero_models())))

    def _set_trees(self, trees):
        self.trees = trees
        self._lay_out(each.n_trees for each in trees)

    def start(self, weights):
        """Return the flat vector that consists of the given weights and equal probabilities of all trees."""
        return np.concatenate([weights, *(each.even_weights() for each in self.trees)])

    def project(self, coef):
        """Project a flat vector to the nearest flat vector with valid distributions over trees."""
        projected = np.array(coef)
        for i in range(len(self.batches)):
            part = self._get_part_slice(i)
            projected[part] = self.trees[i].project(coef[part])
        return projected

    def grown(self, coef):
        """Add the steepest tree of each example, drop trees of zero weight, and return the new risk."""
        # returns: new risk; flat vector of the new risk, with the same weights and edge probabilities; largest gain
        # The gain of a new tree is measured against the current distribution over trees.
        # All gains are zero if the edge probabilities are optimal for these weights.
        found = map_tasks(lambda i, n_threads: self._grow(i, coef, n_threads), range(len(self.batches)), self.n_jobs)
        trees, weights, gaps = zip(*found, strict=True)
        risk = copy.copy(self)
        risk._set_trees(trees)
        return risk, np.concatenate([coef[: self._weights.n_coef], *weights]), max(gaps)

    def _grow(self, i, coef, n_threads):
        gain = self._solve(i, coef, n_threads)[1] * self._edge_weights[i]
        trees, weights, lacking = self.trees[i].grown(coef[self._get_part_slice(i)], gain)
        return trees, weights, self.objective.temperature * float(lacking.max(initial=0.0))

    def _compute_loss(self, i, coef, n_threads):
        batch, temperature = self.batches[i], self.objective.temperature
        free, information, (model, by_weight) = self._solve(i, coef, n_threads)
        loss = compute_bound_loss(model, batch.labels, free, temperature)
        of_trees = self.trees[i].gradient(information * self._edge_weights[i])
        return weighted_loss(batch, loss, by_weight), -temperature * of_trees

    def _solve(self, i, coef, n_threads=1):
        """Return the marginals of batch i, the mutual information of each edge or factor, and the model."""
        batch = self.batches[i]
        model, by_weight = self.build_model(i, coef)
        weights = coef[self._get_part_slice(i)]
        with convergence_left_to_caller(), batch.named_in_errors():
            if isinstance(model, FactorGraph):
                trees = self.trees[i].build_forests(weights)
                free, information = tighten_with_information(model, trees, self.carried[i], **self._limits)
                self.carried[i] = free.state
                return free, information, (model, by_weight)
            probabilities = self.trees[i].edge_probabilities(weights)
            inference = TRWMessagePassing(probabilities, **self._limits)
            free = inference.marginals_for_learning(model, init=self.carried[i], n_threads=n_threads)
            if free.converged:
                self.carried[i] = free.state
                pairs = inference.edge_marginals(model, init=free.state, n_threads=n_threads)
            else:
                # If messages have not converged, use an algorithm whose messages always converge.
                inference = NormProductBP("trw", edge_probabilities=probabilities, **self._limits)
                free = inference.marginals(model)
                pairs = inference.marginals(expand_edge_tables(model)).tables[:, 0]
        return free, mutual_information(pairs), (model, by_weight)


class WeightsAndOthers(ExtendedPotentials):
    """Potentials for a flat vector that consists of the weights, followed by unpenalised other unknowns."""

    def model(self, coef, example, edges=None):
        return self.pairwise.model(coef[: self.pairwise.n_coef], example, edges)

    @property
    def penalty(self):
        return self._append_further_values(self.pairwise.penalty, 0.0)

    @property
    def on_edges(self):
        return self._append_further_values(self.pairwise.on_edges, False)
