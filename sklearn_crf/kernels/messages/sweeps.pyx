"""Sweeps of messages over the edges of a model: sequential, fixed in number, to convergence and extrapolated."""

from cython cimport floating
from libc.math cimport INFINITY, isinf, log
from libc.stdint cimport int32_t, int64_t, uint8_t

from sklearn_crf.kernels.core.blas cimport blas
from sklearn_crf.kernels.core.dense_features cimport DenseFeatures
from sklearn_crf.kernels.core.pool cimport Threads, threads_of
from sklearn_crf.kernels.decoding cimport decode_in_order
from sklearn_crf.kernels.local.local_model cimport LocalModel, describe
from sklearn_crf.kernels.messages.field cimport Field, Workspace, open_field
from sklearn_crf.kernels.rows cimport exponentiate_all, sum_of_rows


# Sequential tree-reweighted max-product: one pass over the nodes in order, forwards or backwards.

cdef inline double take_out_best(floating* row, Py_ssize_t n) noexcept nogil:
    """Subtract the maximum of a row, unless it is -inf, and return it."""
    cdef:
        Py_ssize_t a
        floating top = -INFINITY
    for a in range(n):
        if row[a] > top:
            top = row[a]
    if top > -INFINITY:
        for a in range(n):
            row[a] -= top
    return top


cdef double pass_over_nodes(
    Field[floating]* f, Workspace[floating]* workspace, floating* values, const double* share, Py_ssize_t n_nodes,
    int direction
) noexcept nogil:
    """Run one pass over the nodes; return the sum of subtracted scores, -inf if no labeling is allowed."""
    cdef:
        Py_ssize_t i, s, t, q, a, n_other, W = f.width
        double bound = 0.0, best, shift = 0.0
        const floating* unary = f.unary
        floating* total = workspace.shifted
        floating* cavity = workspace.cavity
        floating* fresh = workspace.fresh
        floating* kept
    for i in range(n_nodes):
        s = i if direction > 0 else n_nodes - 1 - i
        sum_of_rows(unary + s * W, <const floating*> values, f.ptr[s], f.ptr[s + 1], f.ptr[s + 1], W, total)
        best = take_out_best(total, W)
        bound += best
        if best == -INFINITY:
            break
        for q in range(f.ptr[s], f.ptr[s + 1]):
            t = f.neighbor[q]
            if direction * (t - s) < 0:
                continue
            for a in range(W):
                # States that a message forbids stay forbidden; subtracting -inf would give +inf.
                if isinf(values[q * W + a]) or isinf(total[a]):
                    cavity[a] = -INFINITY
                else:
                    cavity[a] = <floating> (share[s] * total[a] - values[q * W + a])
            f.apply_factor(f.half_edge[q], <const floating*> cavity, f.states_of(s), fresh, workspace.factor, &shift)
            n_other = f.states_of(t)
            best = take_out_best(fresh, n_other)
            bound += best + shift
            if best == -INFINITY:
                break
            kept = values + <Py_ssize_t> f.reverse[q] * W
            for a in range(W):
                kept[a] = fresh[a] if a < n_other else -INFINITY
        if bound == -INFINITY:
            break
    return bound


cdef double score_in_order(
    Field[floating]* f, const floating* unary, const int32_t* labels, Py_ssize_t n_nodes
) noexcept nogil:
    """Return the score of a labeling."""
    cdef:
        Py_ssize_t s, q
        double total = 0.0
    for s in range(n_nodes):
        total += unary[s * f.width + labels[s]]
        for q in range(f.ptr[s], f.ptr[s + 1]):
            if f.neighbor[q] < s:
                total += f.pair_score(f.half_edge[q], labels[s], labels[f.neighbor[q]])
    return total


def sequential_pass(
    object field,  # IN arrays of the model, unary as scores
    floating[:, ::1] messages,  # INOUT (2E, width) by the slot of the receiving node
    const double[::1] share,  # IN (N,) one over the number of chains through each node
    int direction,  # 1: first to last node, messages to later nodes; -1: reversed
    double[::1] work,  # workspace
):
    """Update all messages of one direction; return the sum of subtracted scores, -inf if no labeling is allowed.

    After a pass in either direction, the sum is equal to the sum of the best scores of all chains. It is therefore an
    upper bound on the best score.
    """
    cdef:
        Field[floating] f
        Workspace[floating] workspace
        double bound
        floating* values = &messages[0, 0] if messages.shape[0] else NULL
    open_field(field, &f)
    workspace.open(f, &work[0])
    with nogil:
        bound = pass_over_nodes(&f, &workspace, values, &share[0], share.shape[0], direction)
    return bound


def sequential_iteration(
    object field,  # IN arrays of the model, unary as scores
    floating[:, ::1] messages,  # INOUT (2E, width) by the slot of the receiving node
    const double[::1] share,  # IN (N,) one over the number of chains through each node
    int32_t[::1] labels,  # OUT (N,) decoded node by node, each given earlier nodes
    double[::1] work,  # workspace
):
    """Run a pass in each direction and decode labels; return bound and score, both -inf if no labeling is allowed.

    A single call does all of this, so that the interpreter's lock is released most of the time even for small models.
    """
    cdef:
        Field[floating] f
        Workspace[floating] workspace
        Py_ssize_t n_nodes = share.shape[0]
        double bound, score = -INFINITY
        floating* values = &messages[0, 0] if messages.shape[0] else NULL
    open_field(field, &f)
    workspace.open(f, &work[0])
    with nogil:
        bound = pass_over_nodes(&f, &workspace, values, &share[0], n_nodes, 1)
        if bound > -INFINITY:
            bound = pass_over_nodes(&f, &workspace, values, &share[0], n_nodes, -1)
        if bound > -INFINITY:
            decode_in_order(&f, values, <const int32_t*> NULL, <const int32_t*> NULL, n_nodes, &labels[0], &work[0])
            score = score_in_order(&f, f.unary, &labels[0], n_nodes)
    return bound, score


# One pass over the nodes that lowers the bound of single edges: it redistributes node scores among the edges.
#
# Let m_q(a) be the log-message of edge q about state a of node s, if the edge is normalised alone. Edge q gets the
# share lambda_q of the scores u_s. With the optimal shares, the marginals of all edges of a node agree, also with the
# marginals of the node itself if its entropy has weight c:
#
#     lambda_q(a) = (u_s(a) + sum_r m_r(a)) / (d_s + c) - m_q(a)

cdef inline void share_of_edge(const double* total, const double* message, double parts, Py_ssize_t width,
                               double* share) noexcept nogil:
    """Compute the share of one edge in the scores of a node; -inf if an edge forbids the state."""
    cdef Py_ssize_t a
    for a in range(width):
        if isinf(total[a]):
            share[a] = -INFINITY
        else:
            share[a] = total[a] / parts - message[a]


def renew_messages(
    object field,  # IN arrays of the model, unary as scores
    double[:, ::1] messages,  # INOUT (2E, width) scores by the slot of the receiving node
    int direction,  # 1: first to last node, messages to later nodes; -1: reversed
    double node_number,  # c
    double[::1] work,  # workspace
):
    """Update all messages of one direction; return the largest change, or -1 - t if node t has no possible state."""
    cdef:
        Field[double] f
        Workspace[double] workspace
        Py_ssize_t i, s, t, q, n_nodes = field.unary.shape[0], W = field.width
        double parts, change, worst = 0.0
        double* values = &messages[0, 0] if messages.shape[0] else NULL
        double* total
    open_field(field, &f)
    workspace.open(f, &work[0])
    total = workspace.total
    with nogil:
        for i in range(n_nodes):
            s = i if direction > 0 else n_nodes - 1 - i
            parts = f.ptr[s + 1] - f.ptr[s] + node_number
            sum_of_rows(f.unary + s * W, <const double*> values, f.ptr[s], f.ptr[s + 1], f.ptr[s + 1],
                        W, total)
            for q in range(f.ptr[s], f.ptr[s + 1]):
                t = f.neighbor[q]
                if direction * (t - s) < 0:
                    continue
                share_of_edge(total, values + q * W, parts, W, workspace.cavity)
                change = f.replace_sums_in_scores(f.half_edge[q], workspace, values + <Py_ssize_t> f.reverse[q] * W,
                                                  f.states_of(s), f.states_of(t), 0.0, 1.0)
                if change < 0:
                    worst = -1.0 - t
                    break
                worst = change if change > worst else worst
            if worst < 0:
                break
    return worst


def shares_of_messages(
    object field,  # IN arrays of the model, unary as scores
    const double[:, ::1] messages,  # IN (2E, width)
    double[:, ::1] shares,  # OUT (2E, width) by the slot of the node whose scores are shared
    double node_number,  # c
    double[::1] work,  # workspace
):
    """Compute the share of each edge in the scores of its ends from the messages."""
    cdef:
        Field[double] f
        Workspace[double] workspace
        Py_ssize_t s, q, n_nodes = field.unary.shape[0], W = field.width
        const double* values = &messages[0, 0] if messages.shape[0] else NULL
        double* total
    open_field(field, &f)
    workspace.open(f, &work[0])
    total = workspace.total
    with nogil:
        for s in range(n_nodes):
            sum_of_rows(f.unary + s * W, values, f.ptr[s], f.ptr[s + 1], f.ptr[s + 1], W, total)
            for q in range(f.ptr[s], f.ptr[s + 1]):
                share_of_edge(total, values + q * W, f.ptr[s + 1] - f.ptr[s] + node_number, W, &shares[q, 0])


def normalise_edges(
    const double[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[::1] edge_type,  # IN (E,)
    const double[:, ::1] edge_weight,  # IN (E, R), or no rows if all are one
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const double[:, :, ::1] scores,  # IN (E, 2, K) share of each edge in the scores of its ends
    double[:, :, :, ::1] statistics,  # INOUT (T, R, K, K) summed edge weight * pairwise marginal
    double[:, :, ::1] at_ends,  # OUT (E, 2, K) marginals of the ends
    double[::1] log_z_terms,  # INOUT (N,) added to at the first end of each edge
    double[::1] joint,  # workspace (K * K + 1,)
):
    """Compute the marginals of every edge alone; return -1, or the first edge without a possible pair."""
    cdef:
        Py_ssize_t K = tables.shape[2], R = tables.shape[1], n = K * K, e, r, a, b, failed = -1
        Py_ssize_t kind
        double best, total, sum_of_row, weight
        const double* table
        double* pairs = &joint[0]
        double* row
    with nogil:
        for e in range(edge_type.shape[0]):
            kind = edge_type[e]
            for a in range(K):
                for b in range(K):
                    pairs[a * K + b] = scores[e, 0, a] + scores[e, 1, b]
            for r in range(R):
                table = &tables[kind, r, 0, 0]
                weight = edge_weight[e, r] if edge_weight.shape[0] else 1.0
                for a in range(n):
                    pairs[a] += weight * table[a]
            best = -INFINITY
            for a in range(n):
                best = pairs[a] if pairs[a] > best else best
            if best == -INFINITY:
                failed = e
                break
            for a in range(n):
                pairs[a] -= best
            # Rows of two numbers are exponentiated together.
            pairs[n] = 0.0
            exponentiate_all(pairs, n + n % 2)
            total = 0.0
            for b in range(K):
                at_ends[e, 1, b] = 0.0
            for a in range(K):
                row = pairs + a * K
                sum_of_row = 0.0
                for b in range(K):
                    sum_of_row += row[b]
                    at_ends[e, 1, b] += row[b]
                at_ends[e, 0, a] = sum_of_row
                total += sum_of_row
            log_z_terms[edges[e, 0]] += best + log(total)
            for a in range(K):
                at_ends[e, 0, a] /= total
                at_ends[e, 1, a] /= total
            for r in range(R):
                row = &statistics[kind, r, 0, 0]
                weight = (edge_weight[e, r] if edge_weight.shape[0] else 1.0) / total
                for a in range(n):
                    row[a] += weight * pairs[a]
    return failed


# Extrapolation of messages towards the fixed point of sweeps.

cdef extern from "messages/extrapolation.hpp" namespace "crf" nogil:
    cdef cppclass SweepPlan:
        int64_t n_combined, first, between
        double ridge, largest_growth

    void shares_of_products(const double*, int64_t, double, double*)

    cdef cppclass Extrapolation[Real]:
        Extrapolation(Real*, int64_t, int64_t, int64_t, int, SweepPlan) except +
        bint advance()


cdef class SweepExtrapolation:
    """History of the latest sweeps over an array of messages, which is modified in place."""

    cdef:
        Extrapolation[float]* single
        Extrapolation[double]* wide
        object _values

    def __dealloc__(self):
        del self.single
        del self.wide

    def advance(self):
        """Record the messages after a sweep, and extrapolate them every few sweeps; return whether they changed."""
        cdef bint changed
        with nogil:
            changed = self.single.advance() if self.single != NULL else self.wide.advance()
        return changed


def extrapolate(
    floating[:, ::1] values,  # INOUT (n, width) messages
    int64_t n_columns,
    int form,  # 0: log-odds, 1: probabilities, 2: scores
    tuple plan,  # the fields of SweepPlan
):
    """Return an extrapolation of sweeps that start from the given messages."""
    cdef:
        SweepExtrapolation made = SweepExtrapolation()
        SweepPlan as_kept
        int64_t n = values.shape[0], width = values.shape[1]
    as_kept.n_combined, as_kept.first, as_kept.between, as_kept.ridge, as_kept.largest_growth = plan
    made._values = values
    if floating is float:
        made.single = new Extrapolation[float](&values[0, 0], n, n_columns, width, form, as_kept)
    else:
        made.wide = new Extrapolation[double](&values[0, 0], n, n_columns, width, form, as_kept)
    return made


def shares_of_changes(
    const double[:, ::1] products,  # IN (m, m) inner products of the changes of m sweeps
    double ridge,
    double[::1] shares,  # OUT (m,)
):
    """Compute coefficients with sum 1 of the shortest combination of the changes."""
    shares_of_products(&products[0, 0], products.shape[0], ridge, &shares[0])


# Marginals after a fixed number of sweeps, their loss for given labels and its gradient, in one call.

cdef extern from "messages/fixed_sweeps.hpp" namespace "crf" nogil:
    cdef enum SweepLoss:
        pass

    cdef cppclass SweptLoss:
        SweepLoss loss
        int64_t n_sweeps
        const int32_t* nodes
        const int64_t* ranges
        const int64_t* blocks
        int64_t n_blocks
        const int32_t* labels
        const double* weight
        const double* cost
        const double* pair_cost
        const int32_t* pair_kind
        int64_t n_cost
        double* beliefs
        double* terms
        double* unary
        double* tables

    cdef cppclass SweptMessages[Real](SweptLoss):
        Field[Real] field
        const Real* scores
        const int32_t* rank
        int64_t n_slots, n_types, largest_degree
        Real* messages
        void run(const Threads&) except +

    cdef cppclass OddsTables[Real]:
        int64_t n_features
        const int32_t* edge_type
        const Real* tables
        const Real* edge_weight

    cdef cppclass SweptMeanField[Real](SweptLoss):
        LocalModel[Real] model
        int64_t n_nodes, n_types
        double* marginals
        const int32_t* rank
        void run(const Threads&) except +

cdef extern from "messages/swept_odds.hpp" namespace "crf" nogil:
    cdef cppclass SweptOdds[Real](SweptLoss):
        const int64_t* ptr
        const int32_t* neighbor
        const int32_t* half_edge
        const int32_t* reverse
        OddsTables[Real] of_edges
        const double* appearance
        const Real* scores
        const int32_t* rank
        int64_t n_nodes, n_edges, n_types
        void run(const Threads&) except +


cdef void open_loss(SweptLoss* swept, object how) except *:
    """Set the common arguments of both kinds of sweeps to the arrays of a SweepArguments."""
    cdef:
        const int32_t[::1] nodes = how.nodes, labels = how.labels, pair_kind = how.pair_kind
        const int64_t[:, ::1] ranges = how.ranges
        const int64_t[::1] blocks = how.blocks
        const double[::1] weight = how.weight
        const double[:, ::1] cost = how.cost
        const double[:, :, ::1] pair_cost = how.pair_cost
        double[:, ::1] beliefs = how.beliefs, unary = how.unary
        double[::1] terms = how.terms
        double[:, :, :, :, ::1] tables = how.tables
    swept.loss, swept.n_sweeps = <SweepLoss> <int> how.loss, how.n_sweeps
    swept.nodes, swept.ranges = &nodes[0], &ranges[0, 0]
    swept.blocks, swept.n_blocks = &blocks[0], blocks.shape[0] - 1
    swept.labels = &labels[0] if labels.shape[0] else NULL
    swept.weight = &weight[0] if weight.shape[0] else NULL
    swept.cost = &cost[0, 0] if cost.shape[0] else NULL
    swept.pair_cost = &pair_cost[0, 0, 0] if pair_cost.shape[0] else NULL
    swept.pair_kind = &pair_kind[0] if pair_kind.shape[0] else NULL
    swept.n_cost = pair_cost.shape[1]
    swept.beliefs = &beliefs[0, 0]
    swept.terms = &terms[0] if terms.shape[0] else NULL
    swept.unary = &unary[0, 0] if unary.shape[0] else NULL
    swept.tables = &tables[0, 0, 0, 0, 0]


def sweep_messages(
    object field,  # IN the fields of Field
    const floating[:, ::1] scores,  # IN (N, K) scores of nodes
    floating[:, :, ::1] messages,  # INOUT (n_kept, 2E, width) initial messages, and messages after each sweep
    object how,  # IN OUT the fields of SweepArguments
    int64_t largest_degree,
    int n_threads,
):
    """Run sweeps of belief propagation; if there is a loss, compute its gradient by backpropagation."""
    cdef:
        SweptMessages[floating] swept
        Threads threads = threads_of(n_threads)
        const int32_t[::1] rank = how.rank
    open_loss(&swept, how)
    open_field(field, &swept.field)
    swept.scores, swept.rank = &scores[0, 0], &rank[0]
    swept.n_slots, swept.n_types, swept.largest_degree = messages.shape[1], how.tables.shape[1], largest_degree
    swept.messages = &messages[0, 0, 0] if messages.shape[1] else NULL
    with nogil:
        swept.run(threads)


def sweep_odds(
    const floating[:, ::1] scores,  # IN (N, 2) scores of nodes, finite
    const floating[:, :, :, ::1] tables,  # IN (T, R, 2, 2), finite
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or empty: all are 1
    const double[::1] appearance,  # IN (E,) edge appearance probabilities, or empty: all are 1
    tuple incidence,  # IN the incidence of the graph
    object how,  # IN OUT the fields of SweepArguments
    int n_threads,
):
    """Run sweeps of belief propagation between nodes of two states; with a loss, compute its gradient as well."""
    cdef:
        SweptOdds[floating] swept
        Threads threads = threads_of(n_threads)
        const int64_t[::1] ptr
        const int32_t[::1] neighbor, half_edge, reverse, rank = how.rank
    ptr, neighbor, half_edge, reverse = incidence
    open_loss(&swept, how)
    swept.n_nodes, swept.n_edges, swept.n_types = scores.shape[0], edge_type.shape[0], tables.shape[0]
    swept.ptr, swept.scores, swept.rank = &ptr[0], &scores[0, 0], &rank[0]
    swept.neighbor = &neighbor[0] if swept.n_edges else NULL
    swept.half_edge = &half_edge[0] if swept.n_edges else NULL
    swept.reverse = &reverse[0] if swept.n_edges else NULL
    swept.of_edges.n_features = tables.shape[1]
    swept.of_edges.tables = &tables[0, 0, 0, 0] if tables.shape[0] and tables.shape[1] else NULL
    swept.of_edges.edge_type = &edge_type[0] if swept.n_edges else NULL
    swept.of_edges.edge_weight = &edge_weight[0, 0] if edge_weight.shape[0] and edge_weight.shape[1] else NULL
    swept.appearance = &appearance[0] if appearance.shape[0] else NULL
    with nogil:
        swept.run(threads)


def sweep_mean_field(
    const floating[:, ::1] unary,  # IN (N, K)
    edges,  # IN the fields of LocalEdges
    double[:, :, ::1] marginals,  # OUT (n_kept, N, K) initial marginals, and marginals after each sweep
    object how,  # IN OUT the fields of SweepArguments
    int n_threads,
):
    """Run sweeps of mean field; if there is a loss, compute its gradient by backpropagation."""
    cdef:
        SweptMeanField[floating] swept
        Threads threads = threads_of(n_threads)
        const int32_t[::1] rank = how.rank
    open_loss(&swept, how)
    describe(&swept.model, unary, edges)
    swept.n_nodes, swept.n_types = unary.shape[0], how.tables.shape[1]
    swept.marginals, swept.rank = &marginals[0, 0, 0], &rank[0]
    with nogil:
        swept.run(threads)


# Relaxed likelihood or marginals of graphs by tree-reweighted messages, in one call for all batches.

cdef extern from "messages/graph_risk.hpp" namespace "crf" nogil:
    cdef cppclass GraphBatch:
        pass
    cdef cppclass GraphExample:
        pass
    cdef cppclass GraphRisk[Real]:
        DenseFeatures[Real] features
        int64_t n_classes, n_types, n_features
        const Real* intercept
        const Real* tables
        bint is_potts
        const double* spread
        double largest_range, tol
        int64_t max_iter
        SweepPlan plan
        int64_t most_bytes
        const GraphBatch* batches
        int64_t n_batches
        const GraphExample* examples
        const double* weight
        const int64_t* blocks
        int64_t n_blocks
        double* sums
        unsigned char* failed
        int64_t n_sums()
        void run(const Threads&) except +


def risk_of_graphs(
    const int64_t[:, ::1] batches,  # IN (n_batches, 21) the fields of GraphBatch
    const int64_t[:, ::1] examples,  # IN (n_examples, 7) the fields of GraphExample
    const double[::1] weight,  # IN (n_examples,)
    const int64_t[::1] blocks,  # IN (n_blocks + 1,) first example of each block; a block lies within one batch
    int64_t n_classes,
    const floating[:, ::1] weights,  # IN (C, F) weights of features; C is 1 for two classes (score differences)
    const floating[::1] intercept,  # IN (C,) or empty
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    bint is_potts,  # whether all tables are Potts tables: one value on and one off the diagonal
    const double[:, ::1] spread,  # IN (T, R) range of the scores of each table
    double largest_range,  # largest score range of all messages to a node together
    double tol,
    int64_t max_iter,
    tuple plan,  # the fields of SweepPlan
    int64_t most_bytes,  # memory limit of extrapolations
    double[:, ::1] sums,  # OUT (n_blocks, S) loss, errors, gradients of intercepts, features and tables (T, R, K, K)
    uint8_t[::1] failed,  # OUT (n_examples,) whether messages did not converge, or the score range is too wide
    int n_threads,
):
    """Compute the loss and gradient of each block of examples, or marginals of graphs without labels.

    Sums of batches with failed examples, and marginals of failed examples, are undefined.
    """
    cdef:
        GraphRisk[floating] risk
        Threads threads = threads_of(n_threads)
    risk.features.n_features, risk.features.blas = weights.shape[1], &blas
    risk.features.weights = &weights[0, 0] if weights.shape[1] else NULL
    risk.n_classes, risk.n_types, risk.n_features = n_classes, tables.shape[0], tables.shape[1]
    risk.intercept = &intercept[0] if intercept.shape[0] else NULL
    risk.tables, risk.spread, risk.is_potts = &tables[0, 0, 0, 0], &spread[0, 0], is_potts
    risk.largest_range, risk.tol, risk.max_iter = largest_range, tol, max_iter
    risk.plan.n_combined, risk.plan.first, risk.plan.between, risk.plan.ridge, risk.plan.largest_growth = plan
    risk.most_bytes = most_bytes
    risk.batches, risk.n_batches = <const GraphBatch*> &batches[0, 0], batches.shape[0]
    risk.examples, risk.weight = <const GraphExample*> &examples[0, 0], &weight[0]
    risk.blocks, risk.n_blocks = &blocks[0], blocks.shape[0] - 1
    risk.sums, risk.failed = &sums[0, 0], &failed[0]
    with nogil:
        risk.run(threads)
