"""Maximum flows on lattices and graphs, and minimum cuts of small lattices."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uint8_t

from sklearn_crf.kernels.core.blas cimport blas
from sklearn_crf.kernels.core.dense_features cimport DenseFeatures
from sklearn_crf.kernels.core.pool cimport Threads, threads_of
from sklearn_crf.kernels.cuts.binary_edge cimport Choice, EdgeScores, LatticeShape, Rounding, capacity, edge_scores
from sklearn_crf.kernels.cuts.flow cimport (
    Box,
    Buffers,
    flow_along_lines,
    open_box,
    open_lattice,
    run_heights,
    run_lattice,
    run_mirrored,
    run_slots,
    spread,
)


# Maximum flow on lattices without stored arcs, on general graphs, and on graphs joined to their mirror image.

def lattice_flow(
    capacity[:, ::1] residual,  # IN/OUT (guard + N + guard, D) by node and direction; 0 if an arc leaves the lattice
    capacity[::1] excess,  # IN/OUT (N,) supply > 0, demand < 0
    const int64_t[::1] delta,  # IN (D,) step of each direction in the numbering of nodes, delta[D - 1 - k] = -delta[k]
    const int64_t[::1] shape,  # IN lengths of the axes
    const int64_t[:, ::1] box,  # IN (2, n_axes) part to solve: low <= coordinate < high
    int32_t[::1] label,  # IN/OUT (guard + N + guard,) 0 in the guards; negative: can reach demand
    uint8_t[::1] parent,  # workspace (guard + N + guard,)
    uint8_t[::1] flag,  # workspace (N,)
    int32_t[::1] next_,  # workspace (N,)
    int32_t[:, ::1] lists,  # workspace (4, nodes in the box), not shared with other calls
    int32_t[::1] bucket,  # workspace (nodes in the box + 4,), not shared with other calls
    int64_t[::1] progress,  # IN/OUT (8,) state between calls, initially zeros
    int64_t max_work,  # IN approximate number of node visits before returning
):
    """Send flow from supply to demand in a box without capacity at its border; return whether it is maximal."""
    cdef:
        Buffers[capacity] buffers
        Box part
        int axis
        int64_t size = 1, guard = (residual.shape[0] - excess.shape[0]) // 2
        bint done
    open_lattice(&buffers, residual, excess, label, parent, flag, next_, lists, bucket)
    part = open_box(shape, box)
    for axis in range(part.n_axes):
        size *= part.high[axis] - part.low[axis]
    with nogil:
        done = run_lattice(
            buffers, &delta[0], <int> residual.shape[1], guard, part, size, &progress[0], max_work
        )
    return done


def flow_by_heights(
    capacity[:, ::1] residual,  # IN/OUT (guard + N + guard, D)
    capacity[::1] excess,  # IN/OUT (N,)
    const int64_t[::1] delta,  # IN (D,)
    int32_t[::1] label,  # workspace (guard + N + guard,) 0 in the guards
    uint8_t[::1] parent,  # workspace (guard + N + guard,)
    uint8_t[::1] flag,  # workspace (N,)
    int32_t[::1] next_,  # workspace (N,)
    int32_t[:, ::1] lists,  # workspace (4, N)
    int32_t[::1] bucket,  # workspace (N + 4,)
):
    """Move supply towards demand by push-relabel, for limited steps; return True if no more supply moves."""
    cdef:
        Buffers[capacity] buffers
        int64_t guard = (residual.shape[0] - excess.shape[0]) // 2
        bint done
    open_lattice(&buffers, residual, excess, label, parent, flag, next_, lists, bucket)
    with nogil:
        done = run_heights(buffers, &delta[0], <int> residual.shape[1], guard)
    return done


def flow_along_offset(
    capacity[:, ::1] residual,  # IN/OUT (guard + N + guard, D)
    capacity[::1] excess,  # IN/OUT (N,)
    int64_t delta,  # IN step of the direction, positive
    int direction,  # IN index of the direction
    capacity[::1] arriving,  # workspace (N,)
    capacity[::1] used,  # workspace (delta,)
):
    """Send the maximum flow along the lines of one offset, exactly and in linear time, as a start for lattice_flow."""
    cdef:
        Buffers[capacity] buffers
        int64_t guard = (residual.shape[0] - excess.shape[0]) // 2
    buffers.residual, buffers.excess = &residual[0, 0], &excess[0]
    buffers.n_nodes, buffers.n_arcs = excess.shape[0], excess.shape[0] * residual.shape[1]
    with nogil:
        flow_along_lines(buffers, delta, direction, <int> residual.shape[1], guard, &arriving[0], &used[0])


def spread_excess(
    capacity[:, ::1] residual,  # IN/OUT (guard + N + guard, D)
    capacity[::1] excess,  # IN/OUT (N,)
    const int64_t[::1] delta,  # IN (D,)
    bint down,  # IN whether to follow the numbering of nodes, or go against it
):
    """Move all excess along the lattice as far as possible; speeds up lattice_flow if many nodes have excess."""
    cdef:
        Buffers[capacity] buffers
        int64_t guard = (residual.shape[0] - excess.shape[0]) // 2
    buffers.residual, buffers.excess = &residual[0, 0], &excess[0]
    buffers.n_nodes, buffers.n_arcs = excess.shape[0], excess.shape[0] * residual.shape[1]
    with nogil:
        spread(buffers, &delta[0], <int> residual.shape[1], guard, NULL, excess.shape[0], down)


def slot_flow(
    capacity[::1] residual,  # IN/OUT (2E,) capacity from each slot's node to its neighbour; (4E,) if mirrored
    capacity[::1] excess,  # IN/OUT (N,) supply > 0, demand < 0; (2N,) if mirrored
    const int64_t[::1] ptr,  # IN (N + 1,) slots of each node
    const int32_t[::1] neighbor,  # IN (2E,)
    const int32_t[::1] reverse,  # IN (2E,)
    const uint8_t[::1] cross,  # IN (2E,) 1 if an edge leads to the mirror image; empty without mirror image
    int32_t[::1] label,  # IN/OUT shape of excess; negative: can reach demand
    int32_t[::1] parent,  # workspace, shape of excess
    uint8_t[::1] flag,  # workspace, shape of excess
    int32_t[::1] next_,  # workspace, shape of excess
    int32_t[:, ::1] lists,  # workspace (4, length of excess)
    int32_t[::1] bucket,  # workspace (length of excess + 4,)
    int64_t[::1] progress,  # IN/OUT (8,) state between calls, initially zeros
    int64_t max_work,  # IN approximate number of node visits before returning
):
    """Send flow from supply to demand on a graph, or a graph joined to its mirror; return whether it is maximal."""
    cdef:
        Buffers[capacity] buffers
        bint done
    buffers.residual, buffers.excess, buffers.label = &residual[0], &excess[0], &label[0]
    buffers.parent, buffers.flag = <void*> &parent[0], &flag[0]
    buffers.next, buffers.lists, buffers.bucket = &next_[0], &lists[0, 0], &bucket[0]
    buffers.n_nodes, buffers.n_arcs, buffers.n_buckets = excess.shape[0], residual.shape[0], bucket.shape[0]
    buffers.n_listed = lists.shape[1]
    with nogil:
        if cross.shape[0]:
            done = run_mirrored(
                buffers, &ptr[0], &neighbor[0], &reverse[0], &cross[0], &progress[0], max_work
            )
        else:
            done = run_slots(buffers, &ptr[0], &neighbor[0], &reverse[0], &progress[0], max_work)
    return done


# Minimum cuts of small lattices: of one model in arrays of the caller, or of many lattices in one call.

cdef extern from "lattice_cut.hpp" namespace "crf" nogil:
    cdef cppclass CutLimits:
        double least_for_lines, least_to_spread, most_to_spread
        int64_t max_work

    cdef cppclass CutOutcome:
        int64_t edge, node
        bint done

    cdef cppclass LatticeCut[Cap]:
        Buffers[Cap] buffers
        Cap* arriving
        Cap* used
        double* cost
        int64_t* progress

    CutOutcome cut_model[Real, Cap](
        const LatticeCut[Cap]&, const LatticeShape&, const void*, const EdgeScores[Real]&, const Choice&,
        const Rounding&, const CutLimits&
    )

    cdef cppclass CutExample[Real]:
        pass

    cdef cppclass BestCuts[Real]:
        DenseFeatures[Real] features
        double intercept
        const Real* tables
        int64_t n_types, n_edge_features
        double most_score
        Rounding rounding
        CutLimits limits
        const CutExample[Real]* examples
        const int64_t* exponent
        int64_t n_examples
        double* sums
        void run(const Threads&) except +


def lattice_cut(
    const floating[:, ::1] unary,  # IN (N, K)
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows
    const int32_t[:, ::1] edges,  # IN (E, 2) offset by offset
    const int32_t[::1] keep,  # IN (N,) current state
    const int32_t[::1] take,  # IN (N,) alternative state
    const int64_t[::1] counts,  # IN (D / 2,) number of edges of each offset
    const int64_t[::1] delta,  # IN (D,) step of each direction in the numbering of nodes, delta[D - 1 - k] = -delta[k]
    const int64_t[::1] shape,  # IN lengths of the axes
    const int64_t[:, ::1] box,  # IN (2, n_axes) zeros, and the shape
    int64_t exponent,  # IN a unit of score is 2**exponent units of capacity
    int64_t most,  # IN capacity that represents infinity
    double precision,  # IN relative rounding of the scores
    int mode,  # IN 0 to stop at a non-submodular edge, 1 to truncate it
    double least_for_lines,  # IN fraction of nodes with excess above which flow is first sent along lines
    double least_to_spread,  # IN fraction of nodes with a choice that have excess, above which excess is spread
    double most_to_spread,  # IN fraction of all nodes, up to which excess is spread
    double[::1] cost,  # workspace (N,)
    capacity[:, ::1] residual,  # OUT (guard + N + guard, D); 0 if an arc leaves the lattice
    capacity[::1] excess,  # OUT (N,) supply > 0, demand < 0
    int32_t[::1] label,  # IN/OUT (guard + N + guard,) 0 in the guards; negative: can reach demand
    uint8_t[::1] parent,  # workspace (guard + N + guard,)
    uint8_t[::1] flag,  # workspace (N,)
    int32_t[::1] next_,  # workspace (N,)
    int32_t[:, ::1] lists,  # workspace (4, N)
    int32_t[::1] bucket,  # workspace (N + 4,)
    capacity[::1] arriving,  # workspace (N,)
    capacity[::1] used,  # workspace (largest step,)
    int64_t[::1] progress,  # OUT (8,)
    int64_t max_work,  # IN approximate number of node visits before returning
):
    """Return (non-submodular edge or -1, node whose choices are both forbidden or -1, whether the flow is maximal)."""
    cdef:
        LatticeCut[capacity] cut
        LatticeShape lattice
        EdgeScores[floating] scores = edge_scores(tables, edge_type, edge_weight)
        Choice choice
        Rounding rounding
        CutLimits limits
        CutOutcome outcome
    open_lattice(&cut.buffers, residual, excess, label, parent, flag, next_, lists, bucket)
    cut.arriving, cut.used, cut.cost, cut.progress = &arriving[0], &used[0], &cost[0], &progress[0]
    lattice.n_nodes, lattice.guard = unary.shape[0], (residual.shape[0] - unary.shape[0]) // 2
    lattice.degree, lattice.n_axes, lattice.edges = residual.shape[1], shape.shape[0], &edges[0, 0]
    lattice.counts, lattice.delta, lattice.shape, lattice.box = &counts[0], &delta[0], &shape[0], &box[0, 0]
    choice.keep, choice.take = &keep[0], &take[0]
    rounding.set_exponent(exponent)
    rounding.most, rounding.precision, rounding.mode = most, precision, mode
    limits.least_for_lines, limits.least_to_spread = least_for_lines, least_to_spread
    limits.most_to_spread, limits.max_work = most_to_spread, max_work
    with nogil:
        outcome = cut_model(cut, lattice, &unary[0, 0], scores, choice, rounding, limits)
    return outcome.edge, outcome.node, outcome.done


def best_cuts(
    const int64_t[:, ::1] examples,  # IN (n_examples, 16) the fields of CutExample
    const int64_t[::1] exponent,  # IN (n_examples,) a unit of score is 2**exponent units of capacity
    const floating[::1] weights,  # IN (F,) weights of features in the score of state 1 minus the score of state 0
    double intercept,
    const floating[:, :, :, ::1] tables,  # IN (T, R, 2, 2)
    double most_score,  # IN largest permitted magnitude of scores of nodes
    tuple rounding,  # IN capacity that represents infinity, relative rounding of the scores, mode as in lattice_cut
    tuple limits,  # IN the fields of CutLimits
    double[:, ::1] sums,  # OUT (n_examples, S), the sums of BestCuts; NaN first if the cut of an example fails
    int n_threads,
):
    """Find the best labeling of each lattice, and the sums of differences to its true labels if it has any."""
    cdef:
        BestCuts[floating] cuts
        Threads threads = threads_of(n_threads)
    cuts.features.n_features, cuts.features.weights, cuts.intercept = weights.shape[0], &weights[0], intercept
    cuts.features.blas = &blas
    cuts.tables, cuts.n_types, cuts.n_edge_features = &tables[0, 0, 0, 0], tables.shape[0], tables.shape[1]
    cuts.most_score = most_score
    cuts.rounding.most, cuts.rounding.precision, cuts.rounding.mode = rounding
    cuts.limits.least_for_lines, cuts.limits.least_to_spread, cuts.limits.most_to_spread, cuts.limits.max_work = limits
    cuts.examples, cuts.exponent = <const CutExample[floating]*> &examples[0, 0], &exponent[0]
    cuts.n_examples, cuts.sums = examples.shape[0], &sums[0, 0]
    with nogil:
        cuts.run(threads)
