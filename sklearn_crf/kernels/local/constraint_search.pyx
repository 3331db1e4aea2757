# distutils: language = c++
"""Search for labels that satisfy all constraints."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.vector cimport vector


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
            const int64_t[::1] first = arrays.first
            const uint8_t[::1] possible = arrays.possible
            const double[::1] preference = arrays.preference
            const int32_t[::1] ends = arrays.ends
            const int32_t[::1] relation = arrays.relation
            const double[::1] weight = arrays.weight
            const int64_t[::1] shape = arrays.shape
            const int64_t[::1] cell_ptr = arrays.cell_ptr
            const uint8_t[::1] cells = arrays.cells
            const double[::1] scores = arrays.scores
            const int64_t[::1] clause_ptr = arrays.clause_ptr
            const int32_t[::1] clause = arrays.clause
            const int64_t[::1] count_ptr = arrays.count_ptr
            const int32_t[::1] counted = arrays.counted
            const int64_t[::1] allowed_ptr = arrays.allowed_ptr
            const uint8_t[::1] allowed = arrays.allowed
        self.n_nodes = given.n_nodes = first.shape[0] - 1
        given.n_decided = arrays.n_nodes
        given.first = &first[0]
        given.possible = &possible[0] if possible.shape[0] else NULL
        given.preference = &preference[0] if preference.shape[0] else NULL
        given.guide = &guide[0] if guide.shape[0] else NULL
        given.active = &active[0] if active.shape[0] else NULL
        given.n_edges = relation.shape[0]
        given.ends = &ends[0] if ends.shape[0] else NULL
        given.relation = &relation[0] if relation.shape[0] else NULL
        given.weight = &weight[0] if weight.shape[0] else NULL
        given.n_relations = cell_ptr.shape[0]
        given.shape = &shape[0] if shape.shape[0] else NULL
        given.cell_ptr = &cell_ptr[0] if cell_ptr.shape[0] else NULL
        given.n_cells = cells.shape[0]
        given.cells = &cells[0] if cells.shape[0] else NULL
        given.scores = &scores[0] if scores.shape[0] else NULL
        given.n_clauses = clause_ptr.shape[0] - 1
        given.clause_ptr = &clause_ptr[0]
        given.clause = &clause[0] if clause.shape[0] else NULL
        given.n_counts = count_ptr.shape[0] - 1
        given.count_ptr = &count_ptr[0]
        given.counted = &counted[0] if counted.shape[0] else NULL
        given.allowed_ptr = &allowed_ptr[0] if allowed_ptr.shape[0] else NULL
        given.allowed = &allowed[0] if allowed.shape[0] else NULL
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
