"""Regions of a relaxation: nodes, pairs, factors, and clusters along frustrated cycles."""

from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from sklearn_crf._numbers import offsets_from_lengths
from sklearn_crf.inference.relaxations import _tuning
from sklearn_crf.kernels.messages.factors import region_sweep
from sklearn_crf.models import FactorGraph


class Regions:
    """Tables of regions, whose maxima sum to an upper bound on the best score.

    A region contains other regions as parts, with which its table must agree. Nodes are parts of pairs and of factors;
    pairs are parts of triplets and of factors with more nodes.
    """

    # most_cells: maximum number of joint states of a cluster; larger clusters are not added

    def __init__(self, model: FactorGraph, most_cells: int) -> None:
        self.n_states = model.n_states.tolist()
        self.most_cells = most_cells
        self.scopes: list = []
        self.tables: list = []
        self.parts: list = []
        self.pair: dict = {}
        self.wide: list = []
        self.constant = 0.0
        for node, n_states in enumerate(self.n_states):
            self._add((node,), np.zeros(n_states), ())
        for factors, scope in model.by_arity():
            for factor, nodes in zip(factors.tolist(), scope.tolist(), strict=True):
                self._take(nodes, np.asarray(model.dense_table(factor), dtype=np.float64))
        self._lay_out()

    def _take(self, nodes, table):
        if not nodes:
            self.constant += float(table.sum())
            return
        scope = tuple(sorted(nodes))
        table = table.transpose(np.argsort(nodes)).ravel()
        region = nodes[0] if len(nodes) == 1 else self.pair.get(scope)
        if region is not None:
            self.tables[region] = self.tables[region] + table
        elif len(nodes) == 2:
            self.pair[scope] = self._add(scope, table, scope)
        else:
            self.wide.append(self._add(scope, table, scope))

    def _add(self, scope, table, parts):
        self.scopes.append(scope)
        self.tables.append(table)
        self.parts.append(list(parts))
        return len(self.scopes) - 1

    def _pair(self, u, v):
        """Return the region of a pair of nodes, after adding it if there is none."""
        scope = (u, v) if u < v else (v, u)
        if scope not in self.pair:
            self.pair[scope] = self._add(scope, np.zeros(self.n_states[u] * self.n_states[v]), scope)
        return self.pair[scope]

    def _lay_out(self) -> None:
        """Convert the lists of regions to arrays for the kernel."""
        self.table_ptr = offsets_from_lengths([len(table) for table in self.tables])
        self.values = np.concatenate([*self.tables, np.zeros(0)])
        holders: dict[int, list[int]] = {}
        for region, parts in enumerate(self.parts):
            for part in parts:
                holders.setdefault(part, []).append(region)
        # Regions are ordered by first node; each node precedes the pairs that begin with the node.
        order = sorted(holders, key=lambda part: (self.scopes[part][0], len(self.scopes[part]), self.scopes[part]))
        rank = {part: k for k, part in enumerate(order)}
        places, start_of, starts, share, n_places = [], {}, [], [], 0
        for part in order:
            share += self._divide_scores(part, holders[part], rank)
            for holder in holders[part]:
                nodes, inside = self.scopes[holder], set(self.scopes[part])
                pattern = tuple(self.n_states[s] for s in nodes), tuple(s in inside for s in nodes)
                if pattern not in start_of:
                    start_of[pattern] = n_places
                    places.append(_places(*pattern))
                    n_places += len(places[-1])
                starts.append(start_of[pattern])
        sizes = np.diff(self.table_ptr)
        holder = np.array([h for part in order for h in holders[part]], dtype=np.int32)
        self._arguments = (
            self.table_ptr,
            np.array(order, dtype=np.int32),
            np.cumsum([0, *(len(holders[part]) for part in order)], dtype=np.int64),
            holder,
            np.array(starts, dtype=np.int64),
            np.concatenate([*places, np.zeros(0, dtype=np.int32)]),
            np.ascontiguousarray(np.array(share, dtype=np.float64).reshape(-1, 2).T),
        )
        self.work_of_sweep = 6 * int(sizes[holder].sum()) + int(sizes.sum())
        self._maxima = np.empty(int(sizes[order].max(initial=1)))

    def _divide_scores(self, part, holders, rank):
        """Return the fraction of a part's scores that each region around it gets, in forward and backward sweeps."""
        later = [any(rank[other] > rank[part] for other in self.parts[h]) for h in holders]
        earlier = [any(rank[other] < rank[part] for other in self.parts[h]) for h in holders]
        most = max(sum(later), sum(earlier), 1)
        return [(ahead / most, behind / most) for ahead, behind in zip(later, earlier, strict=True)]

    def sweep(self) -> float:
        """Make a forward and a backward sweep, and return the bound."""
        for back in (False, True):
            region_sweep(self.values, *self._arguments, back, self._maxima)
        return float(self._maximise_regions().sum()) + self.constant

    def _maximise_regions(self):
        return np.maximum.reduceat(self.values, self.table_ptr[:-1])

    def rule_out(self, bound: float, target: float) -> bool:
        """Forbid joint states that no labeling above the target can have; return whether a node lost a state."""
        least = self._maximise_regions() - (bound - target)
        hopeless = (self.values <= np.repeat(least, np.diff(self.table_ptr))) & (self.values > -np.inf)
        self.values[hopeless] = -np.inf
        return bool(hopeless[: self.table_ptr[len(self.n_states)]].any())

    def table(self, region: int) -> np.ndarray:
        """Return the table of a region, as a view."""
        return self.values[self.table_ptr[region] : self.table_ptr[region + 1]]

    def states(self, node: int) -> list[int]:
        """Return the allowed states of a node, best first."""
        table = self.table(node)
        order = np.argsort(-table, kind="stable")
        return order[table[order] > -np.inf].tolist()

    def add_clusters(self) -> int:
        """Add triplets that will lower the bound, along strongest cycles first; return the number of new regions."""
        n_before = len(self.scopes)
        most = max(10, int(_tuning.ADDED_SHARE * n_before))
        self.tables = [self.table(region).copy() for region in range(n_before)]
        known = {scope for scope in self.scopes if len(scope) == 3}
        for cycle in _iterate_frustrated_cycles(self._iterate_agreements()):
            for second, third in pairwise(cycle[1:]):
                u, v, w = sorted((cycle[0], second, third))
                n_cells = self.n_states[u] * self.n_states[v] * self.n_states[w]
                if (u, v, w) not in known and n_cells <= self.most_cells:
                    known.add((u, v, w))
                    self._add((u, v, w), np.zeros(n_cells), (self._pair(u, v), self._pair(u, w), self._pair(v, w)))
            if len(self.scopes) - n_before >= most:
                break
        for region in self.wide:
            scope = self.scopes[region]
            inside = [self.pair[u, v] for k, u in enumerate(scope) for v in scope[k + 1 :] if (u, v) in self.pair]
            self.parts[region] = [*scope, *inside]
        self._lay_out()
        return len(self.scopes) - n_before

    def _iterate_agreements(self) -> Iterator[tuple[tuple, tuple, float]]:
        """Yield two pairs (node, state), and the gain of agreement between them.

        The gain compares labelings that contain both pairs or neither pair with labelings that contain one pair.
        """
        inside = [s for scope in self.scopes if len(scope) > 1 for s in scope]
        degree = np.bincount(inside, minlength=len(self.n_states))
        splits = [self._choose_splits(node) for node in range(len(self.n_states))]
        for region, scope in enumerate(self.scopes):
            # Clusters only pass scores to their pairs.
            if len(scope) < 2 or (len(scope) > 2 and self.parts[region][0] >= len(self.n_states)):
                continue
            table = self.table(region).reshape([self.n_states[s] for s in scope])
            for i, u in enumerate(scope):
                for j in range(i + 1, len(scope)):
                    v = scope[j]
                    pair = table.max(axis=tuple(axis for axis in range(len(scope)) if axis not in (i, j)))
                    pair = pair + self.table(u)[:, None] / degree[u] + self.table(v)[None, :] / degree[v]
                    yield from (((u, a), (v, b), _agreement(pair, a, b)) for a in splits[u] for b in splits[v])

    def _choose_splits(self, node):
        """Return the states at which a node is split in two. For two states, one split suffices."""
        states = self.states(node)
        return states[:1] if len(states) == 2 else states[: _tuning.MOST_SPLITS] if len(states) > 2 else []


def _agreement(table, a, b):
    rows, columns = np.arange(table.shape[0]) == a, np.arange(table.shape[1]) == b
    alike = rows[:, None] == columns[None, :]
    same, mixed = table[alike].max(initial=-np.inf), table[~alike].max(initial=-np.inf)
    if np.isneginf(same) or np.isneginf(mixed):
        return 0.0 if same == mixed else float(np.copysign(1e30, same - mixed))
    return float(same - mixed)


def _iterate_frustrated_cycles(agreements):
    """Yield cycles with an odd number of disagreements, in descending order of the strength of their weakest edges."""
    edges = []
    near: dict[int, list] = {}
    for u, v, strength in agreements:
        if abs(strength) > 1e-9:
            edges.append((abs(strength), u, v, strength < 0))
            near.setdefault(u, []).append((v, abs(strength), strength < 0))
            near.setdefault(v, []).append((u, abs(strength), strength < 0))
    edges.sort(key=lambda edge: -edge[0])
    seen = set()
    for weakest, u, v, differs in edges:
        nodes = [node for node, _ in _find_path(near, u, v, not differs, weakest)]
        key = frozenset(nodes)
        if len(nodes) >= 3 and len(key) == len(nodes) and key not in seen:
            seen.add(key)
            yield nodes


def _find_path(near, start, end, odd, weakest):
    """Return a shortest path of sufficiently strong edges with an odd or even number of disagreements, or []."""
    goal = (end, odd)
    came: dict[tuple, Any] = {(start, False): None}
    queue = deque([((start, False), 1)])
    while queue:
        place, length = queue.popleft()
        if length >= _tuning.LONGEST_CYCLE:
            break
        node, parity = place
        for other, strength, differs in near[node]:
            following = (other, parity ^ differs)
            if strength < weakest or following in came or (node == start and other == end):
                continue
            came[following] = place
            if following == goal:
                path = [following]
                while came[path[-1]] is not None:
                    path.append(came[path[-1]])
                return [step[0] for step in path]
            queue.append((following, length + 1))
    return []


def _places(shape, inside):
    """Map each cell of a region's table to the cell of a part's table that has the same states."""
    place, step = np.zeros(shape, dtype=np.int32), 1
    for axis in reversed(range(len(shape))):
        if inside[axis]:
            along = [-1 if other == axis else 1 for other in range(len(shape))]
            place = place + (np.arange(shape[axis], dtype=np.int32) * step).reshape(along)
            step *= shape[axis]
    return np.ascontiguousarray(place.ravel(), dtype=np.int32)
