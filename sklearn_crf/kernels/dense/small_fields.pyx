# distutils: language = c++
"""All updates of the mean field of a small dense field in one call, and their derivatives in another."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector


cdef extern from "small_lattice.hpp" namespace "crf" nogil:
    cdef cppclass SmallLattice[T]:
        const int32_t* vertex_of
        const T* weight_of
        int64_t n_corners, width
        const int64_t* bounds
        int64_t n_parts, n_vertices
        double* parts
        const int32_t* neighbors
        const int64_t* axes
        int64_t n_passes
        T center, side
        T* vertices
        T* other
        T* blurred(const T*, bint)
    cdef cppclass SmallField[T]:
        vector[SmallLattice[T]] lattices
        vector[const T*] factors
        int64_t n_points, width
        int64_t update(const T*, int64_t, double, T*)
        void pull_back(const T*, int64_t, T*, T*, double*)


def scatter_and_blur(
    tuple lattice,  # IN OUT as lattices below
    const floating[:, ::1] points,  # IN (N, width)
    bint is_adjoint,  # whether the blur runs along the axes in the opposite order
):
    """Sums at all vertices and their blur, in the first array of values if the axes are even in number."""
    cdef SmallField[floating] field
    field.width = points.shape[1]
    _read_lattice(lattice, &points[0, 0], &field)
    with nogil:
        field.lattices[0].blurred(&points[0, 0], is_adjoint)


def update_small_field(
    list lattices,  # IN OUT of (vertex (N, d + 1) int32, weight (N, d + 1), bounds of the parts (n_parts + 1,) int64,
    # parts (n_parts, M, width) of zeros, neighbors (d + 1, M, 2) int32, axes int64, center, side, values of vertices
    # (M + 1, width), and others)
    const floating[:, ::1] factors,  # IN (n_lattices, width) compatibilities of equal states
    const floating[:, ::1] unary,  # IN (N, width) padded with -inf
    double tol,
    floating[:, :, ::1] trajectory,  # OUT (n_updates + 1, N, width) marginals at the start and after each update
):
    """The number of updates: of the last one alone no marginal changes by more than the tolerance."""
    cdef:
        SmallField[floating] field
        int64_t n_updates
    _read_field(lattices, factors, &unary[0, 0], unary.shape[0], &field)
    with nogil:
        n_updates = field.update(&unary[0, 0], trajectory.shape[0] - 1, tol, &trajectory[0, 0, 0])
    return n_updates


def pull_back_small_field(
    list lattices,  # IN OUT as above
    const floating[:, ::1] factors,  # IN as above
    const floating[:, :, ::1] trajectory,  # IN (n_updates + 1, N, width)
    floating[:, ::1] slope,  # IN OUT (N, width) derivative by the last logits
    floating[:, ::1] by_unary,  # IN OUT (N, width) added to
    double[:, :, ::1] by_tables,  # IN OUT (n_lattices, width, width) added to
):
    """Derivatives by unary scores and by all entries of compatibilities."""
    cdef SmallField[floating] field
    _read_field(lattices, factors, &slope[0, 0], slope.shape[0], &field)
    with nogil:
        field.pull_back(
            &trajectory[0, 0, 0], trajectory.shape[0] - 1, &slope[0, 0], &by_unary[0, 0],
            &by_tables[0, 0, 0] if by_tables.shape[0] else NULL,
        )


cdef _read_field(
    list lattices,
    const floating[:, ::1] factors,
    const floating* rows,
    Py_ssize_t n_points,
    SmallField[floating]* field,
):
    cdef Py_ssize_t m
    field.n_points, field.width = n_points, factors.shape[1]
    for m, lattice in enumerate(lattices):
        _read_lattice(lattice, rows, field)
        field.factors.push_back(&factors[m, 0])


cdef _read_lattice(tuple lattice, const floating* rows, SmallField[floating]* field):
    """Append a lattice to those of a field; the tuple keeps its arrays alive."""
    # rows: of any values, as their type decides about that of all
    cdef:
        const int32_t[:, ::1] vertex = lattice[0]
        const floating[:, ::1] weight = lattice[1]
        const int64_t[::1] bounds = lattice[2]
        double[:, :, ::1] parts = lattice[3]
        const int32_t[:, :, ::1] neighbors = lattice[4]
        const int64_t[::1] axes = lattice[5]
        floating[:, ::1] vertices = lattice[8]
        floating[:, ::1] other = lattice[9]
        SmallLattice[floating] one
    one.vertex_of, one.weight_of, one.n_corners = &vertex[0, 0], &weight[0, 0], vertex.shape[1]
    one.width, one.bounds = field.width, &bounds[0]
    one.n_parts, one.n_vertices, one.parts = parts.shape[0], parts.shape[1], &parts[0, 0, 0]
    one.neighbors, one.axes, one.n_passes = &neighbors[0, 0, 0], &axes[0], axes.shape[0]
    one.center, one.side = <floating> (<double> lattice[6]), <floating> (<double> lattice[7])
    one.vertices, one.other = &vertices[0, 0], &other[0, 0]
    field.lattices.push_back(one)
