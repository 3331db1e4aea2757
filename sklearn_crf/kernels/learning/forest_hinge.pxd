"""Structured hinges with linear scores: the worst labeling of one forest or small graph, and its plane.

Weights are one vector of doubles: those of features by (node type, feature, column), so that all columns of a feature
lie side by side, those of the constant by (node type, column), those of tables by (edge type, edge feature, weight).
"""

from cython cimport floating
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t, int64_t


cdef struct Examples:
    Py_ssize_t n_states  # K
    Py_ssize_t n_columns  # 1 for two states, whose scores are -z / 2 and z / 2; else K
    Py_ssize_t n_features
    Py_ssize_t n_tables  # edge types times edge features
    Py_ssize_t n_edge_features
    Py_ssize_t n_table_weights
    Py_ssize_t intercept_at
    Py_ssize_t tables_at
    Py_ssize_t n_weights
    double constant  # 0 without intercepts
    const void* features  # (N, n_features) of floating
    const void* edge_weight  # (E, n_edge_features) of floating, or NULL: one
    const int32_t* node_type  # (N,) or NULL
    const int32_t* state_counts  # (N,) or NULL
    const int32_t* labels  # (N,)
    const int32_t* order  # (N,) every node after its parent, examples one after the other
    const int32_t* parent  # (N,) -1 at a root
    const int32_t* half_edge  # (N,) from the node to its parent
    const int32_t* has_cycles  # (m,) whether labelings of an example are enumerated
    const int64_t* earlier_ptr  # (N + 1,) edges of each node to nodes before it
    const int32_t* earlier  # (E,) half-edge from the node
    const int32_t* edges  # (E, 2)
    const int32_t* edge_type  # (E,)
    const int64_t* node_ptr  # (m + 1,)
    const int64_t* edge_ptr  # (m + 1,)
    const double* cost  # (K, K) of the true state, then the other
    const double* node_weight  # (N,) or NULL
    const double* weight  # (m,) factor of each hinge
    const int32_t* index  # (K, K) weight of each table entry
    const double* sign  # (K, K) its factor


cdef struct Workspace:
    double* scores  # (nodes of the largest example, K)
    double* tables  # (n_tables, 2, K, K) each also transposed
    double* mixed  # (2, K, K) of one edge
    double* best  # (K,)
    double* local  # (nodes of the largest example, K)
    double* partial  # (nodes of the largest example,)
    int32_t* found  # (nodes of the largest example,)
    int32_t* tried  # (nodes of the largest example,)
    int32_t* nonzero  # (n_features,) of one node


cdef inline void open_examples(object arrays, const floating[:, ::1] features, Examples* p) except *:
    """Addresses of the arrays, which the caller keeps alive."""
    cdef:
        const floating[:, ::1] edge_weight = arrays.edge_weight
        const int32_t[::1] node_type = arrays.node_type
        const int32_t[::1] state_counts = arrays.state_counts
        const int32_t[::1] labels = arrays.labels
        const int32_t[::1] order = arrays.order
        const int32_t[::1] parent = arrays.parent
        const int32_t[::1] half_edge = arrays.half_edge
        const int32_t[::1] has_cycles = arrays.has_cycles
        const int64_t[::1] earlier_ptr = arrays.earlier_ptr
        const int32_t[::1] earlier = arrays.earlier
        const int32_t[:, ::1] edges = arrays.edges
        const int32_t[::1] edge_type = arrays.edge_type
        const int64_t[::1] node_ptr = arrays.node_ptr
        const int64_t[::1] edge_ptr = arrays.edge_ptr
        const double[:, ::1] cost = arrays.cost
        const double[::1] node_weight = arrays.node_weight
        const double[::1] weight = arrays.weight
        const int32_t[:, ::1] index = arrays.index
        const double[:, ::1] sign = arrays.sign
    p.n_states = cost.shape[0]
    p.n_columns = arrays.n_columns
    p.n_features = features.shape[1]
    p.n_edge_features = arrays.n_edge_features
    p.n_tables = arrays.n_edge_types * p.n_edge_features
    p.n_table_weights = arrays.n_table_weights
    p.intercept_at = arrays.n_node_types * p.n_features * p.n_columns
    p.constant = arrays.constant
    p.tables_at = p.intercept_at + (arrays.n_node_types * p.n_columns if p.constant != 0 else 0)
    p.n_weights = p.tables_at + p.n_tables * p.n_table_weights
    p.features = &features[0, 0] if features.shape[0] * features.shape[1] else NULL
    p.edge_weight = &edge_weight[0, 0] if edge_weight.shape[0] * edge_weight.shape[1] else NULL
    p.node_type = &node_type[0] if node_type.shape[0] else NULL
    p.state_counts = &state_counts[0] if state_counts.shape[0] else NULL
    p.labels = &labels[0] if labels.shape[0] else NULL
    p.order = &order[0] if order.shape[0] else NULL
    p.parent = &parent[0] if parent.shape[0] else NULL
    p.half_edge = &half_edge[0] if half_edge.shape[0] else NULL
    p.has_cycles = &has_cycles[0] if has_cycles.shape[0] else NULL
    p.earlier_ptr = &earlier_ptr[0]
    p.earlier = &earlier[0] if earlier.shape[0] else NULL
    p.edges = &edges[0, 0] if edges.shape[0] else NULL
    p.edge_type = &edge_type[0] if edge_type.shape[0] else NULL
    p.node_ptr = &node_ptr[0]
    p.edge_ptr = &edge_ptr[0]
    p.cost = &cost[0, 0]
    p.node_weight = &node_weight[0] if node_weight.shape[0] else NULL
    p.weight = &weight[0] if weight.shape[0] else NULL
    p.index = &index[0, 0]
    p.sign = &sign[0, 0]


cdef inline void partition_workspace(const Examples* p, Py_ssize_t n_integers, double* work, int32_t* found,
                                     Workspace* workspace) noexcept nogil:
    cdef Py_ssize_t square = p.n_states * p.n_states, largest = (n_integers - p.n_features) // 2
    workspace.tables = work
    workspace.mixed = workspace.tables + 2 * p.n_tables * square
    workspace.best = workspace.mixed + 2 * square
    workspace.scores = workspace.best + p.n_states
    workspace.local = workspace.scores + largest * p.n_states
    workspace.partial = workspace.local + largest * p.n_states
    workspace.found = found
    workspace.tried = found + largest
    workspace.nonzero = workspace.tried + largest


cdef inline void expand_tables(const Examples* p, const double* x, Workspace* workspace) noexcept nogil:
    """Tables of weights, each also transposed."""
    cdef:
        Py_ssize_t K = p.n_states, k, a, b
        const double* weights
        double* table
    for k in range(p.n_tables):
        weights = x + p.tables_at + k * p.n_table_weights
        table = workspace.tables + 2 * k * K * K
        for a in range(K):
            for b in range(K):
                table[a * K + b] = p.sign[a * K + b] * weights[p.index[a * K + b]]
        for a in range(K):
            for b in range(K):
                table[(K + a) * K + b] = table[b * K + a]


cdef inline const double* table_towards(const Examples* p, int32_t half_edge, Workspace* workspace,
                                        floating* precision) noexcept nogil:
    """Scores (K, K) of an edge by the state of the end that a half-edge starts from, then the other's."""
    cdef:
        Py_ssize_t square = p.n_states * p.n_states, R = p.n_edge_features, edge = half_edge >> 1, r, i
        Py_ssize_t transposed = square * (half_edge & 1)
        const floating* weight
        const double* table = workspace.tables + 2 * p.edge_type[edge] * R * square
    if p.edge_weight == NULL:
        return table + transposed
    weight = (<const floating*> p.edge_weight) + edge * R
    for i in range(square):
        workspace.mixed[i] = 0.0
    for r in range(R):
        for i in range(square):
            workspace.mixed[i] += weight[r] * table[2 * r * square + transposed + i]
    return workspace.mixed


cdef inline void add_weighted_rows(const floating* factors, Py_ssize_t n, const double* rows, Py_ssize_t width,
                                   int32_t* nonzero, double* out) noexcept nogil:
    """Add rows (n, width) by factors, many of which may be 0, to ``out``: four rows at a time, which it waits for."""
    cdef:
        Py_ssize_t n_nonzero = 0, i, c
        const double* first
        const double* second
        const double* third
        const double* fourth
        double a, b, d, e
    for i in range(n):
        # Without a branch, which would go wrong as often as not.
        nonzero[n_nonzero] = <int32_t> i
        n_nonzero += fabs(factors[i]) > 0
    for i in range(n_nonzero // 4):
        first, second = rows + nonzero[4 * i] * width, rows + nonzero[4 * i + 1] * width
        third, fourth = rows + nonzero[4 * i + 2] * width, rows + nonzero[4 * i + 3] * width
        a, b = factors[nonzero[4 * i]], factors[nonzero[4 * i + 1]]
        d, e = factors[nonzero[4 * i + 2]], factors[nonzero[4 * i + 3]]
        for c in range(width):
            out[c] += (a * first[c] + b * second[c]) + (d * third[c] + e * fourth[c])
    for i in range(n_nonzero - n_nonzero % 4, n_nonzero):
        first, a = rows + nonzero[i] * width, factors[nonzero[i]]
        for c in range(width):
            out[c] += a * first[c]


cdef inline void score_states(const Examples* p, Py_ssize_t node, const double* x, int32_t* nonzero, double* scores,
                              floating* precision) noexcept nogil:
    """Score of each state of a node by its features alone."""
    cdef:
        Py_ssize_t C = p.n_columns, F = p.n_features, f, c, a
        Py_ssize_t kind = 0 if p.node_type == NULL else p.node_type[node]
        const floating* features = (<const floating*> p.features) + node * F
        const double* weights = x + kind * F * C
        double value
        double sums[4]
    for c in range(C):
        scores[c] = 0.0 if p.constant == 0 else p.constant * x[p.intercept_at + kind * C + c]
    if C == 1:
        # One sum alone would wait for each addition.
        sums[0] = sums[1] = sums[2] = sums[3] = 0.0
        for f in range(F // 4):
            for a in range(4):
                sums[a] += weights[4 * f + a] * features[4 * f + a]
        for f in range(F - F % 4, F):
            sums[0] += weights[f] * features[f]
        value = scores[0] + (sums[0] + sums[1]) + (sums[2] + sums[3])
        scores[0] = -0.5 * value
        scores[1] = 0.5 * value
    else:
        add_weighted_rows(features, F, weights, C, nonzero, scores)
    if p.state_counts != NULL:
        for a in range(p.state_counts[node], p.n_states):
            scores[a] = -INFINITY


cdef inline double most_violated(const Examples* p, Py_ssize_t i, const double* x, Workspace* workspace,
                                 floating* precision) noexcept nogil:
    """Labels of example i of the highest cost plus score, in ``workspace.found``; what that is above the true score."""
    cdef:
        Py_ssize_t K = p.n_states, first = p.node_ptr[i], s, k, a
        double value, total = 0.0
        const double* table
        const double* cost
        double* scores
    for s in range(first, p.node_ptr[i + 1]):
        scores = workspace.scores + (s - first) * K
        score_states(p, s, x, workspace.nonzero, scores, <floating*> NULL)
        total -= scores[p.labels[s]]
        cost = p.cost + p.labels[s] * K
        value = 1.0 if p.node_weight == NULL else p.node_weight[s]
        for a in range(K):
            scores[a] += value * cost[a]
    for k in range(p.edge_ptr[i], p.edge_ptr[i + 1]):
        table = table_towards(p, <int32_t> (2 * k), workspace, <floating*> NULL)
        total -= table[p.labels[p.edges[2 * k]] * K + p.labels[p.edges[2 * k + 1]]]
    if p.has_cycles[i]:
        return total + enumerate_labelings(p, i, workspace, <floating*> NULL)
    return total + pass_messages(p, i, workspace, <floating*> NULL)


cdef inline double enumerate_labelings(const Examples* p, Py_ssize_t i, Workspace* workspace,
                                       floating* precision) noexcept nogil:
    """The best of all labelings, node after node, by the scores of each state given those of the nodes before."""
    cdef:
        Py_ssize_t K = p.n_states, first = p.node_ptr[i], n_nodes = p.node_ptr[i + 1] - first, depth = 0, a, k, other
        int32_t half_edge
        double best = -INFINITY, value
        double* local
        const double* table
        bint fresh = True
    workspace.partial[0] = 0.0
    while depth >= 0:
        local = workspace.local + depth * K
        if fresh:
            workspace.tried[depth] = -1
            for a in range(K):
                local[a] = workspace.scores[depth * K + a]
            for k in range(p.earlier_ptr[first + depth], p.earlier_ptr[first + depth + 1]):
                half_edge = p.earlier[k]
                other = p.edges[2 * (half_edge >> 1) + 1 - (half_edge & 1)] - first
                table = table_towards(p, half_edge, workspace, <floating*> NULL) + workspace.tried[other]
                for a in range(K):
                    local[a] += table[a * K]
        workspace.tried[depth] += 1
        fresh = False
        if workspace.tried[depth] == K:
            depth -= 1
            continue
        value = workspace.partial[depth] + local[workspace.tried[depth]]
        if depth < n_nodes - 1:
            depth += 1
            workspace.partial[depth] = value
            fresh = True
        elif value > best:
            best = value
            for k in range(n_nodes):
                workspace.found[k] = workspace.tried[k]
    return best


cdef inline double pass_messages(const Examples* p, Py_ssize_t i, Workspace* workspace,
                                 floating* precision) noexcept nogil:
    """The best labeling of a forest, by messages of maxima from the leaves to the roots."""
    cdef:
        Py_ssize_t K = p.n_states, first = p.node_ptr[i], s, a, b, place
        int32_t parent, best
        double value, top, total = 0.0
        const double* table
        double* scores
        double* target
    for place in range(p.node_ptr[i + 1] - 1, first - 1, -1):
        s = p.order[place]
        parent = p.parent[s]
        if parent < 0:
            continue
        table = table_towards(p, p.half_edge[s], workspace, <floating*> NULL)
        scores = workspace.scores + (s - first) * K
        target = workspace.scores + (parent - first) * K
        for b in range(K):
            workspace.best[b] = -INFINITY
        for a in range(K):
            for b in range(K):
                value = scores[a] + table[a * K + b]
                workspace.best[b] = value if value > workspace.best[b] else workspace.best[b]
        for b in range(K):
            target[b] += workspace.best[b]
    for place in range(first, p.node_ptr[i + 1]):
        s = p.order[place]
        parent = p.parent[s]
        scores = workspace.scores + (s - first) * K
        if parent >= 0:
            table = table_towards(p, p.half_edge[s], workspace, <floating*> NULL) + workspace.found[parent - first]
        best = 0
        top = -INFINITY
        for a in range(K):
            value = scores[a] if parent < 0 else scores[a] + table[a * K]
            if value > top:
                top = value
                best = <int32_t> a
        workspace.found[s - first] = best
        if parent < 0:
            total += top
    return total


cdef inline double add_plane(const Examples* p, Py_ssize_t i, const Workspace* workspace, double* slope,
                             floating* precision) noexcept nogil:
    """Add the slope of the plane of the labels found of example i; the plane's offset."""
    cdef:
        Py_ssize_t K = p.n_states, C = p.n_columns, F = p.n_features, R = p.n_edge_features
        Py_ssize_t first = p.node_ptr[i], s, f, k, r, kind, tail, head, true_cell, cell
        int32_t truth, found
        double factor = p.weight[i], value, cost = 0.0
        const floating* features
        const floating* edge_weight = <const floating*> p.edge_weight
        double* part
    for s in range(first, p.node_ptr[i + 1]):
        truth, found = p.labels[s], workspace.found[s - first]
        if truth == found:
            continue
        cost += p.cost[truth * K + found] * (1.0 if p.node_weight == NULL else p.node_weight[s])
        kind = 0 if p.node_type == NULL else p.node_type[s]
        features = (<const floating*> p.features) + s * F
        part = slope + kind * F * C
        if C == 1:
            value = factor if found > truth else -factor
            for f in range(F):
                part[f] += value * features[f]
        else:
            for f in range(F):
                if features[f] != 0:
                    value = factor * features[f]
                    part[f * C + found] += value
                    part[f * C + truth] -= value
        if p.constant != 0:
            part = slope + p.intercept_at + kind * C
            if C == 1:
                part[0] += value * p.constant
            else:
                part[found] += factor * p.constant
                part[truth] -= factor * p.constant
    for k in range(p.edge_ptr[i], p.edge_ptr[i + 1]):
        tail, head = p.edges[2 * k], p.edges[2 * k + 1]
        true_cell = p.labels[tail] * K + p.labels[head]
        cell = workspace.found[tail - first] * K + workspace.found[head - first]
        if cell == true_cell:
            continue
        for r in range(R):
            value = factor if edge_weight == NULL else factor * edge_weight[k * R + r]
            part = slope + p.tables_at + (p.edge_type[k] * R + r) * p.n_table_weights
            part[p.index[cell]] += value * p.sign[cell]
            part[p.index[true_cell]] -= value * p.sign[true_cell]
    return factor * cost
