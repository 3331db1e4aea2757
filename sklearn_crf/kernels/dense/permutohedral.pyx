# distutils: language = c++
"""Permutohedral lattice around points with features, and Gaussian filtering of channels on it."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t


cdef extern from "permutohedral.hpp" namespace "crf" nogil:
    cdef cppclass Digits:
        int n_axes
        const double* scale
        const int64_t* low
        const int64_t* stride
    cdef cppclass Table:
        int64_t* key
        int32_t* vertex
        int64_t mask
    # Templates, but Cython before 3.3 deduces no T from both `const T*` and `T*`.
    void embed(const float*, const Digits&, int64_t, int64_t, int64_t*, float*)
    void embed(const double*, const Digits&, int64_t, int64_t, int64_t*, double*)
    void insert_vertices(const int64_t*, int64_t, const Table&)
    int64_t number_vertices(
        const int64_t*, int64_t, int64_t, int, const Table&, int64_t*, int64_t*, int32_t*
    )
    void find_neighbors(const int64_t*, int64_t, int64_t, const Digits&, int, const Table&, int32_t, int32_t*)
    void count_points(const int32_t*, int64_t, int64_t*)
    void list_points(const int32_t*, const float*, int64_t, int, int64_t*, int32_t*, float*)
    void list_points(const int32_t*, const double*, int64_t, int, int64_t*, int32_t*, double*)


cdef extern from "channel_rows.hpp" namespace "crf" nogil:
    cdef cppclass Splat[T]:
        const int64_t* ptr
        const int32_t* point_of
        const T* weight_of
        const T* points
        int64_t width, start, stop
        T* vertices
    cdef cppclass Scatter[T]:
        const int32_t* vertex_of
        const T* weight_of
        int64_t n_corners
        const T* points
        int64_t width, start, stop
        double* totals
    void add_parts[T](double*, int64_t, int64_t, int64_t, int64_t, T*)
    cdef cppclass Blur[T]:
        const int32_t* neighbors
        T center, side
        const T* vertices
        int64_t width, start, stop
        T* blurred
    cdef cppclass Slice[T]:
        const int32_t* vertex_of
        const T* weight_of
        int64_t n_corners
        const T* vertices
        int64_t width, start, stop
        T* points
    void apply[Operation](const Operation&)


def embed_points(
    const floating[:, ::1] features,  # IN (N, d) in units of the bandwidths
    const double[::1] scale,  # IN (d,)
    const int64_t[::1] low,  # IN (d,) offset of the digits of keys
    const int64_t[::1] stride,  # IN (d,) weight of the digits
    Py_ssize_t start,
    Py_ssize_t stop,
    int64_t[:, ::1] keys,  # OUT (N, d + 1)
    floating[:, ::1] weights,  # OUT (N, d + 1) barycentric, rows sum to 1
):
    """Corners of the simplices around points start to stop."""
    cdef Digits digits
    digits.n_axes, digits.scale = <int> features.shape[1], &scale[0]
    digits.low, digits.stride = &low[0], &stride[0]
    if start < stop:
        with nogil:
            embed(&features[0, 0], digits, start, stop, &keys[0, 0], &weights[0, 0])


def insert_keys(
    const int64_t[::1] vertex_key,  # IN
    int64_t n_vertices,
    int64_t[::1] slot_key,  # IN OUT (a power of 2,) -1 where free
    int32_t[::1] slot_vertex,  # IN OUT
):
    """Put vertices that have numbers into an empty table."""
    cdef Table table
    table.key, table.vertex, table.mask = &slot_key[0], &slot_vertex[0], slot_key.shape[0] - 1
    with nogil:
        insert_vertices(&vertex_key[0], n_vertices, table)


def number_keys(
    const int64_t[:, ::1] keys,  # IN (N, d + 1)
    Py_ssize_t first,
    int64_t n_vertices,  # so far
    int64_t[::1] slot_key,  # IN OUT (a power of 2,) -1 where free
    int32_t[::1] slot_vertex,  # IN OUT
    int64_t[::1] vertex_key,  # OUT (at least half as many,)
    int32_t[:, ::1] vertex,  # OUT (N, d + 1)
):
    """Number the vertices of points from `first` on until the table is half full; next point, number of vertices."""
    cdef:
        Table table
        int64_t point
    table.key, table.vertex, table.mask = &slot_key[0], &slot_vertex[0], slot_key.shape[0] - 1
    with nogil:
        point = number_vertices(
            &keys[0, 0], first, keys.shape[0], <int> keys.shape[1], table, &vertex_key[0], &n_vertices, &vertex[0, 0]
        )
    return point, n_vertices


def neighbors_on_axis(
    const int64_t[::1] vertex_key,  # IN
    Py_ssize_t start,
    Py_ssize_t stop,
    const int64_t[::1] stride,  # IN (d,)
    int axis,  # 0 to d
    int64_t[::1] slot_key,  # IN
    int32_t[::1] slot_vertex,  # IN
    int32_t missing,
    int32_t[:, ::1] neighbors,  # OUT (M, 2)
):
    """Neighbours of vertices start to stop along one axis of the lattice."""
    cdef:
        Digits digits
        Table table
    digits.n_axes, digits.stride = <int> stride.shape[0], &stride[0]
    table.key, table.vertex, table.mask = &slot_key[0], &slot_vertex[0], slot_key.shape[0] - 1
    with nogil:
        find_neighbors(&vertex_key[0], start, stop, digits, axis, table, missing, &neighbors[0, 0])


def points_per_vertex(
    const int32_t[:, ::1] vertex,  # IN (N, d + 1)
    int64_t[::1] counts,  # IN OUT (M,) added to
):
    """Number of points of each vertex."""
    with nogil:
        count_points(&vertex[0, 0], vertex.shape[0] * vertex.shape[1], &counts[0])


def points_of_vertices(
    const int32_t[:, ::1] vertex,  # IN (N, d + 1)
    const floating[:, ::1] weights,  # IN (N, d + 1)
    int64_t[::1] next_place,  # IN OUT (M,) where the list of each vertex begins; ends
    int32_t[::1] point_of,  # OUT (N (d + 1),)
    floating[::1] weight_of,  # OUT (N (d + 1),)
):
    """The points of each vertex in their order."""
    with nogil:
        list_points(
            &vertex[0, 0], &weights[0, 0], vertex.shape[0], <int> vertex.shape[1], &next_place[0], &point_of[0],
            &weight_of[0]
        )


def splat(
    const int64_t[::1] ptr,  # IN (M + 1,)
    const int32_t[::1] point_of,  # IN
    const floating[::1] weight_of,  # IN
    const floating[:, ::1] points,  # IN (N, width)
    Py_ssize_t start,
    Py_ssize_t stop,
    floating[:, ::1] vertices,  # OUT (M + 1, width)
):
    """Sums at vertices start to stop over their points."""
    cdef Splat[floating] operation
    if start >= stop:
        return
    operation.ptr, operation.point_of, operation.weight_of = &ptr[0], &point_of[0], &weight_of[0]
    operation.points, operation.vertices = &points[0, 0], &vertices[0, 0]
    operation.width, operation.start, operation.stop = points.shape[1], start, stop
    with nogil:
        apply(operation)


def scatter(
    const int32_t[:, ::1] vertex,  # IN (N, d + 1)
    const floating[:, ::1] weights,  # IN (N, d + 1)
    const floating[:, ::1] points,  # IN (N, width) of width 1, 2 or 4
    Py_ssize_t start,
    Py_ssize_t stop,
    double[:, ::1] totals,  # IN OUT (M, width) added to
):
    """Sums at vertices over points start to stop."""
    cdef Scatter[floating] operation
    if start >= stop:
        return
    operation.vertex_of, operation.weight_of, operation.n_corners = &vertex[0, 0], &weights[0, 0], vertex.shape[1]
    operation.points, operation.width, operation.start, operation.stop = &points[0, 0], points.shape[1], start, stop
    operation.totals = &totals[0, 0]
    with nogil:
        apply(operation)


def add_scattered(
    double[:, :, ::1] parts,  # IN (n_parts, M, width); set to 0
    Py_ssize_t start,
    Py_ssize_t stop,
    floating[:, ::1] vertices,  # OUT (M + 1, width)
):
    """Sums over the parts at vertices start to stop."""
    cdef Py_ssize_t width = parts.shape[2]
    if start >= stop:
        return
    with nogil:
        add_parts(
            &parts[0, 0, 0], parts.shape[0], parts.shape[1] * width, start * width, stop * width, &vertices[0, 0]
        )


def blur(
    const int32_t[:, ::1] neighbors,  # IN (M, 2)
    double center,
    double side,
    const floating[:, ::1] vertices,  # IN (M + 1, width) the last row 0, for missing neighbours
    Py_ssize_t start,
    Py_ssize_t stop,
    floating[:, ::1] blurred,  # OUT (M + 1, width)
):
    """Vertices start to stop and their neighbours along one axis, weighted."""
    cdef Blur[floating] operation
    if start >= stop:
        return
    operation.neighbors = &neighbors[0, 0]
    operation.center, operation.side = <floating> center, <floating> side
    operation.vertices, operation.blurred = &vertices[0, 0], &blurred[0, 0]
    operation.width, operation.start, operation.stop = vertices.shape[1], start, stop
    with nogil:
        apply(operation)


def slice_points(
    const int32_t[:, ::1] vertex,  # IN (N, d + 1)
    const floating[:, ::1] weights,  # IN (N, d + 1)
    const floating[:, ::1] vertices,  # IN (M + 1, width)
    Py_ssize_t start,
    Py_ssize_t stop,
    floating[:, ::1] points,  # OUT (N, width)
):
    """Weighted sums over the corners around points start to stop."""
    cdef Slice[floating] operation
    if start >= stop:
        return
    operation.vertex_of, operation.weight_of, operation.n_corners = &vertex[0, 0], &weights[0, 0], vertex.shape[1]
    operation.vertices, operation.points = &vertices[0, 0], &points[start, 0]
    operation.width, operation.start, operation.stop = vertices.shape[1], start, stop
    with nogil:
        apply(operation)
