"""Graphs: incidence, forests, colourings, covering trees and differences along edges."""

from cython cimport floating
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint8_t


# Loops over the topology of a graph: incidence, traversal order, greedy colouring ------------------------------------


def list_incidence(
    const int32_t[:, ::1] edges,  # IN (E, 2)
    int64_t[::1] ptr,  # OUT (N + 1,)
    int32_t[::1] neighbor,  # OUT (2E,)
    int32_t[::1] half_edge,  # OUT (2E,)
    int32_t[::1] reverse,  # OUT (2E,)
):
    """List the edges of each node in order, by counting sort."""
    cdef:
        Py_ssize_t edge, node, n_nodes = ptr.shape[0] - 1
        int64_t slot, other, total = 0, count
        int32_t i, j
    with nogil:
        ptr[:] = 0
        for edge in range(edges.shape[0]):
            ptr[edges[edge, 0]] += 1
            ptr[edges[edge, 1]] += 1
        for node in range(n_nodes):
            count = ptr[node]
            ptr[node] = total
            total += count
        # This loop advances each start to its end, which is the start of the next node.
        for edge in range(edges.shape[0]):
            i, j = edges[edge, 0], edges[edge, 1]
            slot = ptr[i]
            ptr[i] += 1
            other = ptr[j]
            ptr[j] += 1
            neighbor[slot], neighbor[other] = j, i
            half_edge[slot], half_edge[other] = <int32_t> (2 * edge), <int32_t> (2 * edge + 1)
            reverse[slot], reverse[other] = <int32_t> other, <int32_t> slot
        for node in range(n_nodes, 0, -1):
            ptr[node] = ptr[node - 1]
        ptr[0] = 0


def forest_order(
    const int64_t[::1] ptr,  # IN (N + 1,) first slot of each node
    const int32_t[::1] neighbor,  # IN (2E,)
    const int32_t[::1] reverse,  # IN (2E,) slot of the same edge at its other end
    int32_t[::1] order,  # OUT (N,) every node after its parent
    int32_t[::1] parent_slot,  # OUT (N,) slot of the node that leads to its parent, -1 at a root
    int32_t[::1] component,  # OUT (N,) index of the connected component, in the order of smallest nodes
):
    """Order the nodes of every component breadth-first; return whether it is a forest, and its number of components."""
    cdef:
        Py_ssize_t n_nodes = order.shape[0]
        Py_ssize_t root, head, tail = 0
        int64_t slot
        int32_t node, other, n_components = 0
        bint acyclic = True
    with nogil:
        for root in range(n_nodes):
            component[root] = -1
        for root in range(n_nodes):
            if component[root] >= 0:
                continue
            component[root] = n_components
            parent_slot[root] = -1
            order[tail] = <int32_t> root
            head = tail
            tail += 1
            while head < tail:
                node = order[head]
                head += 1
                for slot in range(ptr[node], ptr[node + 1]):
                    if slot == parent_slot[node]:
                        continue
                    other = neighbor[slot]
                    if component[other] >= 0:
                        acyclic = False
                        continue
                    component[other] = n_components
                    order[tail] = other
                    tail += 1
                    parent_slot[other] = reverse[slot]
            n_components += 1
    return acyclic, n_components


def greedy_colouring(
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] neighbor,  # IN (2E,)
    int32_t[::1] colour,  # OUT (N,) colours, different for neighbours
    int32_t[::1] last_seen,  # workspace (largest degree + 1,), filled with -1
):
    """Give each node, in order, the smallest colour not used by neighbours; return the number of colours."""
    cdef:
        Py_ssize_t node
        int64_t slot
        int32_t chosen, n_colours = 0
    with nogil:
        for node in range(colour.shape[0]):
            for slot in range(ptr[node], ptr[node + 1]):
                if neighbor[slot] < node:
                    last_seen[colour[neighbor[slot]]] = <int32_t> node
            chosen = 0
            while last_seen[chosen] == node:
                chosen += 1
            colour[node] = chosen
            if chosen >= n_colours:
                n_colours = chosen + 1
    return n_colours


# Minimum spanning trees, and trees that cover the edges of many graphs in one call -----------------------------------

cdef extern from "covering.hpp" namespace "sklearn_crf" nogil:
    void cheapest_forest(
        const int32_t* edges, int64_t n_edges, const double* cost, const double* ties, int32_t* parent, uint8_t* has
    ) except +
    void cover_components(
        const int32_t* edges, const int32_t* numbers, const int64_t* ptr, int64_t n_components, int32_t* parent,
        int64_t* counts, int64_t* n_trees,
    ) except +


def find_cheapest_forest(
    const int32_t[:, ::1] edges,  # IN (E, 2), E > 0
    const double[::1] cost,  # IN (E,)
    const double[::1] ties,  # IN (E,) second cost to break ties, or empty to prefer earlier edges
    int32_t[::1] parent,  # workspace (N,)
    uint8_t[::1] has,  # OUT (E,)
):
    """Find the edges of the minimum spanning forest."""
    with nogil:
        cheapest_forest(
            &edges[0, 0], edges.shape[0], &cost[0], &ties[0] if ties.shape[0] else NULL, &parent[0], &has[0]
        )


def covering_counts(
    const int32_t[:, ::1] edges,  # IN (E, 2), E > 0
    const int32_t[::1] numbers,  # IN (E,) edges by component, ascending in each
    const int64_t[::1] ptr,  # IN (n_components + 1,) start of each component in numbers
    int32_t[::1] parent,  # workspace (N,)
    int64_t[::1] counts,  # OUT (E,) number of trees that contain each edge
    int64_t[::1] n_trees,  # OUT (n_components,) number of trees of each component; 0 without edges
):
    """Cover each component separately with trees, and count the trees that contain every edge."""
    with nogil:
        cover_components(&edges[0, 0], &numbers[0], &ptr[0], n_trees.shape[0], &parent[0], &counts[0], &n_trees[0])


# Test whether edge weights lie in the forest polytope, by orientations of edges in exact integer arithmetic ----------


cdef class _Flow:
    """Distribution of edge weights to the ends of edges, for one call of find_violation."""

    cdef:
        int64_t[::1] share  # part of the edge's weight that each half-edge's node holds
        int64_t[::1] excess  # weight that a node holds beyond its capacity; negative for free capacity
        int32_t[::1] level  # distance to the nearest sink along edges that can pass weight, -1 if unknown
        int64_t[::1] arc  # next slot to try
        int32_t[::1] queue
        int32_t[::1] path  # nodes from the source down
        const int64_t[::1] ptr
        const int32_t[::1] neighbor
        const int32_t[::1] half_edge

    cdef Py_ssize_t find_levels(self, Py_ssize_t n_sinks, Py_ssize_t goal) noexcept nogil:
        """Search breadth-first from queue[:n_sinks], up to `goal` if not negative; return the number of nodes."""
        cdef:
            Py_ssize_t head = 0, tail = n_sinks
            int32_t node, other
            int64_t slot
        while head < tail:
            node = self.queue[head]
            head += 1
            if goal >= 0 and self.level[goal] >= 0 and self.level[node] >= self.level[goal]:
                break
            for slot in range(self.ptr[node], self.ptr[node + 1]):
                other = self.neighbor[slot]
                if self.level[other] < 0 and self.share[self.half_edge[slot] ^ 1] > 0:
                    self.level[other] = self.level[node] + 1
                    self.queue[tail] = other
                    tail += 1
        for head in range(tail):
            self.arc[self.queue[head]] = self.ptr[self.queue[head]]
        return tail

    cdef bint leads_on(self, int32_t node) noexcept nogil:
        """Return whether the current slot of the node leads one level down and can pass weight."""
        cdef int64_t slot = self.arc[node]
        return (
            self.level[node] > 0
            and self.level[self.neighbor[slot]] == self.level[node] - 1
            and self.share[self.half_edge[slot]] > 0
        )

    cdef void augment(self, int32_t sink, int32_t depth) noexcept nogil:
        """Pass as much excess as possible from the start of the path to its end."""
        cdef:
            int32_t k
            int64_t half, amount = min(self.excess[self.path[0]], -self.excess[sink])
        for k in range(depth):
            amount = min(amount, self.share[self.half_edge[self.arc[self.path[k]]]])
        for k in range(depth):
            half = self.half_edge[self.arc[self.path[k]]]
            self.share[half] -= amount
            self.share[half ^ 1] += amount
        self.excess[self.path[0]] -= amount
        self.excess[sink] += amount

    cdef int64_t push(self, int32_t source) noexcept nogil:
        """Pass the excess of a node to sinks, down the levels; return the remaining excess."""
        cdef int32_t node = source, depth = 0
        self.path[0] = source
        while self.excess[source] > 0:
            if self.level[node] == 0 and self.excess[node] < 0:
                self.augment(node, depth)
                depth = 0
                node = source
                continue
            while self.arc[node] < self.ptr[node + 1] and not self.leads_on(node):
                self.arc[node] += 1
            if self.arc[node] < self.ptr[node + 1]:
                node = self.neighbor[self.arc[node]]
                depth += 1
                self.path[depth] = node
            elif depth == 0:
                break
            else:
                depth -= 1
                node = self.path[depth]
                self.arc[node] += 1
        return self.excess[source]

    cdef void forget_levels(self, Py_ssize_t n_reached) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(n_reached):
            self.level[self.queue[k]] = -1

    cdef int32_t settle(self) noexcept nogil:
        """Pass excess until no node has any; return -1, or a node whose excess cannot be removed."""
        cdef:
            Py_ssize_t node, n_nodes = self.excess.shape[0], n_sinks, n_reached
            bint is_left = True
        while is_left:
            is_left = False
            n_sinks = 0
            for node in range(n_nodes):
                if self.excess[node] < 0:
                    self.level[node] = 0
                    self.queue[n_sinks] = <int32_t> node
                    n_sinks += 1
            n_reached = self.find_levels(n_sinks, -1)
            for node in range(n_nodes):
                if self.excess[node] <= 0:
                    continue
                if self.level[node] < 0:
                    return <int32_t> node
                if self.push(<int32_t> node) > 0:
                    is_left = True
            self.forget_levels(n_reached)
        return -1

    cdef bint move_room(self, int32_t source, int32_t sink) noexcept nogil:
        """Pass the excess of `source` to `sink` or other nodes; return whether all of it was passed."""
        cdef Py_ssize_t n_reached
        cdef bint is_reached = True
        while is_reached and self.excess[source] > 0:
            self.queue[0] = sink
            self.level[sink] = 0
            n_reached = self.find_levels(1, source)
            is_reached = self.level[source] >= 0 and self.excess[sink] < 0
            if is_reached:
                self.push(source)
            self.forget_levels(n_reached)
        while self.excess[source] > 0:
            if not self.pass_to_nearest(source):
                return False
        return True

    cdef bint pass_to_nearest(self, int32_t source) noexcept nogil:
        """Pass excess of `source` to the nearest node with free capacity; return whether there is such a node."""
        cdef:
            Py_ssize_t head = 0, tail = 1
            int32_t node = source, other
            int64_t slot, amount
        self.queue[0] = source
        self.level[source] = 0
        while head < tail and self.excess[node] >= 0:
            node = self.queue[head]
            head += 1
            for slot in range(self.ptr[node], self.ptr[node + 1]):
                other = self.neighbor[slot]
                if self.level[other] < 0 and self.share[self.half_edge[slot]] > 0:
                    self.level[other] = self.level[node] + 1
                    self.arc[other] = slot
                    self.path[other] = node
                    self.queue[tail] = other
                    tail += 1
                    if self.excess[other] < 0:
                        node = other
                        break
        self.forget_levels(tail)
        if self.excess[node] >= 0:
            return False
        amount = min(self.excess[source], -self.excess[node])
        other = node
        while other != source:
            amount = min(amount, self.share[self.half_edge[self.arc[other]]])
            other = self.path[other]
        self.excess[source] -= amount
        self.excess[node] += amount
        while node != source:
            self.share[self.half_edge[self.arc[node]]] -= amount
            self.share[self.half_edge[self.arc[node]] ^ 1] += amount
            node = self.path[node]
        return True


def find_violation(
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] neighbor,  # IN (2E,)
    const int32_t[::1] half_edge,  # IN (2E,)
    const int32_t[::1] order,  # IN (N,) nodes, grouped by component
    const int32_t[::1] component,  # IN (N,)
    const int64_t[::1] weight,  # IN (E,) edge weights times `unit`
    int64_t unit,  # scaled value of 1
    int64_t[::1] share,  # workspace (2E,)
    int64_t[::1] excess,  # workspace (N,)
    int32_t[::1] level,  # workspace (N,)
    int64_t[::1] arc,  # workspace (N,)
    int32_t[::1] queue,  # workspace (N,)
    int32_t[::1] path,  # workspace (N,)
):
    """Return a node of a set S whose inner edges weigh more than |S| - 1 in total, or -1 if there is no such set.

    The weights lie in the forest polytope if and only if the following holds for every choice of a component's root:
    the edges can distribute their weights to their ends so that no node receives more than 1, and the root nothing
    (Hakimi 1965). From one root to the next, one unit of weight must move.
    """
    cdef:
        _Flow flow = _Flow()
        Py_ssize_t n_nodes = order.shape[0], n_edges = weight.shape[0], e, k
        int32_t root = -1, node, violated = -1
        int64_t slot
    flow.share, flow.excess, flow.level, flow.arc, flow.queue, flow.path = share, excess, level, arc, queue, path
    flow.ptr, flow.neighbor, flow.half_edge = ptr, neighbor, half_edge
    with nogil:
        for e in range(n_edges):
            share[2 * e] = weight[e] // 2
            share[2 * e + 1] = weight[e] - weight[e] // 2
        for k in range(n_nodes):
            node = order[k]
            excess[node] = -unit
            if root < 0 or component[node] != component[root]:
                root = node
                excess[node] = 0
            for slot in range(ptr[node], ptr[node + 1]):
                excess[node] += share[half_edge[slot]]
        violated = flow.settle()
        for k in range(1, n_nodes):
            if violated >= 0:
                break
            root, node = order[k - 1], order[k]
            if component[node] == component[root]:
                excess[root] -= unit
                excess[node] += unit
                if not flow.move_room(node, root):
                    violated = node
    return violated


# Entries of the inverse of a sparse matrix, at the nonzero entries of its Cholesky factor -----------------------------


def selected_inverse(
    const int32_t[::1] indptr,  # IN (n + 1,) columns of L, lower triangular with unit diagonal
    const int32_t[::1] indices,  # IN (n_entries,) rows, ascending in a column, the diagonal first
    const double[::1] lower,  # IN (n_entries,)
    const double[::1] diagonal,  # IN (n,) D of A = L D L'
    double[::1] inverse,  # OUT (n_entries,) entries of the inverse of A at the places of L
    double[::1] total,  # workspace (n,), filled with 0
    int32_t[::1] column_of,  # workspace (n,), filled with -1
    double[::1] entry,  # workspace (n,)
):
    """Apply Takahashi's recurrence, from the last column to the first: Z = D^-1 L^-1 + (I - L') Z."""
    cdef:
        Py_ssize_t j, k, i, p, q, n = diagonal.shape[0]
        double value, own
    with nogil:
        for j in range(n - 1, -1, -1):
            for p in range(indptr[j] + 1, indptr[j + 1]):
                k = indices[p]
                column_of[k] = <int32_t> j
                entry[k] = lower[p]
                total[k] = 0.0
            for p in range(indptr[j] + 1, indptr[j + 1]):
                k = indices[p]
                own = entry[k]
                # Add the products with the diagonal entry of the inverse, then with each entry in a row of column j.
                # The inverse is symmetric, so such an entry is added to both totals.
                total[k] += own * inverse[indptr[k]]
                for q in range(indptr[k] + 1, indptr[k + 1]):
                    i = indices[q]
                    if column_of[i] == j:
                        value = inverse[q]
                        total[i] += own * value
                        total[k] += entry[i] * value
            value = 1.0 / diagonal[j]
            for p in range(indptr[j] + 1, indptr[j + 1]):
                k = indices[p]
                inverse[p] = -total[k]
                value += entry[k] * total[k]
            inverse[indptr[j]] = value


# Differences of the features at both ends of an edge, and weighted sums of them --------------------------------------


def weighted_differences(
    const floating[:, ::1] features,  # IN (N, F)
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,), or empty if there is one type
    const double[:, ::1] weights,  # IN (T, 1 + F)
    floating[::1] sums,  # OUT (E,)
):
    """Compute for each edge the weight of 1 plus the weighted absolute differences of its features."""
    cdef:
        Py_ssize_t edge, k, kind = 0
        const floating *tail
        const floating *head
        const double *weight
        double total
    with nogil:
        for edge in range(edges.shape[0]):
            if edge_type.shape[0]:
                kind = edge_type[edge]
            tail = &features[edges[edge, 0], 0]
            head = &features[edges[edge, 1], 0]
            weight = &weights[kind, 0]
            total = weight[0]
            for k in range(features.shape[1]):
                total += weight[k + 1] * fabs(<double> (tail[k] - head[k]))
            sums[edge] = <floating> total


def absolute_differences(
    const floating[:, ::1] features,  # IN (N, F)
    const int32_t[:, ::1] edges,  # IN (E, 2)
    floating[:, ::1] values,  # OUT (E, 1 + F)
):
    """Write 1 and the absolute feature differences of each edge; return whether all are finite."""
    cdef:
        Py_ssize_t edge, k
        const floating *tail
        const floating *head
        floating total = 0
    with nogil:
        for edge in range(edges.shape[0]):
            tail = &features[edges[edge, 0], 0]
            head = &features[edges[edge, 1], 0]
            values[edge, 0] = 1
            for k in range(features.shape[1]):
                values[edge, k + 1] = fabs(tail[k] - head[k])
                # 0, or NaN if a difference is not finite.
                total += 0 * values[edge, k + 1]
    return total == 0
