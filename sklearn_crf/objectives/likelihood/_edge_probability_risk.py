"""Relaxed likelihood in one problem over weights and distributions over spanning trees."""

import copy

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.graphs import ComponentTrees
from sklearn_crf.inference import (
    NormProductBP,
    TRWMessagePassing,
    convergence_left_to_caller,
    mutual_information,
)
from sklearn_crf.models import labeling_statistics, score_terms, with_table_of_each_edge
from sklearn_crf.objectives._base import EmpiricalRisk, Loss, total_of, weighted_loss
from sklearn_crf.objectives._example_weights import weight_of_edges
from sklearn_crf.objectives.likelihood._joint_risk import WeightsAndOthers


class EdgeProbabilityRisk(EmpiricalRisk):
    r"""Sum over examples of the tree-reweighted bound at given edge probabilities, less the score of the labels.

    .. math::
        R(w, \rho) = \sum_i \omega_i \Bigl( \max_{\tau \in L} \langle \theta_i, \tau \rangle + \sum_s H(\tau_s)
            - \sum_e \nu_{ie} I(\tau_e) - \mathrm{score}(y_i) \Bigr), \qquad \nu_i = \sum_T \rho_i(T) \, [e \in T]

    Convex in the weights and the distributions together, for the bound is a maximum of functions that are linear in
    both. Its derivative by the probability of an edge is the negative mutual information I of the ends. The edge
    probabilities stay in the spanning tree polytope as means of trees, of which :meth:`grown` adds the steepest: a
    projection onto a simplex takes the place of one onto the polytope. One flat vector holds the weights and then the
    weights of the trees of each batch.

    Parameters
    ----------
    risk : EmpiricalRisk
        Its potentials, batches and threads are taken over. Every node must be labelled.
    max_iter : int, default=2000
        Most sweeps of messages for a batch.
    tol : float, default=1e-6
        Change of messages at which they end.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, CRF recipe 2, Eq. 160-163.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.encoding import encode_X, encode_y, make_batches
    >>> from sklearn_crf.inference import TRWMessagePassing
    >>> from sklearn_crf.objectives import (
    ...     EdgeProbabilityRisk,
    ...     EmpiricalRisk,
    ...     RelaxedLikelihood,
    ... )
    >>> from sklearn_crf.potentials import LinearPotentials, pairwise_form
    >>> X, y = np.zeros((1, 2, 2, 1)), np.array([[[0, 0], [0, 1]]])
    >>> encoded = encode_X(X, edge_features="constant", edge_types="tied")
    >>> batches = make_batches(encoded, encode_y(y, encoded).labels)
    >>> potentials = LinearPotentials(1, 2, pairwise_form("potts", 2), fit_intercept=False)
    >>> risk = EmpiricalRisk(RelaxedLikelihood(TRWMessagePassing()), potentials, batches)
    >>> joint = EdgeProbabilityRisk(risk)
    >>> coef = joint.start(np.array([0.0, 1.0]))
    >>> found = joint.value_grad(coef)
    >>> round(found.value, 2), joint.project(coef + 1.0).round(2).tolist()
    (3.45, [1.0, 2.0, 0.5, 0.5])
    """

    def __init__(self, risk, max_iter=2000, tol=1e-6):
        super().__init__(risk.objective, risk.potentials, risk.batches, n_jobs=risk.n_jobs, seed=risk.seed)
        self._weights = risk.potentials
        self._limits = {"max_iter": max_iter, "tol": tol}
        self._lay_out([ComponentTrees.covering(batch.example.graph) for batch in risk.batches])

    def _lay_out(self, trees):
        """Give every tree of every batch its place in the flat vector."""
        self.trees = trees
        self._bounds = self._weights.n_coef + np.cumsum([0, *(each.n_trees for each in trees)])
        self.potentials = WeightsAndOthers(self._weights, int(self._bounds[-1]))

    def start(self, weights):
        """The flat vector of some weights and of equally likely trees.

        Parameters
        ----------
        weights : ndarray of shape (n_weights,)

        Returns
        -------
        ndarray of shape (n_coef,)
        """
        return np.concatenate([weights, *(each.even_weights() for each in self.trees)])

    def project(self, coef):
        """The nearest flat vector that holds distributions over trees.

        Parameters
        ----------
        coef : ndarray of shape (n_coef,)

        Returns
        -------
        ndarray of shape (n_coef,)
        """
        projected = np.array(coef)
        for i in range(len(self.batches)):
            part = self._part(i)
            projected[part] = self.trees[i].project(coef[part])
        return projected

    def grown(self, coef):
        """The same risk with the steepest tree of every batch besides those that carry weight.

        Parameters
        ----------
        coef : ndarray of shape (n_coef,)

        Returns
        -------
        risk : EdgeProbabilityRisk
        coef : ndarray
            The same weights and edge probabilities in its terms.
        gap : float
            Largest gain of the new tree of an example over its distribution: zero where the edge probabilities are
            the best for these weights.
        """
        found = map_tasks(lambda i, n_threads: self._grown(i, coef, n_threads), range(len(self.batches)), self.n_jobs)
        trees, weights, gaps = zip(*found, strict=True)
        risk = copy.copy(self)
        risk._lay_out(trees)
        return risk, np.concatenate([coef[: self._weights.n_coef], *weights]), max(gaps)

    def _grown(self, i, coef, n_threads):
        batch = self.batches[i]
        gain = self._solved(i, coef, n_threads)[1] * weight_of_edges(batch)
        trees, weights, lacking = self.trees[i].grown(coef[self._part(i)], gain)
        return trees, weights, self.objective.temperature * float(lacking.max(initial=0.0))

    def _part(self, i):
        return slice(self._bounds[i], self._bounds[i + 1])

    def value_grad(self, coef, members=None):
        members = range(len(self.batches)) if members is None else members
        found = map_tasks(lambda i, n_threads: self._loss(i, coef, n_threads), members, self.n_jobs)
        gradient = np.zeros(len(coef))
        for i, (part, of_trees) in zip(members, found, strict=True):
            gradient[: self._weights.n_coef] += self._weights.pullback(self.batches[i].example, part.statistics)
            gradient[self._part(i)] = of_trees
        self.n_passes += 1
        return total_of([part for part, _ in found], gradient)

    def _loss(self, i, coef, n_threads):
        batch = self.batches[i]
        temperature = self.objective.temperature
        free, information, (model, by_weight) = self._solved(i, coef, n_threads)
        loss = Loss(
            statistics=free.statistics.minus(labeling_statistics(model, batch.labels)),
            terms=temperature * (free.log_z_terms - score_terms(model, batch.labels)),
            predicted=np.argmax(free.unary, axis=1),
            converged=free.converged,
        )
        of_trees = self.trees[i].gradient(information * weight_of_edges(batch))
        return weighted_loss(batch, loss, by_weight), -temperature * of_trees

    def _solved(self, i, coef, n_threads=1):
        """Marginals of a batch, the mutual information of its edges, (E,), and its model by weights."""
        batch = self.batches[i]
        model, by_weight = self.model_by_weight(i, coef)
        model = self.objective.augmented(model, batch.labels, batch.node_weight)
        probabilities = self.trees[i].edge_probabilities(coef[self._part(i)])
        inference = TRWMessagePassing(probabilities, **self._limits)
        with convergence_left_to_caller(), batch.named_in_errors():
            free = inference.marginals_for_learning(model, init=self._states[i], n_threads=n_threads)
            if free.converged:
                self._states[i] = free.state
                pairs = inference.edge_marginals(model, init=free.state, n_threads=n_threads)
            else:
                free, pairs = self._convergent(model, probabilities)
        return free, mutual_information(pairs), (model, by_weight)

    def _convergent(self, model, probabilities):
        """Marginals and those of pairs by messages that always converge, for every edge its own table."""
        untied = with_table_of_each_edge(model)
        inference = NormProductBP("trw", edge_probabilities=probabilities, **self._limits)
        return inference.marginals(model), inference.marginals(untied).tables[:, 0]
