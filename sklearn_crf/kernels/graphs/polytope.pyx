"""Is a vector of edge weights in the forest polytope? By orientations of the edges (integers: nothing is rounded)."""

from libc.stdint cimport int32_t, int64_t


cdef class _Flow:
    """Edge weights shared out between the ends of the edges. It lives for one call of find_violation."""

    cdef:
        int64_t[::1] share  # what the end of each half-edge holds of the edge's weight
        int64_t[::1] excess  # what a node holds beyond its capacity; negative is room
        int32_t[::1] level  # steps to the nearest sink along edges that can pass weight on, -1 unknown
        int64_t[::1] arc  # next slot to try
        int32_t[::1] queue
        int32_t[::1] path  # nodes from the source down
        const int64_t[::1] ptr
        const int32_t[::1] neighbor
        const int32_t[::1] half_edge

    cdef Py_ssize_t find_levels(self, Py_ssize_t n_sinks, Py_ssize_t goal) noexcept nogil:
        """Breadth-first from the sinks in queue[:n_sinks], up to node `goal` if it is one; number of nodes reached."""
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
        """Whether the slot that the node tries leads one level down and can pass weight on."""
        cdef int64_t slot = self.arc[node]
        return (
            self.level[node] > 0
            and self.level[self.neighbor[slot]] == self.level[node] - 1
            and self.share[self.half_edge[slot]] > 0
        )

    cdef void augment(self, int32_t sink, int32_t depth) noexcept nogil:
        """Pass as much as can go from the start of the path to its end."""
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
        """Pass the excess of a node on to the sinks, down the levels; what is left of it."""
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
        """Pass on excess until no node has any; -1, or a node that cannot get rid of its own."""
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
        """Pass the excess of `source` on, to `sink` if possible; whether all of it went."""
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
        """Pass excess of `source` on to the nearest node that has room; whether there is one."""
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
    const int32_t[::1] order,  # IN (N,) nodes, those of one component together
    const int32_t[::1] component,  # IN (N,)
    const int64_t[::1] weight,  # IN (E,) edge weights times `unit`
    int64_t unit,  # one, scaled
    int64_t[::1] share,  # workspace (2E,)
    int64_t[::1] excess,  # workspace (N,)
    int32_t[::1] level,  # workspace (N,)
    int64_t[::1] arc,  # workspace (N,)
    int32_t[::1] queue,  # workspace (N,)
    int32_t[::1] path,  # workspace (N,)
):
    """A node of a set S of nodes in which the edges weigh more than |S| - 1, or -1 if there is no such set.

    The weights are in the forest polytope if and only if, for every root of a component, each edge can share its
    weight out between its ends so that no node gets more than one and the root nothing (Hakimi 1965). From one root to
    the next, one unit of weight has to move.
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
