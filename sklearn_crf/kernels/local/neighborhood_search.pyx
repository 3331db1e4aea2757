# distutils: language = c++
"""Moves of a local search for labelings of high score: annealing, exact subgraph moves, crossover of two labelings."""

from cython cimport floating
from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
from libcpp.vector cimport vector

from sklearn_crf.kernels.core.addresses cimport set_address


cdef extern from "search_problem.hpp" namespace "crf" nogil:
    cdef cppclass Problem[Score]:
        int64_t n_nodes
        int64_t n_columns
        int64_t n_features
        const int32_t* n_states
        const Score* unary
        const int64_t* node_ptr
        const int32_t* node_slot
        const int64_t* slot_ptr
        const int32_t* slot_node
        const int32_t* slot_factor
        const int64_t* slot_step
        const int32_t* table
        const int64_t* table_ptr
        const int8_t* kind
        const int32_t* counted
        const double* fallback
        const int64_t* listed
        const Score* values
        const Score* weight
        double forbidden
    cdef cppclass Outcome:
        double gain
        int64_t work
        int64_t changes
    void find_cells[Score](const Problem[Score]&, int64_t, const int32_t*, int64_t*)
    void find_change_costs[Score](const Problem[Score]&, const int32_t*, const int64_t*, double*, double*)
    Outcome heat_bath[Score](const Problem[Score]&, double, uint64_t, int32_t*, int64_t*, double*)
    Outcome keep_better_parts[Score](
        const Problem[Score]&, const int32_t*, int32_t*, int64_t*, vector[int32_t]&, vector[int64_t]&, vector[char]&,
        int64_t
    )


cdef extern from "subgraph_moves.hpp" namespace "crf" nogil:
    cdef cppclass Neighborhood:
        double largest_table
        double most_cells
        int64_t most_nodes
        bint connected
        int64_t most_options
        double temperature
        uint64_t region_key
    cdef cppclass SubgraphMove:
        int64_t n_kept()
        Outcome run[Score](const Problem[Score]&, int32_t*, int64_t*, const Neighborhood&, double, uint64_t)


cdef void open_problem(object arrays, Problem[floating]* problem, const floating[:, ::1] unary) except *:
    """Return the addresses of the arrays, which the caller must keep alive."""
    cdef const floating[:, ::1] weight = arrays.weight
    problem.n_nodes, problem.n_columns = unary.shape[0], unary.shape[1]
    problem.n_features = max(weight.shape[1], 1)
    set_address(&problem.n_states, arrays.n_states)
    problem.unary = &unary[0, 0] if unary.shape[0] else NULL
    set_address(&problem.node_ptr, arrays.node_ptr)
    set_address(&problem.slot_ptr, arrays.slot_ptr)
    set_address(&problem.table_ptr, arrays.table_ptr)
    set_address(&problem.node_slot, arrays.node_slot)
    set_address(&problem.slot_node, arrays.slot_node)
    set_address(&problem.slot_factor, arrays.slot_factor)
    set_address(&problem.slot_step, arrays.slot_step)
    set_address(&problem.table, arrays.table)
    set_address(&problem.kind, arrays.kind)
    set_address(&problem.counted, arrays.counted)
    set_address(&problem.fallback, arrays.fallback)
    set_address(&problem.listed, arrays.listed)
    set_address(&problem.values, arrays.values)
    problem.weight = &weight[0, 0] if weight.shape[0] else NULL
    problem.forbidden = arrays.forbidden


cdef class SearchWorkspace:
    """Workspace that the moves of one chain share. It grows during the first moves."""

    cdef:
        SubgraphMove move
        vector[int32_t] part
        vector[int64_t] seen_factor
        vector[char] seen
        vector[double] scores
        int64_t mark

    def __cinit__(self, Py_ssize_t n_nodes, Py_ssize_t n_factors, Py_ssize_t n_columns):
        self.seen_factor.resize(n_factors, -1)
        self.seen.resize(n_nodes, 0)
        self.scores.resize(n_columns, 0)
        self.mark = 0

    @property
    def n_kept(self):
        """Number of nodes of the last region with a choice that were not in the subgraph."""
        return self.move.n_kept()


def cells_of_labels(
    object problem,  # IN SearchProblem
    const floating[:, ::1] unary,  # IN (N, K)
    const int32_t[::1] labels,  # IN (N,)
    int64_t[::1] cells,  # OUT (F,)
):
    """Compute the table cell of each factor under a labeling."""
    cdef Problem[floating] p
    open_problem(problem, &p, unary)
    if cells.shape[0]:
        with nogil:
            find_cells(p, cells.shape[0], &labels[0], &cells[0])


def change_costs(
    object problem,  # IN SearchProblem
    const floating[:, ::1] unary,  # IN (N, K)
    const int32_t[::1] labels,  # IN (N,)
    const int64_t[::1] cells,  # IN (F,)
    double[::1] cost,  # OUT (N,)
    SearchWorkspace workspace,
):
    """Compute the cost of the best label change of each node, 0 if the node has no other state."""
    cdef Problem[floating] p
    open_problem(problem, &p, unary)
    with nogil:
        find_change_costs(
            p, &labels[0], &cells[0] if cells.shape[0] else NULL, workspace.scores.data(), &cost[0]
        )


def annealing_sweep(
    object problem,  # IN SearchProblem
    const floating[:, ::1] unary,  # IN (N, K)
    double temperature,
    uint64_t key,  # IN key of the random numbers
    int32_t[::1] labels,  # IN/OUT (N,)
    int64_t[::1] cells,  # IN/OUT (F,)
    SearchWorkspace workspace,
):
    """Run a Gibbs sweep, or take best labels at temperature 0; return gain, work and number of changes."""
    cdef:
        Problem[floating] p
        Outcome outcome
    open_problem(problem, &p, unary)
    with nogil:
        outcome = heat_bath(
            p, temperature, key, &labels[0], &cells[0] if cells.shape[0] else NULL, workspace.scores.data()
        )
    return outcome.gain, outcome.work, outcome.changes


def subgraph_move(
    object problem,  # IN SearchProblem
    const floating[:, ::1] unary,  # IN (N, K)
    object region,  # IN Region from which the subgraph is drawn
    int64_t most_options,  # IN largest number of candidate states of a node
    double temperature,  # IN temperature at which candidates are drawn if there are more states
    double noise,  # IN scale of the random perturbation of node scores
    uint64_t region_key,  # IN key of the random numbers for the region
    uint64_t key,  # IN key of all other random numbers
    int32_t[::1] labels,  # IN/OUT (N,)
    int64_t[::1] cells,  # IN/OUT (F,)
    SearchWorkspace workspace,
):
    """Optimise the labels of a random subgraph of low treewidth; return gain, work and number of changes."""
    cdef:
        Problem[floating] p
        Neighborhood neighborhood
        Outcome outcome
    open_problem(problem, &p, unary)
    neighborhood.largest_table, neighborhood.most_cells = region.largest_table, region.most_cells
    neighborhood.most_nodes, neighborhood.connected = region.most_nodes, region.connected
    neighborhood.most_options, neighborhood.temperature = most_options, temperature
    neighborhood.region_key = region_key
    with nogil:
        outcome = workspace.move.run(
            p, &labels[0], &cells[0] if cells.shape[0] else NULL, neighborhood, noise, key
        )
    return outcome.gain, outcome.work, outcome.changes


def keep_better(
    object problem,  # IN SearchProblem
    const floating[:, ::1] unary,  # IN (N, K)
    const int32_t[::1] old,  # IN (N,)
    int32_t[::1] labels,  # IN/OUT (N,)
    int64_t[::1] cells,  # IN/OUT (F,)
    SearchWorkspace workspace,
):
    """Restore old labels in parts where new labels are worse; return gain, work and number of better parts."""
    cdef:
        Problem[floating] p
        Outcome outcome
    open_problem(problem, &p, unary)
    with nogil:
        workspace.mark += 1
        outcome = keep_better_parts(
            p, &old[0], &labels[0], &cells[0] if cells.shape[0] else NULL, workspace.part, workspace.seen_factor,
            workspace.seen, workspace.mark
        )
    return outcome.gain, outcome.work, outcome.changes
