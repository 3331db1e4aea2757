"""Reference implementation of norm-product belief propagation, with messages over all joint states of factors."""

import numpy as np
from scipy.special import logsumexp


def soft_maximum(values, axis, temperature):
    """Return T log sum exp(values / T), or the maximum if T is 0."""
    if temperature == 0:
        return values.max(axis=axis)
    return temperature * logsumexp(values / temperature, axis=axis)


class Reference:
    """Messages of a factor graph with dense finite tables and given counting numbers.

    Parameters
    ----------
    model : FactorGraph
    node : sequence of float
        Counting number c_ss of each node.
    own : sequence of float
        Counting number c_FF of each factor of two nodes or more.
    conditional : list of sequence of float
        Counting numbers c_sF of the nodes of each factor, with nodes in ascending order.
    temperature : float
    """

    def __init__(self, model, node, own, conditional, temperature):
        self.temperature = temperature
        self.unary = [np.zeros(n) for n in model.n_states]
        self.scopes, self.tables = [], []
        for f in range(model.n_factors):
            scope = model.scope[model.scope_ptr[f] : model.scope_ptr[f + 1]]
            table = model.dense_table(f).astype(np.float64)
            if len(scope) == 1:
                self.unary[scope[0]] = self.unary[scope[0]] + table
            if len(scope) > 1:
                order = np.argsort(scope)
                self.scopes.append(scope[order].tolist())
                self.tables.append(table.transpose(order))
        self.node, self.own, self.conditional = node, own, conditional
        self.shares = [
            [c / (own[f] + sum(conditional[f])) * self.tables[f] for c in conditional[f]] for f in range(len(own))
        ]

    def sweep(self, nodes):
        """Update the messages of nodes, one node at a time, and return the contribution of each node to the bound."""
        return np.array([self._update(s) for s in nodes])

    def _update(self, s):
        around = [(f, scope.index(s)) for f, scope in enumerate(self.scopes) if s in scope]
        total, incoming = self.unary[s], []
        for f, d in around:
            rest = self.tables[f] - sum(share for j, share in enumerate(self.shares[f]) if j != d)
            hat = self.own[f] + self.conditional[f][d]
            others = tuple(axis for axis in range(rest.ndim) if axis != d)
            message = hat * soft_maximum(rest / hat, others, self.temperature)
            incoming.append((f, d, rest, hat, message))
            total = total + message
        weight = self.node[s] + sum(self.own[f] for f, _ in around)
        value = weight * soft_maximum(total / weight, 0, self.temperature)
        for f, d, rest, hat, message in incoming:
            shape = [-1 if axis == d else 1 for axis in range(rest.ndim)]
            by_state = (message / hat - (total - value) / weight).reshape(shape)
            self.shares[f][d] = self.conditional[f][d] / hat * rest + self.own[f] * by_state
        return value
