"""Passes of labelled mixtures of factor analysers over samples, and k-means for their initialisation."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from sklearn_crf.kernels.core.blas cimport Blas, blas
from sklearn_crf.kernels.core.pool cimport Threads, threads_of

cdef extern from "mixtures.hpp" namespace "crf" nogil:
    cdef cppclass Forms:
        const double* linear
        const double* inverse_noise
        const int64_t* group
        int64_t n_components, n_factors, n_features
        const Blas* blas
    cdef cppclass Blocks:
        const double* samples
        const double* weight
        const int64_t* ptr
        const int64_t* label
        int64_t n_blocks
    cdef cppclass Criterion:
        int64_t n_own
        double joint, features
    cdef cppclass Rows:
        const double* X
        int64_t row_step, column_step
        const int64_t* row
        const int64_t* column
        const double* shift
        int64_t n
    double add_weighted_moments "crf::weighted_moments"(
        const Forms&, const Blocks&, const Criterion&, double*, double*, const Threads&
    ) except +
    double add_second_moments "crf::second_moments"(
        const Forms&, const Blocks&, int64_t, double*, const Threads&
    ) except +
    void add_class_moments "crf::class_moments"(const Forms&, const Blocks&, double*, const Threads&) except +
    void write_class_scores "crf::class_scores"(const Forms&, const Rows&, int64_t, double*, const Threads&) except +

# Number of samples that k-means compares with all centres at once.
cdef Py_ssize_t AT_ONCE = 512


cdef Forms forms_of(const double[:, :, ::1] linear, const double[:, ::1] inverse_noise, const int64_t[::1] group):
    cdef Forms forms
    # Samples may have no features.
    forms.inverse_noise = &inverse_noise[0, 0] if inverse_noise.shape[1] else NULL
    forms.linear, forms.group = &linear[0, 0, 0], &group[0]
    forms.n_components, forms.n_factors = linear.shape[0], linear.shape[1] - 1
    forms.n_features, forms.blas = inverse_noise.shape[1], &blas
    return forms


cdef Blocks blocks_of(tuple arrays):
    cdef:
        Blocks blocks
        const double[::1] samples = arrays[0], weight = arrays[1]
        const int64_t[::1] ptr = arrays[2], label = arrays[3]
    blocks.n_blocks = label.shape[0]
    if blocks.n_blocks:
        blocks.samples, blocks.weight = &samples[0], &weight[0]
        blocks.ptr, blocks.label = &ptr[0], &label[0]
    return blocks


def weighted_moments(
    tuple blocks,  # IN concatenated blocks (d + 1, n), weights w (N,), first sample of each block, class of each block
    const double[:, :, ::1] linear,  # IN (S, p + 1, d + 1) forms of z and l
    const double[:, ::1] inverse_noise,  # IN (G, d)
    const int64_t[::1] group,  # IN (S,) row of inverse_noise, ascending
    int64_t n_own,  # number of components of a class
    double joint,  # a
    double features,  # b
    double[:, :, ::1] moments,  # IN OUT (S, p + 1, d + 1) w a_s (z, 1)(x, 1)' is added
    double[:, ::1] squares,  # IN OUT (G, d) w a_s x^2 is added
    int n_threads,
):
    """Add the sums over samples that gradients need; return the sum of w times the criterion."""
    cdef:
        Threads threads = threads_of(n_threads)
        Forms forms = forms_of(linear, inverse_noise, group)
        Blocks samples = blocks_of(blocks)
        Criterion criterion
        double value
        double* by_squares = &squares[0, 0] if squares.shape[1] else NULL
    criterion.n_own, criterion.joint, criterion.features = n_own, joint, features
    with nogil:
        value = add_weighted_moments(forms, samples, criterion, &moments[0, 0, 0], by_squares, threads)
    return value


def second_moments(
    tuple blocks,  # IN as above
    const double[:, :, ::1] linear,  # IN (S, p + 1, d + 1) forms of z and l
    const double[:, ::1] inverse_noise,  # IN (G, d)
    const int64_t[::1] group,  # IN (S,) row of inverse_noise, ascending
    int64_t n_own,  # number of components of a class
    double[:, :, ::1] moments,  # IN OUT (S, d + 1, d + 1) w P(s | c, x) (x, 1)(x, 1)' is added
    int n_threads,
):
    """Add second moments of samples; return the sum of w log P(c, x)."""
    cdef:
        Threads threads = threads_of(n_threads)
        Forms forms = forms_of(linear, inverse_noise, group)
        Blocks samples = blocks_of(blocks)
        double value
    with nogil:
        value = add_second_moments(forms, samples, n_own, &moments[0, 0, 0], threads)
    return value


def class_moments(
    tuple blocks,  # IN as above
    double[:, :, ::1] moments,  # IN OUT (C, d + 1, d + 1) w (x, 1)(x, 1)' is added
    int n_threads,
):
    """Add second moments of the samples of each class."""
    cdef:
        Threads threads = threads_of(n_threads)
        Forms forms
        Blocks samples = blocks_of(blocks)
    forms.n_features, forms.blas = moments.shape[1] - 1, &blas
    with nogil:
        add_class_moments(forms, samples, &moments[0, 0, 0], threads)


def class_scores(
    const double[:, :] X,  # IN (N, d of all features)
    const int64_t[::1] rows,  # IN (n,) rows to score, or None for all
    const int64_t[::1] features,  # IN (d,) features that the forms use, or None for all
    const double[::1] shift,  # IN (d,) subtracted from the features
    const double[:, :, ::1] linear,  # IN (S, p + 1, d + 1) forms of z and l
    const double[:, ::1] inverse_noise,  # IN (G, d)
    const int64_t[::1] group,  # IN (S,) row of inverse_noise, ascending
    double[:, ::1] out,  # OUT (N, C) log sum of exp r_s over the components of a class
    int n_threads,
):
    """Compute the log-density of each sample and class. Classes have equally many components."""
    cdef:
        Threads threads = threads_of(n_threads)
        Forms forms = forms_of(linear, inverse_noise, group)
        Rows some
    some.row = some.column = NULL
    some.n = X.shape[0]
    if rows is not None:
        some.n, some.row = rows.shape[0], &rows[0] if rows.shape[0] else NULL
    if features is not None and features.shape[0]:
        some.column = &features[0]
    if some.n == 0:
        return
    some.X = &X[0, 0] if X.shape[1] else NULL
    some.row_step, some.column_step = X.strides[0] // 8, X.strides[1] // 8
    some.shift = &shift[0] if shift.shape[0] else NULL
    with nogil:
        write_class_scores(forms, some, out.shape[1], &out[0, 0], threads)


cdef struct Clusters:
    int n_clusters, n_features
    double* centres  # (K, d)
    double* squares  # (K,) |c|^2
    double* sums  # (K, d) weighted sums of the samples of each centre
    double* totals  # (K,) total weight of the samples of each centre
    double* products  # (K, AT_ONCE) inner products of centres and the samples of a tile
    double inertia  # weighted sum of squared distances
    Py_ssize_t farthest  # index of the sample farthest from its centre


cdef bint assign_to_nearest(
    Clusters* found, const double[:, ::1] X, const double[::1] weight, int64_t[::1] labels
) noexcept nogil:
    """Compute labels and sums for given centres; return whether any label has changed."""
    cdef:
        Py_ssize_t tile, start, i, j, k, own
        int n
        double best, score, square, w, largest = -1
        const double* x
        bint changed = False
    found.inertia = found.farthest = 0
    for k in range(found.n_clusters):
        found.squares[k] = found.totals[k] = 0
        for j in range(found.n_features):
            found.squares[k] += found.centres[k * found.n_features + j] ** 2
            found.sums[k * found.n_features + j] = 0
    for tile in range((X.shape[0] + AT_ONCE - 1) // AT_ONCE):
        start = tile * AT_ONCE
        n = <int> min(AT_ONCE, X.shape[0] - start)
        blas.multiply(b"T", b"N", n, found.n_clusters, found.n_features, &X[start, 0], found.n_features,
                      found.centres, found.n_features, 0, found.products, AT_ONCE)
        for i in range(n):
            own, best = 0, found.squares[0] - 2 * found.products[i]
            for k in range(1, found.n_clusters):
                score = found.squares[k] - 2 * found.products[k * AT_ONCE + i]
                if score < best:
                    own, best = k, score
            changed |= labels[start + i] != own
            labels[start + i] = own
            x, w, square = &X[start + i, 0], weight[start + i], 0
            found.totals[own] += w
            for j in range(found.n_features):
                square += x[j] * x[j]
                found.sums[own * found.n_features + j] += w * x[j]
            found.inertia += w * (best + square)
            if best + square > largest:
                largest, found.farthest = best + square, start + i
    return changed


cdef double move_centres(
    Clusters* found, const double[:, ::1] X, const double[::1] weight, const int64_t[::1] labels
) noexcept nogil:
    """Move centres to the means of their samples; return the squared steps.

    A centre without samples moves to the sample that is farthest from its centre.
    """
    cdef:
        Py_ssize_t j, k, other = labels[found.farthest]
        double w = weight[found.farthest], length = 0, mean
    for k in range(found.n_clusters):
        if found.totals[k] == 0 and found.totals[other] > w:
            for j in range(found.n_features):
                found.sums[k * found.n_features + j] = w * X[found.farthest, j]
                found.sums[other * found.n_features + j] -= w * X[found.farthest, j]
            found.totals[k] = w
            found.totals[other] -= w
            break
    for k in range(found.n_clusters):
        if found.totals[k] > 0:
            for j in range(found.n_features):
                mean = found.sums[k * found.n_features + j] / found.totals[k]
                length += (mean - found.centres[k * found.n_features + j]) ** 2
                found.centres[k * found.n_features + j] = mean
    return length


def k_means(
    const double[:, ::1] X,  # IN (n, d)
    const double[::1] weight,  # IN (n,)
    double[:, ::1] centres,  # IN OUT (K, d)
    int64_t[::1] labels,  # OUT (n,) the nearest centre of each sample
    Py_ssize_t max_iter,
    double tol,  # sum of squared steps of centres at which to stop
):
    """Run Lloyd's iterations; return the weighted sum of squared distances."""
    cdef:
        Clusters found
        Py_ssize_t i, _, n_clusters = centres.shape[0], size = centres.shape[0] * centres.shape[1]
        double* scratch = <double*> malloc((size + n_clusters * (AT_ONCE + 2)) * sizeof(double))
    if scratch == NULL:
        raise MemoryError
    found.n_clusters, found.n_features = <int> n_clusters, <int> centres.shape[1]
    found.centres, found.sums, found.squares = &centres[0, 0], scratch, scratch + size
    found.totals, found.products = found.squares + n_clusters, found.squares + 2 * n_clusters
    with nogil:
        for i in range(labels.shape[0]):
            labels[i] = -1
        for _ in range(max_iter):
            if not assign_to_nearest(&found, X, weight, labels):
                break
            if move_centres(&found, X, weight, labels) <= tol:
                assign_to_nearest(&found, X, weight, labels)
                break
        free(scratch)
    return found.inertia
