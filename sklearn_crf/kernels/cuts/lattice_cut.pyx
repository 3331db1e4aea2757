# distutils: language = c++
"""Minimum cuts of small lattices: of one model in arrays of the caller, or of many lattices in one call."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uint8_t

from sklearn_crf.kernels.core.blas cimport dgemm, sgemm
from sklearn_crf.kernels.core.dense_features cimport DenseFeatures
from sklearn_crf.kernels.core.pool cimport Threads, threads_of
from sklearn_crf.kernels.cuts.binary_edge cimport Choice, EdgeScores, LatticeShape, Rounding, capacity, edge_scores
from sklearn_crf.kernels.cuts.flow cimport Buffers, open_lattice


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
        const double* scale
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
    double scale,  # IN units of capacity per unit of score
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
    rounding.scale, rounding.most, rounding.precision, rounding.mode = scale, most, precision, mode
    limits.least_for_lines, limits.least_to_spread = least_for_lines, least_to_spread
    limits.most_to_spread, limits.max_work = most_to_spread, max_work
    with nogil:
        outcome = cut_model(cut, lattice, &unary[0, 0], scores, choice, rounding, limits)
    return outcome.edge, outcome.node, outcome.done


def best_cuts(
    const int64_t[:, ::1] examples,  # IN (n_examples, 16) the fields of CutExample
    const double[::1] scale,  # IN (n_examples,) units of capacity per unit of score
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
    cuts.features.gemm = sgemm if floating is float else dgemm
    cuts.tables, cuts.n_types, cuts.n_edge_features = &tables[0, 0, 0, 0], tables.shape[0], tables.shape[1]
    cuts.most_score = most_score
    cuts.rounding.most, cuts.rounding.precision, cuts.rounding.mode = rounding
    cuts.limits.least_for_lines, cuts.limits.least_to_spread, cuts.limits.most_to_spread, cuts.limits.max_work = limits
    cuts.examples, cuts.scale = <const CutExample[floating]*> &examples[0, 0], &scale[0]
    cuts.n_examples, cuts.sums = examples.shape[0], &sums[0, 0]
    with nogil:
        cuts.run(threads)
