"""In which order messages are renewed. Each schedule is made for one run and gives a function that does one sweep.

A sweep returns the largest change of a message, or -1 - t if it left node t without a state.
"""

from itertools import pairwise

import numpy as np

from sklearn_crf.kernels.messages.edge_messages import send_by_residual

# On smaller graphs threads gain less than the sweeps that the sequential schedule saves.
_LARGEST_SEQUENTIAL = 20_000


def sequential(graph, field, messages, damping, tol, run):
    """Forwards through the nodes, each sending to later ones, then backwards: every message once.

    A component with cycles rests from the sweep on in which its messages stood still: it needs no more sweeps, and ends
    at no other messages, than if it were alone.
    """
    if graph.is_forest or graph.n_components == 1:
        return _forth_and_back(graph, field, messages, damping)
    order = np.argsort(graph.component, kind="stable").astype(np.int32)
    sizes = np.bincount(graph.component)
    ends = np.cumsum(sizes)
    # A node without edges sends nothing.
    moving = [(end - size, end) for size, end in zip(sizes.tolist(), ends.tolist(), strict=True) if size > 1]
    renew = _renewal(field, messages, order, damping)

    def sweep():
        changes = []
        for start, stop in moving:
            changes.append(renew(start, stop))
            if changes[-1] < 0:
                return changes[-1]
        moving[:] = [part for part, change in zip(moving, changes, strict=True) if change > tol]
        return max(changes)

    return sweep


def _forth_and_back(graph, field, messages, damping):
    """A sweep over all components."""
    if graph.is_forest:
        # From the leaves to the roots and back nothing is left to do.
        order = np.ascontiguousarray(graph.forest.order[::-1])
    else:
        order = np.arange(graph.n_nodes, dtype=np.int32)
    renew = _renewal(field, messages, order, damping)
    return lambda: renew(0, len(order))


def _renewal(field, messages, order, damping):
    """A function that lets the nodes of a range send, forwards and then backwards, and returns the largest change."""
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=np.int32)
    work = field.work_space()

    def renew(start, stop):
        changes = []
        for direction in (1, -1):
            changes.append(field.send(messages, order, rank, direction, damping, start, stop, work))
            if changes[-1] < 0:
                return changes[-1]
        return max(changes)

    return renew


def checkerboard(graph, field, messages, damping, tol, run):
    """All nodes of one colour at once, colour after colour: they do not read what the others of it write."""
    nodes, ptr = graph.colouring
    classes = [nodes[start:stop] for start, stop in pairwise(ptr)]
    unranked = np.zeros(0, dtype=np.int32)

    def sweep():
        changes = []
        for members in classes:

            def part(start, stop, members=members):
                work = field.work_space()
                changes.append(field.send(messages, members, unranked, 0, damping, start, stop, work))

            run(part, len(members))
            if min(changes) < 0:
                return min(changes)
        return max(changes)

    return sweep


def residual(graph, field, messages, damping, tol, run):
    """Always the node whose incoming messages have changed most since it last sent."""
    priority = np.full(graph.n_nodes, np.inf)
    heap = np.arange(graph.n_nodes, dtype=np.int32)
    position = heap.copy()
    work = field.work_space()

    check = _forth_and_back(graph, field, messages, damping)

    def sweep():
        change = send_by_residual(field, messages, priority, heap, position, tol, damping, graph.n_nodes, work)
        if not 0 <= change <= tol:
            return change
        # Where scores lie far apart, an input that changed by less than the tolerance may change what is sent by more.
        change = check()
        if change > tol:
            priority.fill(np.inf)
        return change

    return sweep


SCHEDULES = {"sequential": sequential, "checkerboard": checkerboard, "residual": residual}


def choose_schedule(name, graph):
    """The schedule of a name; ``"auto"`` looks at the graph alone, never at the number of threads."""
    if name == "auto":
        name = "sequential" if graph.n_nodes <= _LARGEST_SEQUENTIAL or graph.is_forest else "checkerboard"
    return SCHEDULES[name]
