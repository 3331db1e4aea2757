"""Reference implementation of losses of marginals after some sweeps, and of gradients through the sweeps."""

import numpy as np
from scipy.special import logsumexp, softmax

from sklearn_crf.models import Statistics


class SweptReference:
    """Marginals after some sweeps of messages or mean field. Each step records the data for its adjoint."""

    def __init__(self, model, method, n_sweeps, appearance):
        self.edges, self.n_nodes = model.graph.edges, model.n_nodes
        self.unary, self.tables = model.unary.astype(float), model.edge_tables().astype(float)
        self.power = np.ones(len(self.edges)) if method == "loopy" else appearance
        # Arc 2e leads from the first to the second node of edge e, and arc 2e + 1 leads back.
        self.source = self.edges.ravel()
        self.target = self.edges[:, ::-1].ravel()
        self.method, self.n_sweeps = method, n_sweeps

    def table(self, arc):
        """Return the scores of an edge as a table by states of the source, then target, of an arc."""
        table = self.tables[arc // 2] / (1 if self.method == "mean_field" else self.power[arc // 2])
        return table.T if arc % 2 else table

    def into(self, s):
        return np.flatnonzero(self.target == s)

    # Logarithms of messages, multiplied by the appearance probability of their edge ----------------------------------

    def run_messages(self, order):
        rank = np.argsort(order)
        self.log_messages = np.zeros((len(self.source), self.unary.shape[1]))
        self.steps = []
        for _ in range(self.n_sweeps):
            for nodes, sign in ((order, 1), (order[::-1], -1)):
                for s in nodes:
                    for arc in np.flatnonzero((self.source == s) & (sign * (rank[self.target] - rank[s]) > 0)):
                        self.send(arc)

    def cavity(self, arc):
        """Return the log-belief of the source of an arc without the message from its target."""
        s = self.source[arc]
        return (
            self.unary[s]
            + self.log_messages[self.into(s)].sum(axis=0)
            - self.log_messages[arc ^ 1] / self.power[arc // 2]
        )

    def send(self, arc):
        joint = self.cavity(arc)[:, None] + self.table(arc)
        fresh = self.power[arc // 2] * logsumexp(joint, axis=0)
        self.steps.append((arc, softmax(joint, axis=0)))
        self.log_messages[arc] = fresh - fresh.max()

    def pair(self, e):
        joint = self.cavity(2 * e)[:, None] + self.table(2 * e) + self.cavity(2 * e + 1)
        return np.exp(joint - logsumexp(joint))

    def node(self, s):
        return softmax(self.unary[s] + self.log_messages[self.into(s)].sum(axis=0))

    def start_back(self):
        self.by_unary, self.by_tables = np.zeros_like(self.unary), np.zeros_like(self.tables)
        self.by_message = np.zeros((len(self.source), self.unary.shape[1]))

    def back_of_node(self, s, by_scores):
        self.by_unary[s] += by_scores
        self.by_message[self.into(s)] += by_scores

    def back_of_table(self, arc, derivative):
        """Add a derivative by ``table(arc)`` in place."""
        scaled = derivative / (1 if self.method == "mean_field" else self.power[arc // 2])
        self.by_tables[arc // 2] += scaled.T if arc % 2 else scaled

    def back_of_cavity(self, arc, by_scores):
        self.back_of_node(self.source[arc], by_scores)
        self.by_message[arc ^ 1] -= by_scores / self.power[arc // 2]

    def back_of_pair(self, e, by_scores):
        self.back_of_cavity(2 * e, by_scores.sum(axis=1))
        self.back_of_cavity(2 * e + 1, by_scores.sum(axis=0))
        self.back_of_table(2 * e, by_scores)

    def back_of_messages(self):
        for arc, given_target in reversed(self.steps):
            # The loss does not depend on the scale of a message.
            by_fresh = self.by_message[arc] - self.by_message[arc].mean()
            by_joint = self.power[arc // 2] * given_target * by_fresh
            self.by_message[arc] = 0
            self.back_of_cavity(arc, by_joint.sum(axis=1))
            self.back_of_table(arc, by_joint)

    # Mean field ----------------------------------------------------------------------------------------------------

    def run_mean_field(self, order):
        q = softmax(self.unary, axis=1)
        self.states = [(None, q.copy())]
        for _ in range(self.n_sweeps):
            for s in order:
                arcs = self.into(s)
                q[s] = softmax(self.unary[s] + sum(q[self.source[a]] @ self.table(a) for a in arcs))
                self.states.append((s, q.copy()))
        self.q = q

    def back_of_mean_field(self, by_q):
        self.start_back()
        by_q = by_q.copy()
        for (s, q), (_, before) in zip(self.states[:0:-1], self.states[-2::-1], strict=True):
            by_scores = q[s] * (by_q[s] - by_q[s] @ q[s])
            by_q[s] = 0
            self.by_unary[s] += by_scores
            for a in self.into(s):
                by_q[self.source[a]] += self.table(a) @ by_scores
                self.back_of_table(a, np.outer(before[self.source[a]], by_scores))
        q = self.states[0][1]
        self.by_unary += q * (by_q - np.sum(by_q * q, axis=1, keepdims=True))


def loss_of_node(loss, p, label, weight):
    """Return the loss of the marginal of a node, and the derivative of the loss with respect to the marginal."""
    truth = np.eye(len(p))[label]
    if loss == "univariate":
        return -weight * np.log(p[label]), -weight * truth / p[label]
    if loss == "quadratic":
        return weight * np.sum((p - truth) ** 2), 2 * weight * (p - truth)
    return weight * (1 - p[label]), -weight * truth


def swept_loss(model, labels, method, n_sweeps, loss, *, order, appearance=None, weight=None):
    """Return the loss after a fixed number of sweeps, the marginals of nodes, and the derivatives of the loss."""
    swept = SweptReference(model, method, n_sweeps, appearance)
    n_nodes, n_columns = model.unary.shape
    weight = np.ones(n_nodes) if weight is None else weight
    value, by_q = 0.0, np.zeros((n_nodes, n_columns))
    of_messages = method != "mean_field"
    if of_messages:
        swept.run_messages(order)
        swept.start_back()
        q = np.array([swept.node(s) for s in range(n_nodes)])
    else:
        swept.run_mean_field(order)
        q = swept.q
    alone = np.bincount(model.graph.edges.ravel(), minlength=n_nodes) == 0
    for s in np.flatnonzero(labels >= 0):
        if loss != "clique" or alone[s]:
            kind, factor = ("univariate", 1.0) if loss == "clique" else (loss, weight[s])
            term, slope = loss_of_node(kind, q[s], labels[s], factor)
            value, by_q[s] = value + term, by_q[s] + slope
    for e, (s, t) in enumerate(model.graph.edges if loss == "clique" else []):
        known = np.ones((n_columns, n_columns))
        if labels[s] >= 0:
            known *= np.eye(n_columns)[labels[s]][:, None]
        if labels[t] >= 0:
            known *= np.eye(n_columns)[labels[t]]
        pair = swept.pair(e) if of_messages else np.outer(q[s], q[t])
        share = np.sum(pair * known)
        value -= np.log(share)
        if of_messages:
            swept.back_of_pair(e, pair - pair * known / share)
        else:
            by_q[s] -= known @ q[t] / share
            by_q[t] -= q[s] @ known / share
    if of_messages:
        for s in range(n_nodes):
            swept.back_of_node(s, q[s] * (by_q[s] - by_q[s] @ q[s]))
        swept.back_of_messages()
    else:
        swept.back_of_mean_field(by_q)
    tables = np.zeros(model.tables.shape)
    edge_weight = np.ones((len(swept.edges), 1)) if model.edge_weight is None else model.edge_weight
    for e, row in enumerate(edge_weight):
        tables[model.edge_type[e]] += row[:, None, None] * swept.by_tables[e]
    return value, q, Statistics(swept.by_unary, tables)
