"""Dense fields: lattices around points, filters, mean-field updates and their derivatives."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool as bool_t
from libcpp.vector cimport vector

from sklearn_crf.kernels.core.pool cimport Threads, threads_of


cdef extern from "permutohedral.hpp" namespace "crf" nogil:
    cdef cppclass Digits:
        int n_axes
        const double* scale
        const int64_t* low
        const int64_t* stride
    cdef cppclass VertexTable:
        int64_t n_vertices()
        # These are templates, but Cython before 3.3 cannot deduce T from both `const T*` and `T*`.
        void number_corners(const float*, int64_t, const Digits&, int32_t*, float*, const Threads&) except +
        void number_corners(const double*, int64_t, const Digits&, int32_t*, double*, const Threads&) except +
        void find_neighbors(const Digits&, int32_t*, const Threads&) except +
    void count_points(const int32_t*, int64_t, int64_t*)
    void list_points(const int32_t*, const float*, int64_t, int, int64_t*, int32_t*, float*)
    void list_points(const int32_t*, const double*, int64_t, int, int64_t*, int32_t*, double*)


cdef extern from "mean_field.hpp" namespace "crf" nogil:
    cdef cppclass Lattice[T]:
        const int32_t* vertex_of
        const T* weight_of
        int64_t n_points, n_corners
        const int32_t* neighbors
        int64_t n_vertices
        const int64_t* axes
        int64_t n_passes
        T center, side
        int64_t n_parts
        const int64_t* ptr
        const int32_t* point_of
        const T* weight_by_vertex
    cdef cppclass Filter[T]:
        Filter(const Lattice[T]&, int64_t) except +
        void filter(const T*, bool_t, T*, const Threads&) except +
    cdef cppclass Compatibility[T]:
        const T* factor
        const T* table
    cdef cppclass Updates[T]:
        int64_t width
        vector[Compatibility[T]] compatibilities
        int64_t most
        double tol
        T inertia
    cdef cppclass Fields[T]:
        Updates[T] updates
        vector[vector[Lattice[T]]] lattices
        const int64_t* ptr
        const T* unary
        T* logits
        T* marginals
        bool_t keeps_all
        void ascend(bool_t, int64_t*, double*, const Threads&) except +
        void pull_back(const int64_t*, T*, T*, double*, T*, const Threads&) except +


cdef class Vertices:
    """Indices of the vertices of a lattice by their keys."""

    cdef VertexTable table
    cdef Digits digits
    cdef object kept  # arrays that the digits point to

    @property
    def n_vertices(self):
        return self.table.n_vertices()

    def find_neighbors(
        self,
        int32_t[:, :, ::1] neighbors,  # OUT (d + 1, M, 2), M for vertices to which no point was splat
        int n_threads,
    ):
        """Find the neighbours of all vertices along all axes of the lattice."""
        cdef Threads threads = threads_of(n_threads)
        with nogil:
            self.table.find_neighbors(self.digits, &neighbors[0, 0, 0], threads)


def number_corners(
    const floating[:, ::1] features,  # IN (N, d) in units of the bandwidths
    const double[::1] scale,  # IN (d,)
    const int64_t[::1] low,  # IN (d,) offset of the digits of keys
    const int64_t[::1] stride,  # IN (d,) weight of the digits
    int32_t[:, ::1] vertex,  # OUT (N, d + 1) corners of the simplex around each point
    floating[:, ::1] weights,  # OUT (N, d + 1) barycentric weights; rows sum to 1
    int n_threads,
):
    """Number the vertices around points in the order in which points touch them; return Vertices."""
    cdef:
        Vertices found = Vertices()
        Threads threads = threads_of(n_threads)
    found.kept = scale.base, low.base, stride.base
    found.digits.n_axes, found.digits.scale = <int> features.shape[1], &scale[0]
    found.digits.low, found.digits.stride = &low[0], &stride[0]
    with nogil:
        found.table.number_corners(
            &features[0, 0], features.shape[0], found.digits, &vertex[0, 0], &weights[0, 0], threads
        )
    return found


def points_of_vertices(
    const int32_t[:, ::1] vertex,  # IN (N, d + 1)
    const floating[:, ::1] weights,  # IN (N, d + 1)
    int64_t[::1] ptr,  # IN OUT (M + 2,) zeros at first; then the last M + 1 are the bounds of the vertices' lists
    int32_t[::1] point_of,  # OUT (N (d + 1),)
    floating[::1] weight_of,  # OUT (N (d + 1),)
):
    """List the points of each vertex in order."""
    cdef Py_ssize_t v
    with nogil:
        # Counts are shifted by two places. Cumulative sums are then the starts of lists, and list_points moves them to
        # ends.
        count_points(&vertex[0, 0], vertex.shape[0] * vertex.shape[1], &ptr[2])
        for v in range(2, ptr.shape[0]):
            ptr[v] += ptr[v - 1]
        list_points(
            &vertex[0, 0], &weights[0, 0], vertex.shape[0], <int> vertex.shape[1], &ptr[1], &point_of[0], &weight_of[0]
        )


def filter_rows(
    tuple lattice,  # IN PermutohedralFilter.lattice
    const floating[:, ::1] points,  # IN (N, width)
    bint is_adjoint,  # whether to blur along the axes in reverse order
    floating[:, ::1] filtered,  # OUT (N, width)
    int n_threads,
):
    """Filter rows of points."""
    cdef:
        Threads threads = threads_of(n_threads)
        Lattice[floating] one
        Filter[floating]* smooth
    read_lattice(lattice, &one)
    smooth = new Filter[floating](one, points.shape[1])
    try:
        with nogil:
            smooth.filter(&points[0, 0], is_adjoint, &filtered[0, 0], threads)
    finally:
        del smooth


def update_fields(
    list lattices,  # IN a tuple of lattices for each field
    const int64_t[::1] ptr,  # IN (n_fields + 1,) first point of each field, and N
    const floating[:, ::1] factors,  # IN (n_filters, width) compatibility of equal states, or (0, 0)
    const floating[:, :, ::1] tables,  # IN (n_filters, width, width) compatibility of all states, or (0, 0, 0)
    const floating[:, ::1] unary,  # IN (N, width) padded with -inf
    floating[:, ::1] logits,  # OUT (N, width) logits of the last update, or (0, 0) without inertia
    double inertia,
    Py_ssize_t most,  # maximum number of updates
    double tol,
    floating[:, :, ::1] marginals,  # IN OUT (most + 1, N, width) initially and after each update, or (1, N, width)
    bint starts_at_unary,  # whether to initialise marginals from unary scores only
    int64_t[::1] n_updates,  # OUT (n_fields,)
    double[::1] changes,  # OUT (n_fields,) largest change of a marginal in the last update
    int n_threads,
):
    """Update the marginals of fields until no marginal of a field changes by more than the tolerance."""
    cdef:
        Threads threads = threads_of(n_threads)
        Fields[floating] fields
    read_fields(lattices, ptr, factors, tables, unary, marginals, &fields)
    fields.updates.most, fields.updates.tol, fields.updates.inertia = most, tol, <floating> inertia
    fields.logits = &logits[0, 0] if logits.shape[0] else NULL
    fields.keeps_all = marginals.shape[0] > 1
    with nogil:
        fields.ascend(starts_at_unary, &n_updates[0], &changes[0], threads)


def pull_back_fields(
    list lattices,  # IN as above
    const int64_t[::1] ptr,  # IN as above
    const floating[:, ::1] factors,  # IN as above
    const floating[:, :, ::1] tables,  # IN as above
    floating[:, :, ::1] marginals,  # IN (n + 1, N, width) initially and after each update
    const int64_t[::1] n_updates,  # IN (n_fields,)
    floating[:, ::1] slope,  # IN OUT (N, width) derivative with respect to the last logits, overwritten
    floating[:, ::1] by_unary,  # IN OUT (N, width) added to
    double[:, :, :, ::1] by_tables,  # IN OUT (n_fields, n_filters, width, width) added to; diagonal only, for factors
    floating[:, :, ::1] slopes,  # OUT (n, N, width) derivatives with respect to the logits of each update, or (0, 0, 0)
    int n_threads,
):
    """Add derivatives of a loss of the last marginals with respect to unary scores and compatibilities."""
    cdef:
        Threads threads = threads_of(n_threads)
        Fields[floating] fields
    read_fields(lattices, ptr, factors, tables, by_unary, marginals, &fields)
    fields.keeps_all = True
    with nogil:
        fields.pull_back(
            &n_updates[0], &slope[0, 0], &by_unary[0, 0],
            &by_tables[0, 0, 0, 0] if by_tables.shape[1] else NULL,
            &slopes[0, 0, 0] if slopes.shape[0] else NULL, threads,
        )


cdef read_fields(
    list lattices,
    const int64_t[::1] ptr,
    const floating[:, ::1] factors,
    const floating[:, :, ::1] tables,
    const floating[:, ::1] unary,
    floating[:, :, ::1] marginals,
    Fields[floating]* fields,
):
    """Set pointers to the arrays of fields, which the caller keeps alive."""
    cdef:
        Py_ssize_t m
        Lattice[floating] lattice
        Compatibility[floating] pairs
        vector[Lattice[floating]] own
    fields.updates.width = unary.shape[1]
    fields.ptr, fields.unary, fields.marginals = &ptr[0], &unary[0, 0], &marginals[0, 0, 0]
    fields.logits = NULL
    for m in range(max(factors.shape[0], tables.shape[0])):
        pairs.factor = &factors[m, 0] if factors.shape[0] else NULL
        pairs.table = &tables[m, 0, 0] if tables.shape[0] else NULL
        fields.updates.compatibilities.push_back(pairs)
    for each in lattices:
        own.clear()
        for part in each:
            read_lattice(part, &lattice)
            own.push_back(lattice)
        fields.lattices.push_back(own)


cdef read_lattice(tuple arrays, Lattice[floating]* lattice):
    cdef:
        const int32_t[:, ::1] vertex = arrays[0]
        const floating[:, ::1] weight = arrays[1]
        const int32_t[:, :, ::1] neighbors = arrays[2]
        const int64_t[::1] axes = arrays[3]
        const int64_t[::1] ptr = arrays[7]
        const int32_t[::1] point_of = arrays[8]
        const floating[::1] weight_of = arrays[9]
    lattice.vertex_of, lattice.weight_of = &vertex[0, 0], &weight[0, 0]
    lattice.n_points, lattice.n_corners = vertex.shape[0], vertex.shape[1]
    lattice.neighbors, lattice.n_vertices = &neighbors[0, 0, 0], neighbors.shape[1]
    lattice.axes, lattice.n_passes = &axes[0], axes.shape[0]
    lattice.center, lattice.side = <floating> (<double> arrays[4]), <floating> (<double> arrays[5])
    lattice.n_parts = arrays[6]
    if lattice.n_parts == 0:
        lattice.ptr, lattice.point_of, lattice.weight_by_vertex = &ptr[0], &point_of[0], &weight_of[0]
