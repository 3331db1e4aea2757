"""Local search: updates of one node at a time, larger neighborhoods, and search under hard constraints."""

from cython cimport floating
from libc.math cimport exp, fabs
from libc.stdint cimport int32_t, int64_t, int8_t, uint64_t, uint8_t
from libcpp.vector cimport vector

from sklearn_crf.kernels.core.addresses cimport set_address
from sklearn_crf.kernels.local.local_model cimport LocalModel, describe
from sklearn_crf.kernels.random_streams cimport scrambled, uniform


# Updates of nodes given their neighbours: iterated conditional modes, mean field and Gibbs sampling.

# One sweep of iterated conditional modes over some nodes -------------------------------------------------------------


def icm_update(
    const int32_t[::1] nodes,  # IN in the order of the updates
    Py_ssize_t start,
    Py_ssize_t stop,
    const floating[:, ::1] unary,  # IN (N, K)
    edges,  # IN the fields of LocalEdges
    int32_t[::1] labels,  # IN OUT (N,)
    uint8_t[::1] pending,  # IN OUT (N,) whether a neighbour has changed since the last visit
    double[::1] scores,  # workspace (K,)
):
    """Assign nodes[start:stop], in turn, their best labels given neighbours; return the number of changed labels.

    A node keeps its label unless another label is strictly better.
    """
    cdef:
        Py_ssize_t position, slot, k, best
        int32_t node
        Py_ssize_t n_changed = 0
        double highest
        LocalModel[floating] model
    describe(&model, unary, edges)
    with nogil:
        for position in range(start, stop):
            node = nodes[position]
            if not pending[node]:
                continue
            pending[node] = False
            model.scores_given_labels(node, &labels[0], &scores[0])
            best = labels[node]
            highest = scores[best]
            for k in range(scores.shape[0]):
                # Conditional moves, because branches would be mispredicted.
                best = k if scores[k] > highest else best
                highest = scores[k] if scores[k] > highest else highest
            if best != labels[node]:
                labels[node] = <int32_t> best
                n_changed += 1
                for slot in range(model.ptr[node], model.ptr[node + 1]):
                    pending[model.neighbor[slot]] = True
    return n_changed


# Coordinate ascent on the naive mean-field bound, and the bound itself -----------------------------------------------


def mean_field_update(
    const int32_t[::1] nodes,  # IN in the order of the updates
    Py_ssize_t start,
    Py_ssize_t stop,
    const floating[:, ::1] unary,  # IN (N, K)
    edges,  # IN the fields of LocalEdges
    double damping,
    double[:, ::1] marginals,  # IN OUT (N, K)
    double[::1] scores,  # workspace (K,)
):
    """Optimise the marginals of nodes[start:stop], in turn, given their neighbours; return the largest change."""
    cdef:
        Py_ssize_t position, k
        int32_t node
        double change = 0, moved
        LocalModel[floating] model
    describe(&model, unary, edges)
    with nogil:
        for position in range(start, stop):
            node = nodes[position]
            model.scores_given_marginals(node, &marginals[0, 0], &scores[0])
            model.normalize(&scores[0])
            for k in range(scores.shape[0]):
                moved = (1 - damping) * (scores[k] - marginals[node, k])
                change = max(change, fabs(moved))
                marginals[node, k] += moved
    return change


def mean_field_bound(
    Py_ssize_t start,
    Py_ssize_t stop,
    const floating[:, ::1] unary,  # IN (N, K)
    edges,  # IN the fields of LocalEdges
    const double[:, ::1] marginals,  # IN (N, K)
    double[::1] terms,  # OUT (N,) expected score plus entropy; edges count at their first end
    double[:, :, :, ::1] pairs,  # IN OUT (T, R, K, K) products of marginals times edge weights, added to
):
    """Compute the mean-field bound of nodes start to stop - 1."""
    cdef:
        Py_ssize_t node
        LocalModel[floating] model
    describe(&model, unary, edges)
    with nogil:
        for node in range(start, stop):
            terms[node] = model.bound(node, &marginals[0, 0], &pairs[0, 0, 0, 0])


# One sweep of Gibbs sampling over some nodes; random numbers depend on the node, not on the thread -------------------


def stream_key(uint64_t seed, uint64_t chain, uint64_t sweep):
    """Return the key of the random numbers of one sweep of one chain."""
    return scrambled(scrambled(scrambled(seed) + chain) + sweep)


def uniforms(uint64_t key, double[::1] out):
    """Fill ``out`` with the stream of ``key``: out[s] is the random number of node s."""
    cdef Py_ssize_t s
    with nogil:
        for s in range(out.shape[0]):
            out[s] = uniform(key, s)


cdef inline Py_ssize_t drawn(const double[::1] probability, double threshold) noexcept nogil:
    """Return the state whose part of the unit interval contains threshold; never a state of probability zero."""
    cdef:
        Py_ssize_t k, chosen = 0
        double cumulated = 0
    for k in range(probability.shape[0]):
        if probability[k] > 0:
            chosen = k
            cumulated += probability[k]
            if threshold < cumulated:
                break
    return chosen


def gibbs_update(
    const int32_t[::1] nodes,  # IN in the order of the updates
    Py_ssize_t start,
    Py_ssize_t stop,
    const floating[:, ::1] unary,  # IN (N, K)
    edges,  # IN the fields of LocalEdges
    uint64_t key,
    int32_t[::1] labels,  # IN OUT (N,)
    double[::1] scores,  # workspace (K,)
    double[:, ::1] totals,  # IN OUT (N, K) sums of the conditionals, or empty
    double[:, :, :, ::1] pairs,  # IN OUT (T, R, K, K) sums over both ends of the edges, or empty
):
    """Draw the labels of nodes[start:stop], in turn, from their conditionals given their neighbours."""
    cdef:
        Py_ssize_t position, k
        int32_t node
        LocalModel[floating] model
    describe(&model, unary, edges)
    with nogil:
        for position in range(start, stop):
            node = nodes[position]
            model.scores_given_labels(node, &labels[0], &scores[0])
            model.normalize(&scores[0])
            labels[node] = <int32_t> drawn(scores, uniform(key, node))
            if totals.shape[0]:
                for k in range(scores.shape[0]):
                    totals[node, k] += scores[k]
                model.add_pairs(node, &labels[0], &scores[0], 0.5, &pairs[0, 0, 0, 0])


# Moves of a local search for labelings of high score: annealing, exact subgraph moves, crossover of two labelings.

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


# Mean field on factor graphs ------------------------------------------------------------------------------------------

cdef extern from "factor_mean_field.hpp" namespace "crf" nogil:
    cdef cppclass FactorMeanField:
        Problem[double] problem
        void update(int64_t, const double*, double*)
        double expected_score(int64_t, const double*)
        void add_probabilities(int64_t, const double*, double*, double*)
    void undo_sweep(
        FactorMeanField&, const double*, const double*, const double*, double*, double*, double*, double*
    )


def factor_mean_field_sweep(
    object problem,  # IN SearchProblem with values in double precision
    const double[:, ::1] unary,  # IN (N, K)
    double damping,
    double[:, ::1] marginals,  # IN OUT (N, K)
    double[:, ::1] log_marginals,  # OUT (N, K) without damping
):
    """Optimise the marginals of each node of a factor graph in turn; return the largest change."""
    cdef:
        FactorMeanField field
        Py_ssize_t node, k
        double change = 0, moved
    open_problem(problem, &field.problem, unary)
    with nogil:
        for node in range(unary.shape[0]):
            field.update(node, &marginals[0, 0], &log_marginals[node, 0])
            for k in range(unary.shape[1]):
                moved = (1 - damping) * (exp(log_marginals[node, k]) - marginals[node, k])
                change = max(change, fabs(moved))
                marginals[node, k] += moved
    return change


def factor_mean_field_statistics(
    object problem,  # IN SearchProblem with values in double precision
    const double[:, ::1] unary,  # IN (N, K)
    const double[:, ::1] marginals,  # IN (N, K)
    double[::1] terms,  # INOUT (N,) expected scores of factors are added at their first nodes
    double[::1] of_values,  # INOUT (n_cells,) probabilities of listed cells
    double[::1] of_defaults,  # INOUT (T,) probabilities of all other cells
):
    """Add the expected scores of factors of two and more nodes, and the probabilities of their cells."""
    cdef:
        FactorMeanField field
        Py_ssize_t factor
        const int32_t[::1] table = problem.table
        double* values = &of_values[0] if of_values.shape[0] else NULL
        double* defaults = &of_defaults[0] if of_defaults.shape[0] else NULL
    open_problem(problem, &field.problem, unary)
    with nogil:
        for factor in range(table.shape[0]):
            terms[field.problem.slot_node[field.problem.slot_ptr[factor]]] += field.expected_score(
                factor, &marginals[0, 0]
            )
            field.add_probabilities(factor, &marginals[0, 0], values, defaults)


def factor_mean_field_undo(
    object problem,  # IN SearchProblem with values in double precision, all of them finite
    const double[:, ::1] unary,  # IN (N, K)
    const double[:, ::1] before,  # IN (N, K) marginals before the sweep
    const double[:, ::1] after,  # IN (N, K) marginals after the sweep
    const double[:, ::1] slope,  # IN (N, K) further derivatives by the scores that the sweep normalised
    double[:, ::1] adjoint,  # INOUT (N, K) derivatives by the marginals after the sweep, later before it
    double[:, ::1] of_unary,  # INOUT (N, K) derivatives by the scores of nodes
    double[::1] of_values,  # INOUT (n_cells,) derivatives by the listed scores
    double[::1] of_defaults,  # INOUT (T,) derivatives by the default scores
):
    """Backpropagate through a sweep without damping."""
    cdef:
        FactorMeanField field
        double* values = &of_values[0] if of_values.shape[0] else NULL
        double* defaults = &of_defaults[0] if of_defaults.shape[0] else NULL
    open_problem(problem, &field.problem, unary)
    if unary.shape[0]:
        with nogil:
            undo_sweep(
                field, &before[0, 0], &after[0, 0], &slope[0, 0], &adjoint[0, 0], &of_unary[0, 0], values, defaults
            )


# Workspace and moves of local search ----------------------------------------------------------------------------------

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


# Search for labels that satisfy all constraints.

cdef extern from "constraint_search.hpp" namespace "crf" nogil:
    cdef cppclass Constraints:
        int64_t n_nodes
        int64_t n_decided
        const int64_t* first
        const uint8_t* possible
        const double* preference
        const int32_t* guide
        const uint8_t* active
        int64_t n_edges
        const int32_t* ends
        const int32_t* relation
        const double* weight
        int64_t n_relations
        const int64_t* shape
        const int64_t* cell_ptr
        int64_t n_cells
        const uint8_t* cells
        const double* scores
        int64_t n_clauses
        const int64_t* clause_ptr
        const int32_t* clause
        int64_t n_counts
        const int64_t* count_ptr
        const int32_t* counted
        const int64_t* allowed_ptr
        const uint8_t* allowed
    cdef cppclass Search "crf::ConstraintSearch":
        Search(const Constraints&, bint) except +
        int advance(int64_t) except +
        int finish(int32_t*)
        int64_t work
        vector[uint8_t] involved


cdef class ConstraintSearch:
    """A search that can be continued. It takes the arrays of ``Constraints``, each with at least one element."""

    cdef Search* search
    cdef int64_t n_nodes

    def __cinit__(self, arrays, const int32_t[::1] guide, const uint8_t[::1] active, bint by_scores):
        cdef:
            Constraints given
        self.n_nodes = given.n_nodes = len(arrays.first) - 1
        given.n_decided = arrays.n_nodes
        set_address(&given.first, arrays.first)
        set_address(&given.possible, arrays.possible)
        set_address(&given.preference, arrays.preference)
        given.guide = &guide[0] if guide.shape[0] else NULL
        given.active = &active[0] if active.shape[0] else NULL
        given.n_edges = len(arrays.relation)
        set_address(&given.ends, arrays.ends)
        set_address(&given.relation, arrays.relation)
        set_address(&given.weight, arrays.weight)
        given.n_relations = len(arrays.cell_ptr)
        set_address(&given.shape, arrays.shape)
        set_address(&given.cell_ptr, arrays.cell_ptr)
        given.n_cells = len(arrays.cells)
        set_address(&given.cells, arrays.cells)
        set_address(&given.scores, arrays.scores)
        given.n_clauses = len(arrays.clause_ptr) - 1
        set_address(&given.clause_ptr, arrays.clause_ptr)
        set_address(&given.clause, arrays.clause)
        given.n_counts = len(arrays.count_ptr) - 1
        set_address(&given.count_ptr, arrays.count_ptr)
        set_address(&given.counted, arrays.counted)
        set_address(&given.allowed_ptr, arrays.allowed_ptr)
        set_address(&given.allowed, arrays.allowed)
        self.search = new Search(given, by_scores)

    def __dealloc__(self):
        del self.search

    @property
    def work(self):
        """Number of steps so far."""
        return self.search.work

    def advance(self, int64_t more):
        """Search for about this number of steps; return 0 if unfinished, 1 if labels are found, 2 if none exist."""
        cdef int status
        with nogil:
            status = self.search.advance(more)
        return status

    def finish(
        self,
        int32_t[::1] labels,  # OUT (N,) the labels found, else labels that violate few constraints
        uint8_t[::1] involved,  # OUT (N,) nodes that are involved in a refutation
    ):
        """Write the results; return the status as ``advance`` does, also 1 for labels known without a search."""
        cdef int64_t v
        for v in range(self.n_nodes):
            involved[v] = self.search.involved[v]
        return self.search.finish(&labels[0]) if self.n_nodes else self.search.finish(NULL)
