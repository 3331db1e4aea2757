"""Objectives of learning: pairs of features, pseudolikelihood, contrastive sets and margins of forests."""

from cython cimport floating
from libc.math cimport INFINITY, exp, log
from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t

from sklearn_crf.kernels.core.blas cimport blas
from sklearn_crf.kernels.core.dense_features cimport DenseFeatures
from sklearn_crf.kernels.core.pair_weights cimport PairWeights
from sklearn_crf.kernels.core.pool cimport Threads, threads_of
from sklearn_crf.kernels.local.local_model cimport FORBIDDEN_PAIR, LocalModel, describe


# Products of sparse features with weights of (feature, column of scores) pairs, and their adjoint.
#
# Features are stored by column for a group of nodes, and only features that occur are stored. Weights are then read in
# order, and the data of the group stay in the cache.

cdef extern from "weight_rows.hpp" namespace "crf" nogil:
    void sum_weighted_rows(const double*, const int32_t*, const double*, Py_ssize_t, Py_ssize_t, double*)
    void add_to_rows(double*, const int32_t*, Py_ssize_t, Py_ssize_t, const double*)


def pair_scores(
    const int32_t[::1] feature,  # IN (n,) features that occur, ascending
    const int32_t[::1] ptr,  # IN (n + 1,)
    const int32_t[::1] node,  # IN (nnz,)
    const floating[::1] value,  # IN (nnz,), or (0,) if every value is one
    const int64_t[::1] pair_ptr,  # IN (F + 1,) first pair of each feature
    const int32_t[::1] pair_column,  # IN (P,) column of each pair, ascending for each feature
    const double[::1] weights,  # IN (P,)
    double[:, ::1] scores,  # IN OUT (N, n_columns), added to
    double[::1] work,  # workspace (n_columns,)
):
    """Add the weights of the features of each node to its scores."""
    cdef:
        bint weighted = value.shape[0] > 0
        Py_ssize_t n_columns = scores.shape[1]
        Py_ssize_t i, k, q
        int64_t p, first, last
        double x = 1.0
        double* row
        double* dense = &work[0]
        double* all_scores = &scores[0, 0] if scores.shape[0] else NULL
    with nogil:
        for i in range(feature.shape[0]):
            first, last = pair_ptr[feature[i]], pair_ptr[feature[i] + 1]
            if 3 * (last - first) > n_columns:  # whole rows are faster than picking a third of their numbers
                for k in range(n_columns):
                    dense[k] = 0.0
                for p in range(first, last):
                    dense[pair_column[p]] = weights[p]
                if not weighted:
                    add_to_rows(all_scores, &node[ptr[i]], ptr[i + 1] - ptr[i], n_columns, dense)
                    continue
                for q in range(ptr[i], ptr[i + 1]):
                    row = all_scores + node[q] * n_columns
                    x = value[q]
                    for k in range(n_columns):
                        row[k] += x * dense[k]
            else:
                for q in range(ptr[i], ptr[i + 1]):
                    row = all_scores + node[q] * n_columns
                    if weighted:
                        x = value[q]
                    for p in range(first, last):
                        row[pair_column[p]] += x * weights[p]


def pair_scores_of_rows(
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] feature,  # IN (nnz,) features of the nodes, node by node
    const floating[::1] value,  # IN (nnz,)
    const int64_t[::1] pair_ptr,  # IN (F + 1,) first pair of each feature
    const int32_t[::1] pair_column,  # IN (P,) column of each pair, ascending for each feature
    const double[::1] weights,  # IN (P,)
    double[:, ::1] scores,  # IN OUT (N, n_columns), added to
):
    """Add the weights of features stored by node to the scores; faster if features are read once."""
    cdef:
        Py_ssize_t s
        PairWeights[floating] pairs
    pairs.n_columns, pairs.ptr = scores.shape[1], &pair_ptr[0]
    pairs.column = &pair_column[0] if weights.shape[0] else NULL
    pairs.weights = &weights[0] if weights.shape[0] else NULL
    with nogil:
        for s in range(scores.shape[0]):
            if ptr[s] < ptr[s + 1]:
                pairs.add_scores(&feature[ptr[s]], &value[ptr[s]], ptr[s + 1] - ptr[s], &scores[s, 0])


def pair_gradient(
    const int32_t[::1] feature,  # IN (n,)
    const int32_t[::1] ptr,  # IN (n + 1,)
    const int32_t[::1] node,  # IN (nnz,)
    const floating[::1] value,  # IN (nnz,), or (0,) if every value is one
    Py_ssize_t start,
    Py_ssize_t stop,  # entries start to stop - 1 of feature
    const int64_t[::1] pair_ptr,  # IN (F + 1,)
    const int32_t[::1] pair_column,  # IN (P,)
    const double[:, ::1] statistics,  # IN (N, n_columns)
    double[::1] gradient,  # IN OUT (P,), added to
    double[::1] work,  # workspace (n_columns,)
):
    """Add the statistics of nodes to the gradients of their features, for each stored pair."""
    cdef:
        bint weighted = value.shape[0] > 0
        Py_ssize_t n_columns = statistics.shape[1]
        Py_ssize_t i, k, q
        int64_t p, first, last
        double x = 1.0
        const double* row
        const double* all_statistics = &statistics[0, 0] if statistics.shape[0] else NULL
        double* sums = &work[0]
    with nogil:
        for i in range(start, stop):
            first, last = pair_ptr[feature[i]], pair_ptr[feature[i] + 1]
            if 3 * (last - first) > n_columns:
                if weighted:
                    for k in range(n_columns):
                        sums[k] = 0.0
                    for q in range(ptr[i], ptr[i + 1]):
                        row = all_statistics + node[q] * n_columns
                        x = value[q]
                        for k in range(n_columns):
                            sums[k] += x * row[k]
                else:
                    sum_weighted_rows(all_statistics, &node[ptr[i]], NULL, ptr[i + 1] - ptr[i], n_columns, sums)
                for p in range(first, last):
                    gradient[p] += sums[pair_column[p]]
            else:
                for q in range(ptr[i], ptr[i + 1]):
                    row = all_statistics + node[q] * n_columns
                    if weighted:
                        x = value[q]
                    for p in range(first, last):
                        gradient[p] += x * row[pair_column[p]]


# Pseudolikelihood: conditionals of nodes given the true labels of their neighbours, and gradients.

def pseudolikelihood_range(
    Py_ssize_t start,
    Py_ssize_t stop,
    const floating[:, ::1] unary,  # IN (N, K)
    edges,  # IN the fields of LocalEdges
    const int32_t[::1] labels,  # IN (N,)
    const double[::1] node_weight,  # IN (N,) or empty for ones
    double[::1] scores,  # workspace (K,)
    double[::1] terms,  # OUT (N,) -log p(label | labels of the neighbours)
    floating[:, ::1] unary_gradient,  # OUT (N, K)
    double[:, :, :, ::1] pairs,  # IN OUT (T, R, K, K) gradient of the tables, added to
):
    """Compute the loss and gradient of nodes start to stop - 1."""
    cdef:
        Py_ssize_t node, k
        double weight = 1, own, log_z
        LocalModel[floating] model
    describe(&model, unary, edges)
    with nogil:
        for node in range(start, stop):
            model.scores_given_labels(node, &labels[0], &scores[0])
            own = scores[labels[node]]
            log_z = model.normalize(&scores[0])
            # Half the penalty of a violation separates violations from all finite scores.
            terms[node] = log_z - own if own > 0.5 * FORBIDDEN_PAIR else INFINITY
            scores[labels[node]] -= 1
            if node_weight.shape[0]:
                weight = node_weight[node]
            for k in range(scores.shape[0]):
                unary_gradient[node, k] = <floating> (weight * scores[k])
            if weight != 0:
                model.add_pairs(node, &labels[0], &scores[0], weight, &pairs[0, 0, 0, 0])


def count_neighbours(
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,) or empty: 0 everywhere
    const int32_t[::1] labels,  # IN (N,)
    const floating[:, ::1] features,  # IN (E, R), or no rows: a single feature of 1
    double[:, :, :, :, ::1] counts,  # INOUT (N, T, R, 2, K) added to
):
    """Sum the edge features at each node, by the label of the neighbour and the end of the edge."""
    cdef:
        Py_ssize_t e, r, t = 0
        Py_ssize_t n_features = counts.shape[2], n_classes = counts.shape[4]
        int end
        bint has_types = edge_type.shape[0] > 0, has_features = features.shape[0] > 0
        double* row
    with nogil:
        for e in range(edges.shape[0]):
            if has_types:
                t = edge_type[e]
            for end in range(2):
                row = &counts[edges[e, end], t, 0, end, labels[edges[e, 1 - end]]]
                for r in range(n_features):
                    row[2 * n_classes * r] += features[e, r] if has_features else 1.0


# Losses of single nodes with dense features and their gradient, in one call for all batches.

cdef extern from "nodes.hpp" namespace "crf" nogil:
    cdef cppclass RowFeatures[Real]:
        int64_t width
        const double* weights
        DenseFeatures[Real] matrix
    cdef cppclass NodeBlock:
        pass
    cdef cppclass NodeRisk[Real]:
        RowFeatures[Real] features, neighbours
        int64_t n_classes
        const double* intercept
        const NodeBlock* blocks
        const int64_t* parts
        int64_t n_parts
        int64_t n_sums()
        void run(double*, const Threads&) except +


def losses_of_nodes(
    const int64_t[:, ::1] blocks,  # IN (n_blocks, 5) addresses of features (n, F), of sums over neighbours (n, M), of
    # labels (n,) int32 and of weights (n,) or 0, and n
    const int64_t[::1] parts,  # IN (n_parts + 1,) first block of each part
    int64_t n_classes,
    const double[:, ::1] weights,  # IN (C, F) weights of features; C is 1 for two classes (score differences)
    const floating[:, ::1] rounded,  # IN (C, F) weights in the precision of features
    const double[:, ::1] of_neighbours,  # IN (C, M)
    const floating[:, ::1] neighbours_rounded,  # IN (C, M)
    const double[::1] intercept,  # IN (C,) or empty
    double[::1] sums,  # OUT loss, weight of wrong labels, gradients (C, F), (C, M) and (C,)
    int n_threads,
):
    """Compute the loss and gradient, summed over the nodes of all blocks."""
    cdef:
        Threads threads = threads_of(n_threads)
        NodeRisk[floating] risk
    open_features(&risk.features, weights, rounded)
    open_features(&risk.neighbours, of_neighbours, neighbours_rounded)
    risk.n_classes, risk.n_parts = n_classes, parts.shape[0] - 1
    risk.intercept = &intercept[0] if intercept.shape[0] else NULL
    risk.blocks = <const NodeBlock*> &blocks[0, 0] if blocks.shape[0] else NULL
    risk.parts = &parts[0]
    sums[:] = 0
    with nogil:
        risk.run(&sums[0], threads)


cdef open_features(RowFeatures[floating]* features, const double[:, ::1] weights, const floating[:, ::1] rounded):
    features.width = weights.shape[1]
    features.weights = &weights[0, 0] if weights.shape[1] else NULL
    features.matrix.n_features = weights.shape[1]
    features.matrix.weights = &rounded[0, 0] if rounded.shape[1] else NULL
    features.matrix.blas = &blas


# Scores of stored assignments relative to the true assignment, their probabilities, and the gradients.
#
# An assignment is stored by its differences from the truth: indices ``node * K + state`` of the changed states, and the
# difference in the use of each entry of the flat tables. ``ptr`` has the first entry of each assignment.

ctypedef fused node_code:
    uint16_t
    uint32_t

ctypedef fused pair_code:
    uint16_t
    uint32_t

ctypedef fused change:
    int16_t
    float
    double


def node_gains(
    const node_code[::1] codes,
    const int64_t[::1] ptr,
    const double[::1] unary_gain,  # IN (N * K,) score of each state minus the score of the true state
    double[::1] gains,  # OUT (m,) node score of each assignment minus the node score of the truth
):
    """Score the changed nodes of every assignment."""
    cdef:
        Py_ssize_t a
        int64_t c, stop
        double even, odd
    with nogil:
        for a in range(gains.shape[0]):
            # Two sums, since each addition waits for the previous addition.
            even = odd = 0.0
            c = ptr[a]
            stop = ptr[a + 1]
            while c + 1 < stop:
                even += unary_gain[codes[c]]
                odd += unary_gain[codes[c + 1]]
                c += 2
            if c < stop:
                even += unary_gain[codes[c]]
            gains[a] = even + odd


def add_node_changes(
    const node_code[::1] codes,
    const int64_t[::1] ptr,
    const double[::1] share,  # IN (m,) weight of each assignment
    double[::1] unary,  # IN OUT (N * K,) without the true states
):
    """Add up the changed states of assignments by weight: the adjoint of scoring them."""
    cdef:
        Py_ssize_t a
        int64_t c
    with nogil:
        for a in range(share.shape[0]):
            if share[a] == 0:
                continue
            for c in range(ptr[a], ptr[a + 1]):
                unary[codes[c]] += share[a]


def list_pair_changes(
    const int64_t[::1] nodes,  # IN changed nodes of every assignment
    const int32_t[::1] states,  # IN new states of these nodes
    const int64_t[::1] ptr,  # IN (m + 1,)
    const int32_t[::1] truth,  # IN (N,)
    int32_t[::1] labels,  # IN OUT (N,) equal to the truth, restored before return
    const int64_t[::1] node_ptr,  # IN incidence of the graph
    const int32_t[::1] neighbor,
    const int32_t[::1] half_edge,
    const int32_t[::1] edge_type,
    const double[:, ::1] edge_weight,  # IN (E, R)
    Py_ssize_t n_columns,
    double[::1] total,  # workspace (n_cells,) of zeros, restored before return
    int64_t[::1] last_row,  # workspace (n_cells,) of -1
    int64_t[::1] counts,  # OUT (m,) number of entries of each assignment
    int64_t[::1] cells,  # OUT entries of the tables whose use differs from the truth
    double[::1] changes,  # OUT differences in use, weighted by edge weights
):
    """Compute the changes of the table statistics of assignments; return the number of entries."""
    cdef:
        Py_ssize_t a, feature
        Py_ssize_t n_features = edge_weight.shape[1]
        int64_t c, slot, edge, first, begin, n_found, n_entries = 0
        int32_t node, other
        int side
    with nogil:
        for a in range(counts.shape[0]):
            for c in range(ptr[a], ptr[a + 1]):
                labels[nodes[c]] = states[c]
            begin = n_found = n_entries
            for c in range(ptr[a], ptr[a + 1]):
                node = <int32_t> nodes[c]
                for slot in range(node_ptr[node], node_ptr[node + 1]):
                    other = neighbor[slot]
                    side = half_edge[slot] & 1
                    # An edge between two changed nodes is visited from both ends, but counted only at its tail.
                    if side and labels[other] != truth[other]:
                        continue
                    edge = half_edge[slot] >> 1
                    for feature in range(n_features):
                        first = (edge_type[edge] * n_features + feature) * n_columns * n_columns
                        n_found = _count(
                            first + _pair(labels, node, other, side, n_columns), edge_weight[edge, feature],
                            a, total, last_row, cells, n_found,
                        )
                        n_found = _count(
                            first + _pair(truth, node, other, side, n_columns), -edge_weight[edge, feature],
                            a, total, last_row, cells, n_found,
                        )
            for c in range(begin, n_found):
                # Skip entries whose changes cancel.
                if total[cells[c]] != 0:
                    changes[n_entries] = total[cells[c]]
                    total[cells[c]] = 0
                    cells[n_entries] = cells[c]
                    n_entries += 1
            counts[a] = n_entries - begin
            for c in range(ptr[a], ptr[a + 1]):
                labels[nodes[c]] = truth[nodes[c]]
    return n_entries


cdef inline int64_t _pair(
    const int32_t[::1] labels, int32_t node, int32_t other, int side, Py_ssize_t n_columns
) noexcept nogil:
    """Return the index of a table entry by the states of tail and head."""
    if side:
        return labels[other] * n_columns + labels[node]
    return labels[node] * n_columns + labels[other]


cdef inline int64_t _count(
    int64_t cell, double weight, int64_t row, double[::1] total, int64_t[::1] last_row, int64_t[::1] cells,
    int64_t n_found,
) noexcept nogil:
    """Add a weight to an entry, and list the entry the first time the row uses it."""
    if last_row[cell] != row:
        last_row[cell] = row
        cells[n_found] = cell
        n_found += 1
    total[cell] += weight
    return n_found


def add_pair_gains(
    const pair_code[::1] codes,
    const change[::1] changes,
    const int64_t[::1] ptr,
    const double[::1] tables,  # IN (n_cells,)
    double[::1] gains,  # IN OUT (m,)
):
    """Add the score differences of assignments from table entries."""
    cdef:
        Py_ssize_t a
        int64_t c
        double total
    with nogil:
        for a in range(gains.shape[0]):
            total = 0.0
            for c in range(ptr[a], ptr[a + 1]):
                total += changes[c] * tables[codes[c]]
            gains[a] += total


def add_pair_changes(
    const pair_code[::1] codes,
    const change[::1] changes,
    const int64_t[::1] ptr,
    const double[::1] share,  # IN (m,)
    double[::1] tables,  # IN OUT (n_cells,)
):
    """Add up the table entries of assignments by weight: the adjoint of scoring them."""
    cdef:
        Py_ssize_t a
        int64_t c
    with nogil:
        for a in range(share.shape[0]):
            if share[a] == 0:
                continue
            for c in range(ptr[a], ptr[a + 1]):
                tables[codes[c]] += share[a] * changes[c]


def normalize_sets(
    const int32_t[::1] set_of,  # IN (m,)
    const double[::1] set_weight,  # IN (n_sets,)
    double[::1] gains,  # IN OUT (m,) replaced by the weight of the set times the probability within the set
    double[::1] largest,  # workspace (n_sets,)
    double[::1] losses,  # OUT (n_sets,) the weight times -log of the truth's probability within the set
):
    """Compute the probability of each assignment within its set, which includes the truth with gain zero."""
    cdef:
        Py_ssize_t a
        int32_t j
    with nogil:
        for j in range(losses.shape[0]):
            largest[j] = 0.0
        for a in range(gains.shape[0]):
            j = set_of[a]
            if gains[a] > largest[j]:
                largest[j] = gains[a]
        for j in range(losses.shape[0]):
            losses[j] = exp(-largest[j])
        for a in range(gains.shape[0]):
            j = set_of[a]
            gains[a] = exp(gains[a] - largest[j])
            losses[j] += gains[a]
        for a in range(gains.shape[0]):
            j = set_of[a]
            gains[a] *= set_weight[j] / losses[j]
        for j in range(losses.shape[0]):
            losses[j] = set_weight[j] * (largest[j] + log(losses[j]))


# Structured hinge losses of forests and small graphs with linear scores: values, planes and Frank-Wolfe passes.

cdef extern from "frank_wolfe.hpp" namespace "crf" nogil:
    cdef cppclass HingeExamples[Real]:
        pass

    cdef cppclass HingeBatches[Real]:
        const HingeExamples[Real]* batches
        int64_t n_batches

    cdef cppclass HingePart:
        pass

    cdef cppclass HingeDual:
        const int64_t* first_members
        const int64_t* first_nodes
        double* offsets
        double* slopes
        double* shares
        const int64_t* row_ptr
        int64_t* row_sizes
        int32_t* row_index
        double* row_values
        double* x
        double* lag
        double* free
        const int32_t* bounded
        int64_t n_bounded
        int64_t most_features

    void add_planes[Real](const HingeBatches[Real]&, const HingePart*, int64_t, const double*, double*, double*,
                          const Threads&) except +*
    int64_t make_steps[Real](const HingeBatches[Real]&, const HingeDual&, const int32_t*, int64_t, int64_t, int64_t,
                             int64_t, const Threads&, double&, double&) except +*


def sum_planes(
    const int64_t[:, ::1] batches,  # IN (n_batches, 33) the fields of HingeExamples
    const floating[::1] precision,  # IN any array in the precision of features
    const int64_t[:, ::1] parts,  # IN (P, 3) the fields of HingePart
    const double[::1] x,  # IN (n,) weights
    double[:, ::1] slopes,  # IN OUT (P, n) added to, or (P, 0) if not requested
    double[:, ::1] sums,  # OUT (P, 2) values and offsets
    int n_threads,
):
    """Sum the tangent planes at x of the hinges of each part."""
    cdef:
        HingeBatches[floating] hinges
        Threads threads = threads_of(n_threads)
        double* all_slopes = &slopes[0, 0] if slopes.shape[1] else NULL
    hinges.batches, hinges.n_batches = <const HingeExamples[floating]*> &batches[0, 0], batches.shape[0]
    with nogil:
        add_planes(hinges, <const HingePart*> &parts[0, 0], parts.shape[0], &x[0], all_slopes, &sums[0, 0], threads)


def frank_wolfe_steps(
    const int64_t[:, ::1] batches,  # IN (n_batches, 33) the fields of HingeExamples
    const floating[::1] precision,  # IN any array in the precision of features
    const int32_t[::1] members,  # IN examples in the order of their steps, numbered through all batches
    const int64_t[:, ::1] first,  # IN (2, n_batches + 1) first example and first node of each batch
    double[::1] offsets,  # IN OUT (m,) of the combined planes
    double[:, ::1] slopes,  # IN OUT (m, n) of the combined planes; (m, 0) for sparse features
    double[:, ::1] shares,  # IN OUT (N, K) share of each state at each node; (0, 0) for dense features
    rows,  # IN OUT table weights of each example with sparse features
    double[::1] x,  # IN OUT (n,) minus the sum of all slopes, projected
    double[::1] lag,  # IN OUT (n,) lag of the mean of x, see Group::run
    double[::1] free,  # IN OUT (n_bounded,) bounded entries of x before they are projected
    const int32_t[::1] bounded,  # IN (n_bounded,) entries of x that must not be negative
    int64_t most_features,  # largest number of sparse features of an example
    int64_t n_before,  # number of steps made before
    int64_t group,  # number of examples of the first group, which make their steps together
    int64_t largest,  # largest number of examples of a group
    int n_threads,
):
    """Make one step for each example; return the changes of offsets and of slacks, summed, and the next group size."""
    cdef:
        HingeBatches[floating] hinges
        HingeDual dual
        Threads threads = threads_of(n_threads)
        const int64_t[::1] row_ptr = rows.ptr
        int64_t[::1] row_sizes = rows.sizes
        int32_t[::1] row_index = rows.index
        double[::1] row_values = rows.values
        double gained = 0.0, slack = 0.0
    hinges.batches, hinges.n_batches = <const HingeExamples[floating]*> &batches[0, 0], batches.shape[0]
    dual.first_members, dual.first_nodes, dual.offsets = &first[0, 0], &first[1, 0], &offsets[0]
    dual.x, dual.lag, dual.n_bounded = &x[0], &lag[0], bounded.shape[0]
    if shares.shape[0]:
        dual.shares = &shares[0, 0]
        dual.row_ptr, dual.row_sizes, dual.row_index = &row_ptr[0], &row_sizes[0], &row_index[0]
        dual.row_values = &row_values[0]
    else:
        dual.slopes = &slopes[0, 0]
    if bounded.shape[0]:
        dual.free, dual.bounded = &free[0], &bounded[0]
    dual.most_features = most_features
    with nogil:
        group = make_steps(hinges, dual, &members[0], members.shape[0], n_before, group, largest, threads, gained,
                           slack)
    return gained, slack, group
