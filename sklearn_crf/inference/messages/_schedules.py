"""Schedules of messages, which determine the order in which nodes send in a sweep of belief propagation."""

from functools import partial
from itertools import pairwise

import numpy as np

from sklearn_crf.graphs import Graph
from sklearn_crf.inference.messages import _tuning
from sklearn_crf.kernels.messages.edge_messages import send_by_residual


def sequential(graph, field, messages, damping, tol, run):
    """Return a sweep in which nodes send to later nodes in a forward pass, then to earlier nodes in a backward pass.

    Once the messages of a component with cycles have converged, the component is skipped. The number of its sweeps and
    its final messages therefore do not depend on other components.
    """
    if graph.is_forest or graph.n_components == 1:
        renew = _make_renewal(field, messages, _order_nodes(graph), damping)
        return lambda: renew(np.array([[0, graph.n_nodes]]))[0]
    return ComponentSweeps(graph, field, messages, damping, tol, run)


class ComponentSweeps:
    """Sweeps over all components together, in which each component is skipped once its messages have converged."""

    def __init__(self, graph, field, messages, damping, tol, run):
        self._order, rank, self._moving = get_sorted_components(graph)
        self._renew = _make_renewal(field, messages, self._order, damping, rank)
        self._smallest = max(1, _tuning.SMALLEST_SHARE * graph.n_components // len(self._order))
        self._tol, self._run = tol, run

    def __call__(self):
        moving, changes = self._moving, np.empty(len(self._moving))

        def part(first, last):
            changes[first:last] = self._renew(moving[first:last])

        self._run(part, len(moving), self._smallest)
        failed = changes[changes < 0]
        if len(failed):
            return failed[0]
        self._moving = moving[~(changes <= self._tol)]
        return changes.max()

    @property
    def moving_nodes(self):
        """Nodes of the components whose messages have not converged yet."""
        return np.concatenate([self._order[:0], *(self._order[slice(*ends)] for ends in self._moving)])


def get_sorted_components(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return nodes (N,) sorted by component, their positions, and position ranges (n, 2) of components with edges."""
    return graph.keep("components in order", partial(_sort_by_component, graph))


def _sort_by_component(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = np.argsort(graph.component, kind="stable").astype(np.int32)
    sizes = np.bincount(graph.component)
    ends = np.cumsum(sizes)
    # Nodes without edges send nothing.
    return order, _invert_order(order), np.stack([ends - sizes, ends], axis=1)[sizes > 1]


def _invert_order(order: np.ndarray) -> np.ndarray:
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank


def _order_nodes(graph):
    """Return the order of a forward sweep: from the leaves to the roots on forests, where two passes suffice."""
    if graph.is_forest:
        return np.ascontiguousarray(graph.forest.order[::-1])
    return np.arange(graph.n_nodes, dtype=np.int32)


def _make_renewal(field, messages, order, damping, rank=None):
    """Return a function that updates the messages of ranges (n, 2) of nodes, and returns the largest changes."""
    rank = _invert_order(order) if rank is None else rank

    def renew(ranges):
        changes = np.empty(len(ranges))
        field.renew(messages, order, rank, damping, ranges, changes, field.workspace())
        return changes

    return renew


def checkerboard(graph, field, messages, damping, tol, run):
    """Return a sweep in which all nodes of a colour send in parallel; these nodes do not read each other's messages."""
    nodes, ptr = graph.colouring
    classes = [nodes[start:stop] for start, stop in pairwise(ptr)]
    unranked = np.zeros(0, dtype=np.int32)

    def sweep():
        changes = []
        for members in classes:

            def part(start, stop, members=members):
                work = field.workspace()
                changes.append(field.send(messages, members, unranked, 0, damping, start, stop, work))

            run(part, len(members))
            if min(changes) < 0:
                return min(changes)
        return max(changes)

    return sweep


def send_at_once(graph, field, messages, run):
    """Return the messages that all nodes would send at once, given that each node has received ``messages``."""
    nodes, ptr = graph.colouring
    colour, unranked = np.empty(graph.n_nodes, dtype=np.int32), np.zeros(0, dtype=np.int32)
    colour[nodes] = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    of_sender = colour[field.neighbor]
    slots = np.split(np.argsort(of_sender, kind="stable"), np.cumsum(np.bincount(of_sender, minlength=len(ptr) - 1)))
    fresh, current = np.empty_like(messages), messages.copy()
    for (start, stop), written in zip(pairwise(ptr), slots[:-1], strict=True):
        members = nodes[start:stop]

        def part(first, last, members=members):
            field.send(current, members, unranked, 0, 0.0, first, last, field.workspace())

        run(part, len(members))
        fresh[written] = current[written]
        current[written] = messages[written]
    return fresh


def blocks(graph, field, messages, damping, tol, run):
    """Return a sweep over blocks of consecutive nodes, forwards and backwards, with every second block in parallel.

    No edge reaches beyond the next block, so blocks that run in parallel do not read each other's messages.
    """
    n_nodes, size = graph.n_nodes, _choose_block_size(graph)
    renew = _make_renewal(field, messages, np.arange(n_nodes, dtype=np.int32), damping)
    bounds = np.array([[start, min(start + size, n_nodes)] for start in range(0, n_nodes, size)])
    halves = [bounds[0::2].copy(), bounds[1::2].copy()]

    def sweep():
        changes = [0.0]
        for ranges in halves:

            def part(first, last, ranges=ranges):
                changes.extend(renew(ranges[first:last]))

            run(part, len(ranges), smallest_range=1)
            if min(changes) < 0:
                return min(changes)
        return max(changes)

    return sweep


def _choose_block_size(graph):
    """Return the number of nodes in a block, which is at least the largest distance between the ends of an edge."""
    farthest = int(np.abs(graph.edges[:, 1] - graph.edges[:, 0]).max(initial=1))
    return max(farthest, -(-graph.n_nodes // _tuning.N_BLOCKS))


def residual(graph, field, messages, damping, tol, run):
    """Return a sweep in which the next sender is always the node whose input has changed most since it last sent."""
    priority = np.full(graph.n_nodes, np.inf)
    heap = np.arange(graph.n_nodes, dtype=np.int32)
    position = heap.copy()
    work = field.workspace()

    order = _order_nodes(graph)
    renew = _make_renewal(field, messages, order, damping)

    def sweep():
        change = send_by_residual(field, messages, priority, heap, position, tol, damping, graph.n_nodes, work)
        if not 0 <= change <= tol:
            return change
        # If scores are far apart, a change of the input below the tolerance may change the output by more.
        change = renew(np.array([[0, len(order)]]))[0]
        if change > tol:
            priority.fill(np.inf)
        return change

    return sweep


SCHEDULES = {"sequential": sequential, "blocks": blocks, "checkerboard": checkerboard, "residual": residual}


def choose_schedule(name, graph):
    """Return the schedule of a given name; ``"auto"`` depends only on the graph, never on the number of threads."""
    if name == "auto":
        if graph.n_nodes <= _tuning.LARGEST_SEQUENTIAL or graph.is_forest:
            name = "sequential"
        else:
            name = "blocks" if _tuning.FEWEST_BLOCKS * _choose_block_size(graph) <= graph.n_nodes else "checkerboard"
    return SCHEDULES[name]
