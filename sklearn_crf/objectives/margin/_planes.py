"""Cutting planes of the structured hinge of each example, for solvers that process single examples."""

import numpy as np

from sklearn_crf._threads import make_ordered_map
from sklearn_crf.encoding import Example, group_batches_to_join, unite_batches
from sklearn_crf.inference import convergence_left_to_caller, n_labelings
from sklearn_crf.models import (
    SegmentModel,
    Statistics,
    compute_labeling_difference,
    compute_labeling_statistics,
    compute_score_terms,
    count_durations,
    count_pair_states,
)
from sklearn_crf.objectives.margin._forest_examples import map_edges_to_members
from sklearn_crf.objectives.margin._hinges import RelaxedHinge, StructuredHinge, is_whole
from sklearn_crf.objectives.margin._pass_of_cuts import PassOfCuts
from sklearn_crf.potentials import ExtendedPotentials, FactorPotentials, SparsePotentials


class PlaneOracle:
    r"""Oracle that finds the highest cutting plane of the loss of each example in a block.

    .. math::
        C \omega_i \, \ell_i(w) = \max_y \bigl( o_{iy} + s_{iy}^\top w \bigr), \qquad
        o_{iy} = C \omega_i \, \Delta(y, y_i), \qquad s_{iy} = C \omega_i \, B(x_i)^\top (\phi(y) - \phi(y_i))
    """

    # risk: risk of a StructuredHinge or a RelaxedHinge
    # scale: (n_coef,), scale of the weights: solvers use x, with weights w = scale * x
    # blocks: indices of the batches of each block, which must not depend on the number of threads

    #: Index of each solver weight in the flat weight vector.
    places: slice | np.ndarray = slice(None)

    def __init__(self, risk, C, scale, blocks, n_threads=1):
        self.risk, self.path = risk, risk.path
        self.blocks = blocks
        self.sizes = [sum(len(risk.batches[i].members) for i in block) for block in blocks]
        self.n_inference_calls = 0
        self._C = C
        self._scale = scale
        self._map = make_ordered_map(n_threads)
        self._states = [None] * len(risk.batches)
        self._edge_group = [map_edges_to_members(batch) for batch in risk.batches]

    @property
    def is_of_forests(self):
        """Whether every example is a forest that only has node scores and edge scores."""
        has_more = isinstance(self.risk.potentials, ExtendedPotentials)
        return not has_more and all(batch.example.graph.is_forest for batch in self.risk.batches)

    def dual(self, bounded):
        """Return None, because solvers store the dual variables of this oracle."""

    def value_grad(self, x):
        """Return C times the sum of all losses, and a subgradient."""
        # returns: value at the labelings found; upper bound that inference proves; subgradient, (n_coef,)
        found = self.risk.value_grad(self.weights_of(x))
        self.n_inference_calls += self.risk.n_examples
        value = self._C * found.value
        return (value, value + self._C * found.gap), self._C * self._scale * found.gradient

    def value(self, x):
        """Return the value of :meth:`value_grad` without the subgradient."""
        return self.value_grad(x)[0]

    def weights_of(self, x):
        """Return the flat weight vector for the point x of a solver."""
        coef = np.empty(len(x))
        coef[self.places] = self._scale * x
        return coef

    def __call__(self, block, x):
        """Return slopes (m, n_coef) and offsets (m,) of the highest plane at x of each of the m examples of a block."""
        coef = self.weights_of(x)
        parts = self._compute_planes(self.blocks[block], coef)
        self.n_inference_calls += self.sizes[block]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _compute_planes(self, batches, coef):
        """Return the highest planes of each batch."""
        return list(self._map(lambda i: self._planes(i, coef), batches))

    def _planes(self, i, coef):
        """Return the highest planes of batch i."""
        batch, objective = self.risk.batches[i], self.risk.objective
        model = self.risk.potentials.model(coef, batch.example, self.risk.edges_of(i))
        with convergence_left_to_caller(), batch.named_in_errors():
            if isinstance(objective, RelaxedHinge):
                return self._compute_fractional_planes(i, model, coef)
            options = {"node_weight": batch.node_weight, "state": self._states[i]}
            found = objective.most_violated(model, batch.labels, **options)
        self._states[i] = found.state
        return self._compute_labeling_planes(i, model, found.labels, coef)

    def _compute_labeling_planes(self, i, model, found, coef):
        """Return the planes that a labeling of batch i defines, one for each example of the batch."""
        batch = self.risk.batches[i]
        cost = self.risk.objective.compute_node_cost(found, batch.labels, batch.node_weight)
        scores = compute_labeling_difference(model, found, batch.labels)[0] if self._has_fixed_scores(i) else None
        return self._pull_back(i, self._compute_differences(i, model, found), cost, scores, coef)

    def _has_fixed_scores(self, i):
        """Return whether the model of a batch contains scores that do not depend on weights."""
        potentials = self.risk.potentials
        return potentials.edge_costs is not None or bool(self.risk.batches[i].example.fixed_factors)

    def _compute_fractional_planes(self, i, model, coef):
        """Return the planes that are defined by the point of the local polytope with the highest loss."""
        batch, objective = self.risk.batches[i], self.risk.objective
        statistics, cost, scores, found = objective.worst_statistics(
            model, batch.labels, node_weight=batch.node_weight, state=self._states[i]
        )
        # In a batch of several examples, all examples are forests, on which the relaxation is exact.
        if is_whole(found) or len(batch.members) > 1:
            return self._compute_labeling_planes(i, model, found.labels, coef)
        self._states[i] = found.state
        differences = statistics.minus(compute_labeling_statistics(model, batch.labels))
        scores = scores - compute_score_terms(model, batch.labels) if self._has_fixed_scores(i) else None
        return self._pull_back(i, differences, cost, scores, coef)

    def _pull_back(self, i, differences, cost, scores, coef):
        """Compute the planes of a batch from differences of statistics and from costs."""
        # scores: (N,), scores of the labels found minus scores of the true labels; None if all scores depend on weights
        batch = self.risk.batches[i]
        if len(batch.members) == 1:
            slopes = self.risk.potentials.pullback(batch.example, differences)[np.newaxis]
        else:
            slopes = self.risk.potentials.pullback_each(batch.example, differences, batch.node_ptr)
        weight = np.full(len(batch.members), self._C) if batch.weight is None else self._C * batch.weight
        total = np.add.reduceat(cost, batch.node_ptr[:-1])
        factor = self.risk.objective.compute_slope_factor(total)
        if scores is not None:
            # Scores that do not depend on weights are constants, which belong to the offset of the plane.
            total = total + factor * (np.add.reduceat(scores, batch.node_ptr[:-1]) - slopes @ coef)
        slopes *= (weight * factor)[:, None] * self._scale
        return slopes, weight * total

    def _compute_differences(self, i, model, found):
        """Return the statistics of the labels found minus the statistics of the true labels.

        If a batch has several examples, each example has its own statistics of tables.
        """
        batch = self.risk.batches[i]
        if len(batch.members) == 1:
            return compute_labeling_difference(model, found, batch.labels)[1]
        if isinstance(model, SegmentModel):
            pairs = self._compute_differences(i, model.pairwise, found)
            members = np.searchsorted(batch.node_ptr, model.chain_ptr[:-1], side="right") - 1
            by_member = [
                count_durations(model, labels, members, len(batch.members)) for labels in (found, batch.labels)
            ]
            own = compute_labeling_difference(model, found, batch.labels)[1]
            return own._replace(unary=pairs.unary, tables=pairs.tables, durations=by_member[0] - by_member[1])
        unary = np.zeros(model.unary.shape, dtype=np.float64)
        nodes = np.arange(len(found))
        unary[nodes, found] = 1.0
        unary[nodes, batch.labels] -= 1.0
        groups = self._edge_group[i], len(batch.members)
        return Statistics(
            unary, count_pair_states(model, found, *groups) - count_pair_states(model, batch.labels, *groups)
        )


class PlanesOfCuts(PlaneOracle):
    """Version of :class:`PlaneOracle` for small lattices with two states, with one kernel call for each block."""

    name, objectives = PassOfCuts.name, PassOfCuts.objectives
    applies = PassOfCuts.applies

    def __init__(self, risk, C, scale, blocks, n_threads=1):
        super().__init__(risk, C, scale, blocks, n_threads)
        self._cuts = PassOfCuts(risk)

    def _compute_planes(self, batches, coef):
        single = [i for i in batches if len(self.risk.batches[i].members) == 1]
        cuts = dict(zip(single, self._cuts.planes(single, coef, self.risk.n_jobs), strict=True)) if single else {}
        found = {
            i: ((self._C * self._scale * cut[0])[None], np.array([self._C * cut[1]]))
            for i, cut in cuts.items()
            if cut is not None
        }
        others = [i for i in batches if i not in found]
        found.update(zip(others, super()._compute_planes(others, coef), strict=True))
        return [found[i] for i in batches]


class ShardPlanes(PlaneOracle):
    r"""Oracle that finds the highest cutting plane of the total loss of all shards.

    .. math::
        C R(w) = \max_y \bigl( o_y + s_y^\top w \bigr), \qquad s_y = C \nabla R(w), \qquad
        o_y = C R(w) - s_y^\top w

    Here R is the sum of all structured hinges. R is linear in w as long as the worst labelings do not change. The
    oracle has one block with one plane.
    """

    is_of_forests = False

    def __init__(self, risk, C, scale):
        self.risk, self.path = risk, risk.path
        self.sizes = [1]
        self.n_inference_calls = 0
        self._C, self._scale = C, scale

    def __call__(self, block, x):
        """Return the slope (1, n_coef) and offset (1,) of the highest plane at x."""
        (value, _), slope = self.value_grad(x)
        return slope[np.newaxis], np.array([value]) - slope[np.newaxis] @ x


def make_blocks(batches, n_blocks=64, largest=4):
    """Divide consecutive batches into at least ``n_blocks`` equal blocks of at most ``largest`` batches each."""
    size = min(max(len(batches) // n_blocks, 1), largest)
    return [list(range(start, min(start + size, len(batches)))) for start in range(0, len(batches), size)]


def split_risk_into_blocks(risk):
    """Join the small examples of a risk into batches, and divide the batches into blocks.

    On a small example, starting the inference takes longer than the inference itself, and the interpreter's lock delays
    other threads. The small examples of a block are therefore joined into two batches, for two threads. Examples are
    not joined if their labelings are enumerated, or if the loss is not a sum over joined examples.
    """
    # returns: risk; list of blocks, each of which is a list of indices of batches
    objective, potentials = risk.objective, risk.potentials
    if type(objective) is not StructuredHinge or isinstance(potentials, SparsePotentials | FactorPotentials):
        return risk, make_blocks(risk.batches)

    def may_join(batch):
        # Examples of other types compute edge features on access, but joined examples would store the edge features.
        few = n_labelings(batch.example.n_nodes, potentials.n_classes) <= objective.inference.enumerates
        return type(batch.example) is Example and not few

    joined: list = []
    blocks: list[list[int]] = []
    for block in make_blocks(risk.batches, largest=_MOST_JOINED):
        members = [risk.batches[i] for i in block]
        sizes = [len(batch.labels) for batch in members]
        half = (sum(sizes) + max(sizes)) // 2
        groups = group_batches_to_join(members, min(max(half, _FEW_NODES), _MANY_NODES), may_join, one_weight=True)
        blocks.append(list(range(len(joined), len(joined) + len(groups))))
        joined += [unite_batches(group, as_lattice=True) for group in groups]
    return risk.having(batches=joined), blocks


# _MOST_JOINED: maximum number of batches of a block
# The number of nodes of a joined batch has a limit that lies between _FEW_NODES and _MANY_NODES.
_MOST_JOINED = 16
_FEW_NODES = 512
_MANY_NODES = 8192
