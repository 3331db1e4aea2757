# distutils: language = c++
"""Search for labels that satisfy all constraints."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from sklearn_crf.kernels.core.addresses cimport set_address


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
