"""Stages of learned filters: restoration of images, and gradient of the squared error of restored images."""

from cython cimport floating
from libc.stdint cimport int64_t

from sklearn_crf.kernels.core.pool cimport Threads, threads_of


# Uses the vector types of sklearn_crf.kernels.dense.
cdef extern from "diffusion.hpp" namespace "crf" nogil:
    cdef cppclass StageLayout:
        int64_t n_stages, n_filters, side, n_knots
        int64_t n_params()
    cdef cppclass Diffusion[T]:
        Diffusion(const StageLayout&, T, T, const T*) except +
        void restore(T*, int64_t, int64_t, const Threads&) except +
        void lose(
            const T*, const T*, int64_t, int64_t, int64_t, int64_t, double*, double*, const Threads&
        ) except +


cdef StageLayout layout_of(sizes) except *:
    cdef StageLayout layout
    layout.n_stages, layout.n_filters, layout.side, layout.n_knots = sizes
    return layout


def restore_image(
    sizes,  # IN numbers of stages, filters, rows of a filter, knots of its influence
    const floating[::1] params,  # IN of each stage: filters, influences at the knots, pull
    double first,  # IN first knot, and spacing of the knots
    double step,
    floating[:, ::1] image,  # IN OUT
    int n_threads,
):
    """Restore an image in place by all stages."""
    cdef:
        StageLayout layout = layout_of(sizes)
        Threads threads = threads_of(n_threads)
        Diffusion[floating]* diffusion
    if params.shape[0] != layout.n_params() or not image.size:
        raise ValueError("params and image do not fit sizes.")
    diffusion = new Diffusion[floating](layout, <floating> first, <floating> step, &params[0])
    try:
        with nogil:
            diffusion.restore(&image[0, 0], image.shape[0], image.shape[1], threads)
    finally:
        del diffusion


def squared_errors(
    sizes,
    const floating[::1] params,  # IN
    double first,
    double step,
    const floating[:, :, ::1] given,  # IN (n, H, W)
    const floating[:, :, ::1] target,  # IN (n, H, W)
    int64_t margin,  # IN width of the border that is ignored
    double[::1] losses,  # OUT (n,)
    double[::1] gradient,  # OUT gradient of params, added to; or empty
    int n_threads,
):
    """Compute the squared errors of restored images, and their gradient with respect to all parameters."""
    cdef:
        StageLayout layout = layout_of(sizes)
        Threads threads = threads_of(n_threads)
        Diffusion[floating]* diffusion
        int64_t n = given.shape[0]
        bint fits = given.size and target.size == given.size and losses.shape[0] == n
    if not fits or params.shape[0] != layout.n_params() or gradient.shape[0] not in (0, params.shape[0]):
        raise ValueError("params, images and results do not fit sizes.")
    diffusion = new Diffusion[floating](layout, <floating> first, <floating> step, &params[0])
    try:
        with nogil:
            diffusion.lose(
                &given[0, 0, 0], &target[0, 0, 0], n, given.shape[1], given.shape[2], margin, &losses[0],
                &gradient[0] if gradient.shape[0] else NULL, threads,
            )
    finally:
        del diffusion
