"""Passes of labelled mixtures of factor analysers over samples, tile by tile, so that nothing but sums leaves a cache.

With scores ``r_s = log P(c, s, x) = (|z_s|^2 - q_s) / 2 + l_s`` of a sample with class ``c`` and weight ``w``, the
criterion ``a log sum_{s in c} exp r_s - b log sum_s exp r_s`` has the derivative ``a_s = a P(s | c, x) - b P(s | x)``.
Here ``z_s`` and ``l_s`` are linear in ``(x, 1)``, and ``q_s = x' D x`` with the inverse noise of a group of components.
"""

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from scipy.linalg import cython_blas

cdef extern from "mixtures.h" nogil:
    const Py_ssize_t MIXTURE_TILE
    double weigh_tile(double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const int64_t*, const double*,
                      Py_ssize_t, Py_ssize_t, double, double, Py_ssize_t, double*)
    void class_scores_tile(double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const int64_t*,
                           Py_ssize_t, double*)

# Found when it is imported, and not by ``cimport``: SciPy need not be there to build this.
ctypedef void (*Gemm)(char*, char*, int*, int*, int*, double*, double*, int*, double*, int*, double*, double*,
                      int*) noexcept nogil
cdef object capsule = cython_blas.__pyx_capi__["dgemm"]
cdef Gemm gemm = <Gemm> PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))

# Numbers of a tile, which stay in the second cache, and its most samples: products are long enough to be fast.
cdef Py_ssize_t MOST_NUMBERS = 2**16, MOST_SAMPLES = 4 * MIXTURE_TILE


cdef struct Forms:
    const double* linear  # (S (p + 1), d + 1)
    const double* inverse_noise  # (G, d)
    const int64_t* group  # (S,)
    int n_components, n_factors, n_features, n_groups


cdef struct Scratch:
    Py_ssize_t n_samples  # of a tile
    int stride
    double* projected  # (S (p + 1), stride)
    double* quadratic  # (G, stride)
    double* sums  # (G, stride)
    double* squares  # (d, stride)
    double* rows  # (d + 1, stride)


cdef Forms forms_of(
    const double[:, :, ::1] linear, const double[:, ::1] inverse_noise, const int64_t[::1] group
) noexcept nogil:
    cdef Forms forms
    # A sample may have no feature at all.
    forms.inverse_noise = &inverse_noise[0, 0] if inverse_noise.shape[1] else NULL
    forms.linear, forms.group = &linear[0, 0, 0], &group[0]
    forms.n_components, forms.n_factors = <int> linear.shape[0], <int> linear.shape[1] - 1
    forms.n_features, forms.n_groups = <int> inverse_noise.shape[1], <int> inverse_noise.shape[0]
    return forms


cdef Scratch scratch_for(Forms* forms, Py_ssize_t n) except *:
    """Scratch for tiles of n samples, to be freed by its field projected."""
    cdef:
        Scratch scratch
        Py_ssize_t n_rows = forms.n_components * (forms.n_factors + 1) + 2 * (forms.n_groups + forms.n_features) + 1
    scratch.n_samples = max(min(n + MIXTURE_TILE - 1, MOST_SAMPLES, MOST_NUMBERS // n_rows) // MIXTURE_TILE, 1)
    scratch.n_samples *= MIXTURE_TILE
    # Rows at multiples of a page would share the same few lines of the first cache.
    scratch.stride = <int> scratch.n_samples + 8
    scratch.projected = <double*> malloc(n_rows * scratch.stride * sizeof(double))
    if scratch.projected == NULL:
        raise MemoryError
    scratch.quadratic = scratch.projected + forms.n_components * (forms.n_factors + 1) * scratch.stride
    scratch.sums = scratch.quadratic + forms.n_groups * scratch.stride
    scratch.squares = scratch.sums + forms.n_groups * scratch.stride
    scratch.rows = scratch.squares + forms.n_features * scratch.stride
    return scratch


cdef inline void multiply(
    const double* a, int n_rows, int n_inner, const double* b, int b_stride, int n_columns, double* out, int stride
) noexcept nogil:
    """out = a b; a is (n_rows, n_inner)."""
    cdef double one = 1, zero = 0
    cdef int a_stride = max(n_inner, 1)
    gemm(b"N", b"N", &n_columns, &n_rows, &n_inner, &one, <double*> b, &b_stride, <double*> a, &a_stride, &zero, out,
         &stride)


cdef inline void add_products(
    const double* a, int n_rows, int a_stride, const double* b, int n_columns, int b_stride, int n, double* out
) noexcept nogil:
    """out += a b'; a is (n_rows, n), b (n_columns, n), out (n_rows, n_columns)."""
    cdef double one = 1
    gemm(b"T", b"N", &n_columns, &n_rows, &n, &one, <double*> b, &b_stride, <double*> a, &a_stride, &one, out,
         &n_columns)


cdef void project(Forms* forms, const double* samples, int stride, int n, Scratch* scratch) noexcept nogil:
    """z and l of n samples (d + 1, n), their squares and q."""
    cdef:
        Py_ssize_t j, i
        double* squares
        const double* row
    multiply(forms.linear, forms.n_components * (forms.n_factors + 1), forms.n_features + 1, samples, stride, n,
             scratch.projected, scratch.stride)
    for j in range(forms.n_features):
        squares, row = scratch.squares + j * scratch.stride, samples + j * stride
        for i in range(n):
            squares[i] = row[i] * row[i]
    multiply(forms.inverse_noise, forms.n_groups, forms.n_features, scratch.squares, scratch.stride, n,
             scratch.quadratic, scratch.stride)


cdef double weigh(
    Forms* forms, const double* samples, int stride, int n, const double* weight, Py_ssize_t first, Py_ssize_t last,
    double joint, double features, Scratch* scratch
) noexcept nogil:
    """Criterion of a tile; scratch has w a_s z and w a_s in the place of z and l, and sums of w a_s of every group."""
    cdef:
        Py_ssize_t tile, start, k
        double value = 0
    project(forms, samples, stride, n, scratch)
    for k in range(forms.n_groups * scratch.stride):
        scratch.sums[k] = 0
    for tile in range((n + MIXTURE_TILE - 1) // MIXTURE_TILE):
        start = tile * MIXTURE_TILE
        value += weigh_tile(
            scratch.projected + start, forms.n_components, forms.n_factors, scratch.stride, scratch.quadratic + start,
            forms.group, weight + start, first, last, joint, features, min(MIXTURE_TILE, n - start),
            scratch.sums + start
        )
    return value


def weighted_moments(
    const double[:, ::1] samples,  # IN (d + 1, n), the last row is 1
    const double[::1] weight,  # IN (n,) w
    const double[:, :, ::1] linear,  # IN (S, p + 1, d + 1) forms of z and l
    const double[:, ::1] inverse_noise,  # IN (G, d)
    const int64_t[::1] group,  # IN (S,) row of inverse_noise
    Py_ssize_t first,
    Py_ssize_t last,  # components first to last are those of the class of the samples
    double joint,  # a
    double features,  # b
    double[:, :, ::1] moments,  # IN OUT (S, p + 1, d + 1) w a_s (z, 1)(x, 1)' are added
    double[:, ::1] squares,  # IN OUT (G, d) w a_s x^2 are added
):
    """Sums over the samples of one class that gradients need; returns that of w times the criterion."""
    cdef:
        Forms forms = forms_of(linear, inverse_noise, group)
        Scratch scratch = scratch_for(&forms, samples.shape[1])
        Py_ssize_t tile, start
        int n, stride = <int> samples.shape[1]
        double value = 0
    with nogil:
        for tile in range((samples.shape[1] + scratch.n_samples - 1) // scratch.n_samples):
            start = tile * scratch.n_samples
            n = <int> min(scratch.n_samples, samples.shape[1] - start)
            value += weigh(&forms, &samples[0, start], stride, n, &weight[start], first, last, joint, features,
                           &scratch)
            add_products(scratch.projected, forms.n_components * (forms.n_factors + 1), scratch.stride,
                         &samples[0, start], forms.n_features + 1, stride, n, &moments[0, 0, 0])
            if forms.n_features:
                add_products(scratch.sums, forms.n_groups, scratch.stride, scratch.squares, forms.n_features,
                             scratch.stride, n, &squares[0, 0])
        free(scratch.projected)
    return value


def second_moments(
    const double[:, ::1] samples,  # IN (d + 1, n), the last row is 1
    const double[::1] weight,  # IN (n,) w
    const double[:, :, ::1] linear,  # IN (S, p + 1, d + 1) forms of z and l
    const double[:, ::1] inverse_noise,  # IN (G, d)
    const int64_t[::1] group,  # IN (S,) row of inverse_noise
    double[:, :, ::1] moments,  # IN OUT (S, d + 1, d + 1) w P(s | c, x) (x, 1)(x, 1)' are added
):
    """Sums over the samples of one class, which has all components; returns that of w log P(c, x)."""
    cdef:
        Forms forms = forms_of(linear, inverse_noise, group)
        Scratch scratch = scratch_for(&forms, samples.shape[1])
        Py_ssize_t tile, start, s, j, i
        int n, stride = <int> samples.shape[1]
        double value = 0
        double* posteriors
        double* out
    with nogil:
        for tile in range((samples.shape[1] + scratch.n_samples - 1) // scratch.n_samples):
            start = tile * scratch.n_samples
            n = <int> min(scratch.n_samples, samples.shape[1] - start)
            value += weigh(&forms, &samples[0, start], stride, n, &weight[start], 0, forms.n_components, 1, 0,
                           &scratch)
            for s in range(forms.n_components):
                posteriors = scratch.projected + (s * (forms.n_factors + 1) + forms.n_factors) * scratch.stride
                for j in range(forms.n_features + 1):
                    out = scratch.rows + j * scratch.stride
                    for i in range(n):
                        out[i] = posteriors[i] * samples[j, start + i]
                add_products(scratch.rows, forms.n_features + 1, scratch.stride, &samples[0, start],
                             forms.n_features + 1, stride, n, &moments[s, 0, 0])
        free(scratch.projected)
    return value


def class_scores(
    const double[:, :] X,  # IN (n, d)
    const double[::1] shift,  # IN (d,) taken from X
    const double[:, :, ::1] linear,  # IN (S, p + 1, d + 1) forms of z and l
    const double[:, ::1] inverse_noise,  # IN (G, d)
    const int64_t[::1] group,  # IN (S,) row of inverse_noise
    double[:, ::1] out,  # OUT (n, C) log sum of exp r_s over the components of a class
):
    """Log-densities of samples and classes, which have equal numbers of components."""
    cdef:
        Forms forms = forms_of(linear, inverse_noise, group)
        Scratch scratch = scratch_for(&forms, X.shape[0])
        Py_ssize_t tile, start, i, j, k, part, n_classes = out.shape[1], n_own = linear.shape[0] // out.shape[1]
        int n
    with nogil:
        for tile in range((X.shape[0] + scratch.n_samples - 1) // scratch.n_samples):
            start = tile * scratch.n_samples
            n = <int> min(scratch.n_samples, X.shape[0] - start)
            for i in range(n):
                for j in range(forms.n_features):
                    scratch.rows[j * scratch.stride + i] = X[start + i, j] - shift[j]
                scratch.rows[forms.n_features * scratch.stride + i] = 1
            project(&forms, scratch.rows, scratch.stride, n, &scratch)
            for k in range((n + MIXTURE_TILE - 1) // MIXTURE_TILE):
                part = k * MIXTURE_TILE
                class_scores_tile(
                    scratch.projected + part, n_classes, n_own, forms.n_factors, scratch.stride,
                    scratch.quadratic + part, forms.group, min(MIXTURE_TILE, n - part), &out[start + part, 0]
                )
        free(scratch.projected)


cdef struct Clusters:
    int n_clusters, n_features
    double* centres  # (K, d)
    double* squares  # (K,) |c|^2
    double* sums  # (K, d) weighted sums of the samples of each centre
    double* totals  # (K,) their weights
    double* products  # (K, MOST_SAMPLES) of centres and the samples of a tile
    double inertia  # weighted sum of squared distances
    Py_ssize_t farthest  # sample from its centre


cdef bint assign_to_nearest(
    Clusters* found, const double[:, ::1] X, const double[::1] weight, int64_t[::1] labels
) noexcept nogil:
    """Labels and sums for given centres; whether a label has changed."""
    cdef:
        Py_ssize_t tile, start, i, j, k, own
        int n, stride = <int> MOST_SAMPLES
        double best, score, square, w, largest = -1, one = 1, zero = 0
        const double* x
        bint changed = False
    found.inertia = found.farthest = 0
    for k in range(found.n_clusters):
        found.squares[k] = found.totals[k] = 0
        for j in range(found.n_features):
            found.squares[k] += found.centres[k * found.n_features + j] ** 2
            found.sums[k * found.n_features + j] = 0
    for tile in range((X.shape[0] + MOST_SAMPLES - 1) // MOST_SAMPLES):
        start = tile * MOST_SAMPLES
        n = <int> min(MOST_SAMPLES, X.shape[0] - start)
        gemm(b"T", b"N", &n, &found.n_clusters, &found.n_features, &one, <double*> &X[start, 0], &found.n_features,
             found.centres, &found.n_features, &zero, found.products, &stride)
        for i in range(n):
            own, best = 0, found.squares[0] - 2 * found.products[i]
            for k in range(1, found.n_clusters):
                score = found.squares[k] - 2 * found.products[k * MOST_SAMPLES + i]
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
    """Centres to the means of their samples, an empty one to the farthest sample; sum of the squares of their steps."""
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
    double tol,  # sum of the squares of the steps of centres from which on they stand still
):
    """Lloyd's iterations; returns the weighted sum of squared distances."""
    cdef:
        Clusters found
        Py_ssize_t i, _, n_clusters = centres.shape[0], size = centres.shape[0] * centres.shape[1]
        double* scratch = <double*> malloc((size + n_clusters * (MOST_SAMPLES + 2)) * sizeof(double))
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
