"""Bucket elimination: tables over a node and its later neighbours, passed upwards and back."""

import numpy as np

from sklearn_crf.factor_graphs import add_cells
from sklearn_crf.inference._elimination import best_order, degeneracy, eliminate

# A lower bound is enough to refuse a graph whose order would take long to find.
_HOPELESS_WIDTH = 200

_MANY_PARTS = 6


def _grouped(shape, nodes, axes):
    """Axes joined where neighbours are alike: shape of a table over nodes, of a part over some, axes the part lacks."""
    axes = set(axes)
    present = [node in axes for node in nodes]
    starts = [k for k in range(len(nodes)) if k == 0 or present[k] != present[k - 1]]
    whole = [int(np.prod(shape[a:b])) for a, b in zip(starts, [*starts[1:], len(nodes)], strict=True)]
    part = [size if present[a] else 1 for size, a in zip(whole, starts, strict=True)]
    return whole, part, tuple(k for k, a in enumerate(starts) if not present[a])


def _shared_out(nodes, parts):
    """Halves of the nodes, each with the first node, and the parts that fit into each.

    A part of few nodes costs a pass over the whole table. Put together over half of the nodes first, the many small
    parts of a large bucket cost two such passes.
    """
    if len(parts) < _MANY_PARTS or len(nodes) < _MANY_PARTS:
        return
    first, *others = nodes
    left = list(parts)
    for half in (others[: len(others) // 2], others[len(others) // 2 :]):
        side = [first, *half]
        inside = set(side)
        own = [part for part in left if inside.issuperset(part[0])]
        if len(own) > 1:
            left = [part for part in left if not inside.issuperset(part[0])]
            yield side, own


class Buckets:
    """One bucket for each free node, in the order of elimination.

    The axes of a bucket's table are the node itself, then its separator in the order of elimination. A message has
    the axes of the separator, so that it fits into the bucket of the separator's first node, the parent, without
    any transposition.

    Parameters
    ----------
    problem : Reduction
    order : sequence of int or None
        Order of elimination of all nodes; None looks for a good one.
    """

    def __init__(self, problem, order, max_width, max_memory, keep):
        self.problem = problem
        self.keep = keep
        self._limits = max_width, max_memory
        self._eliminate(order)
        self._require(self.width, self._memory())
        self.position = {node: k for k, node in enumerate(self.order)}
        self.parent = [self.position[s[0]] if s else -1 for s in self.separators]
        self.children = [[] for _ in self.order]
        for k, parent in enumerate(self.parent):
            if parent >= 0:
                self.children[parent].append(k)
        self.factors = [[] for _ in self.order]
        self.fixed_factors = []
        for f, scope in enumerate(problem.scopes):
            if scope:
                self.factors[min(self.position[s] for s in scope)].append(f)
            else:
                self.fixed_factors.append(f)

    @property
    def width(self):
        return max((len(separator) for separator in self.separators), default=0)

    @property
    def state(self):
        """Order of elimination of all nodes, those that are not free last."""
        fixed = np.flatnonzero(~self.problem.is_free).tolist()
        return np.array([*self.order, *fixed], dtype=np.int32)

    def _eliminate(self, order):
        problem = self.problem
        log_states = np.log(problem.n_states).tolist()
        self._refuse_wide_factors()
        adjacency = [set() for _ in log_states]
        for scope in problem.scopes:
            for node in scope:
                adjacency[node].update(scope)
        for node in problem.free_nodes:
            adjacency[node].discard(node)
        bound = degeneracy(adjacency)
        if bound > _HOPELESS_WIDTH:
            self._require(bound, 8 * 2.0 ** (bound + 1), at_least=True)
        if order is not None:
            plan = eliminate(adjacency, _checked_order(order, problem), log_states)
            self.order, self.separators, self.log_size = plan
            return
        self.order, self.separators, sizes = [], [], []
        for nodes in _connected(adjacency, problem.free_nodes):
            # Every component has names of its own: its order does not depend on the others.
            name = {node: k for k, node in enumerate(nodes)}
            plan = best_order([{name[t] for t in adjacency[s]} for s in nodes], [log_states[s] for s in nodes])
            self.order += [nodes[k] for k in plan.order]
            self.separators += [[nodes[k] for k in separator] for separator in plan.separators]
            sizes.append(plan.log_size)
        self.log_size = np.concatenate([*sizes, np.zeros(0)])

    def _refuse_wide_factors(self):
        for f, scope in enumerate(self.problem.scopes):
            if len(scope) > _HOPELESS_WIDTH:
                size = 8 * np.exp2(min(len(scope), 1000))
                self._require(len(scope) - 1, size, at_least=True, because=f" (factor {f} alone)")

    def _memory(self):
        """Bytes that the tables take at most, kept ones and the temporary ones of the largest bucket."""
        size = np.exp(np.minimum(self.log_size, 700))
        own = np.array([self.problem.n_states[node] for node in self.order], dtype=float)
        kept = 8 * size if self.keep == "conditional" else _index_type(own.max(initial=1)).itemsize * size / own
        return float(kept.sum() + 8 * (size / own).sum() + 24 * size.max(initial=0))

    def _require(self, width, memory, *, at_least=False, because=""):
        max_width, max_memory = self._limits
        if width > max_width or memory > max_memory:
            least = "at least " if at_least else ""
            raise ValueError(
                f"model is too wide for JunctionTree: it takes {least}width {width} and {memory:.2g} bytes{because}, "
                f"the bounds are max_width={max_width} and max_memory={max_memory:.2g}."
            )

    def upward(self, absorb):
        """Messages from the leaves to the roots.

        Parameters
        ----------
        absorb : callable(table) -> (message, kept)
            Takes the node out of the table of its bucket, axis 0.

        Returns
        -------
        terms : ndarray of shape (N,), float64
            Message of the root of each component and scores of what is decided, at the component's first node.
        kept : list
            What ``absorb`` keeps of each bucket.
        """
        problem = self.problem
        component = problem.model.component
        first = np.unique(component, return_index=True)[1]
        terms = np.zeros(len(component))
        for f in self.fixed_factors:
            nodes = problem._nodes(f)
            terms[first[component[nodes[0]]] if nodes else 0] += problem.table(f)[()]
        messages, kept = [None] * len(self.order), []
        for k, node in enumerate(self.order):
            parts = [self._sorted_table(f) for f in self.factors[k]]
            for child in self.children[k]:
                parts.append((self.separators[child], messages[child]))
                messages[child] = None
            table = self._sum([node, *self.separators[k]], parts)
            message, keep = absorb(table.reshape(int(problem.n_states[node]), -1))
            kept.append(keep)
            if self.separators[k]:
                messages[k] = message
            else:
                terms[first[component[node]]] += message[0]
        if np.isneginf(terms).any():
            node = int(np.argmin(terms))
            raise ValueError(f"model is infeasible: no labeling of the component of node {node} is allowed.")
        return terms, kept

    def _sorted_table(self, factor):
        """Free nodes of a factor in the order of their elimination, and its table with axes in that order."""
        scope = self.problem.scopes[factor]
        axes = np.argsort([self.position[s] for s in scope])
        return [scope[axis] for axis in axes], self.problem.table(factor).transpose(axes)

    def _shape(self, nodes):
        return [int(self.problem.n_states[node]) for node in nodes]

    def _sum(self, nodes, parts):
        """Sum of tables over some of the nodes as one flat table over all of them."""
        for side, own in _shared_out(nodes, parts):
            parts = [part for part in parts if all(part is not one for one in own)]
            parts.append((side, self._sum(side, own)))
        shape = self._shape(nodes)
        table = np.zeros(int(np.prod(shape)))
        for axes, part in parts:
            whole, own_shape, _ = _grouped(shape, nodes, axes)
            view = table.reshape(whole)
            view += part.reshape(own_shape)
        return table

    def _marginals(self, nodes, joint, wanted):
        """Yield (what was wanted, marginal) for each (nodes, ...) that is wanted of a joint table."""
        for side, own in _shared_out(nodes, wanted):
            wanted = [one for one in wanted if all(one is not other for other in own)]
            yield from self._marginals(side, self._marginal(nodes, joint, side), own)
        for one in wanted:
            yield one, self._marginal(nodes, joint, one[0])

    def _marginal(self, nodes, joint, axes):
        whole, _, absent = _grouped(self._shape(nodes), nodes, axes)
        return joint.reshape(whole).sum(axis=absent).ravel()

    def downward(self, conditional):
        """Marginals of nodes and factors from the conditional tables, which are used up."""
        problem, model = self.problem, self.problem.model
        unary = np.zeros((model.n_nodes, model.n_columns))
        unary[~problem.is_free, [problem.states[s][0] for s in np.flatnonzero(~problem.is_free)]] = 1.0
        log_table, table_default = np.zeros(model.log_table.size), np.zeros(model.n_tables)

        def count(f, probability):
            cells = problem.cells(f)
            add_cells(model, np.full(len(cells), f), cells, probability, log_table, table_default)

        for f in self.fixed_factors:
            count(f, np.ones(1))
        incoming = [None] * len(self.order)
        for k in range(len(self.order) - 1, -1, -1):
            joint = conditional[k]
            if incoming[k] is not None:
                joint *= incoming[k]
            conditional[k] = incoming[k] = None
            node = self.order[k]
            unary[node, problem.states[node]] = joint.sum(axis=1)
            wanted = [(self.separators[child], child, None) for child in self.children[k]]
            wanted += [(problem.scopes[f], None, f) for f in self.factors[k]]
            for (scope, child, f), marginal in self._marginals([node, *self.separators[k]], joint, wanted):
                if f is None:
                    incoming[child] = marginal
                else:
                    count(f, self._in_order_of_scope(scope, marginal))
        return unary, log_table, table_default

    def _in_order_of_scope(self, scope, marginal):
        axes = np.argsort([self.position[s] for s in scope])
        shape = self._shape([scope[axis] for axis in axes])
        return marginal.reshape(shape).transpose(np.argsort(axes)).ravel()

    def backward(self, n_samples, choose):
        """States of all nodes, roots first: ``choose(k, rows)`` gives those of bucket k for rows of its table."""
        problem = self.problem
        place = np.zeros((n_samples, len(problem.states)), dtype=np.int64)
        for k in range(len(self.order) - 1, -1, -1):
            rows = np.zeros(n_samples, dtype=np.int64)
            for node in self.separators[k]:
                rows = rows * int(problem.n_states[node]) + place[:, node]
            place[:, self.order[k]] = choose(k, rows)
        labels = np.empty(place.shape, dtype=np.int32)
        for node, states in enumerate(problem.states):
            labels[:, node] = states[place[:, node]]
        return labels


def _connected(adjacency, nodes):
    """Nodes of each connected component, ascending, components in the order of their first nodes."""
    seen = set()
    for root in nodes:
        if root in seen:
            continue
        seen.add(root)
        found, stack = [], [root]
        while stack:
            node = stack.pop()
            found.append(node)
            fresh = adjacency[node] - seen
            seen |= fresh
            stack.extend(fresh)
        yield sorted(found)


def _checked_order(order, problem):
    order = np.asarray(order)
    n_nodes = len(problem.states)
    if order.shape != (n_nodes,) or not np.array_equal(np.sort(order), np.arange(n_nodes)):
        raise ValueError(f"init must be the state of a former result: a permutation of {n_nodes} nodes.")
    return [node for node in order.tolist() if problem.is_free[node]]


def _index_type(n_states):
    return np.dtype(np.uint8 if n_states <= 256 else np.int32)


def sum_out(table):
    """Log of the sum over axis 0, and the conditional probabilities of axis 0."""
    top = table.max(axis=0)
    top[np.isneginf(top)] = 0.0
    table -= top
    np.exp(table, out=table)
    total = table.sum(axis=0)
    with np.errstate(divide="ignore"):
        message = np.log(total)
    message += top
    total[total == 0.0] = 1.0
    table /= total
    return message, table


def maximise_out(table):
    """Maximum over axis 0, and where it is."""
    best = table.argmax(axis=0)
    message = np.take_along_axis(table, best[None], axis=0)[0]
    return message, best.astype(_index_type(len(table)))


def draw_rows(conditional, rows, uniform):
    """For each of ``rows`` a draw from the distribution over axis 0."""
    cumulated = np.cumsum(conditional[:, rows], axis=0)
    # The last sum may fall short of one by rounding: the draw must still be a state of positive probability.
    return (uniform * cumulated[-1] >= cumulated).sum(axis=0)
