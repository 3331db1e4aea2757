"""The functions of rows.h under one name for both precisions."""

from cython cimport floating

cdef extern from "rows.h" nogil:
    const Py_ssize_t VECTOR_BYTES "ROWS_VECTOR_BYTES"
    void prefetch "ROWS_PREFETCH" (const void*)
    void exponentiate_all_float(float*, Py_ssize_t)
    void exponentiate_all_double(double*, Py_ssize_t)
    void logarithms "logarithms_double" (const double*, Py_ssize_t, double*)
    float row_sum_float(const float*, Py_ssize_t)
    double row_sum_double(const double*, Py_ssize_t)
    float row_max_float(const float*, Py_ssize_t)
    double row_max_double(const double*, Py_ssize_t)
    void row_scale_float(float*, float, Py_ssize_t)
    void row_scale_double(double*, double, Py_ssize_t)
    float row_dot_float(const float*, const float*, Py_ssize_t)
    double row_dot_double(const double*, const double*, Py_ssize_t)
    void row_power_float(float*, float, Py_ssize_t)
    void row_power_double(double*, double, Py_ssize_t)
    void send_odds_float(const float*, const float*, const float*, Py_ssize_t, float, float*)
    void send_odds_double(const double*, const double*, const double*, Py_ssize_t, double, double*)
    void row_quotient_float(const float*, const float*, Py_ssize_t, float*)
    void row_quotient_double(const double*, const double*, Py_ssize_t, double*)
    float row_below_best_float(const float*, Py_ssize_t, Py_ssize_t, float*)
    double row_below_best_double(const double*, Py_ssize_t, Py_ssize_t, double*)
    void product_of_rows_float(const float*, const float*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, float*)
    void product_of_rows_double(const double*, const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, double*)
    void sum_of_rows_float(const float*, const float*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, float*)
    void sum_of_rows_double(const double*, const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, double*)
    void sum_product_float(const float*, const float*, Py_ssize_t, Py_ssize_t, float*)
    void sum_product_across_float(const float*, const float*, Py_ssize_t, Py_ssize_t, float*)
    void sum_product_double(const double*, const double*, Py_ssize_t, Py_ssize_t, double*)
    void sum_product_across_double(const double*, const double*, Py_ssize_t, Py_ssize_t, double*)
    void max_sum_float(const float*, const float*, Py_ssize_t, Py_ssize_t, float*)
    void max_sum_across_float(const float*, const float*, Py_ssize_t, Py_ssize_t, float*)
    void max_sum_double(const double*, const double*, Py_ssize_t, Py_ssize_t, double*)
    void max_sum_across_double(const double*, const double*, Py_ssize_t, Py_ssize_t, double*)
    void potts_sum_product_float(const float*, float, float, Py_ssize_t, Py_ssize_t, float*)
    void potts_sum_product_double(const double*, double, double, Py_ssize_t, Py_ssize_t, double*)
    void potts_max_sum_float(const float*, float, float, Py_ssize_t, Py_ssize_t, float*)
    void potts_max_sum_double(const double*, double, double, Py_ssize_t, Py_ssize_t, double*)
    double replace_probabilities_float(const float*, float*, Py_ssize_t, double)
    double replace_probabilities_double(const double*, double*, Py_ssize_t, double)
    double replace_scores_float(float*, float*, Py_ssize_t, double)
    double replace_scores_double(double*, double*, Py_ssize_t, double)
    float exponentiate_float(float*, Py_ssize_t, Py_ssize_t)
    double exponentiate_double(double*, Py_ssize_t, Py_ssize_t)
    double send_short_float(
        const float*, const float*, Py_ssize_t, Py_ssize_t, Py_ssize_t, const float*, float, float, Py_ssize_t,
        Py_ssize_t, float*, double, Py_ssize_t, bint)
    double send_short_double(
        const double*, const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, double, double, Py_ssize_t,
        Py_ssize_t, double*, double, Py_ssize_t, bint)
    void add_outer_float(const float*, double, const double*, Py_ssize_t, Py_ssize_t, double*)
    void add_outer_double(const double*, double, const double*, Py_ssize_t, Py_ssize_t, double*)


cdef inline floating row_sum(const floating* row, Py_ssize_t width) noexcept nogil:
    if floating is float:
        return row_sum_float(row, width)
    else:
        return row_sum_double(row, width)


cdef inline floating row_max(const floating* row, Py_ssize_t width) noexcept nogil:
    if floating is float:
        return row_max_float(row, width)
    else:
        return row_max_double(row, width)


cdef inline void row_scale(floating* row, floating factor, Py_ssize_t width) noexcept nogil:
    if floating is float:
        row_scale_float(row, factor, width)
    else:
        row_scale_double(row, factor, width)


cdef inline void product_of_rows(
    const floating* base, const floating* rows, Py_ssize_t first, Py_ssize_t last, Py_ssize_t skip,
    Py_ssize_t width, floating* out
) noexcept nogil:
    if floating is float:
        product_of_rows_float(base, rows, first, last, skip, width, out)
    else:
        product_of_rows_double(base, rows, first, last, skip, width, out)


cdef inline void sum_of_rows(
    const floating* base, const floating* rows, Py_ssize_t first, Py_ssize_t last, Py_ssize_t skip,
    Py_ssize_t width, floating* out
) noexcept nogil:
    if floating is float:
        sum_of_rows_float(base, rows, first, last, skip, width, out)
    else:
        sum_of_rows_double(base, rows, first, last, skip, width, out)


cdef inline void sum_product(
    const floating* table, const floating* x, Py_ssize_t n, Py_ssize_t width, floating* out
) noexcept nogil:
    if floating is float:
        sum_product_float(table, x, n, width, out)
    else:
        sum_product_double(table, x, n, width, out)


cdef inline void sum_product_across(
    const floating* table, const floating* x, Py_ssize_t n, Py_ssize_t width, floating* out
) noexcept nogil:
    if floating is float:
        sum_product_across_float(table, x, n, width, out)
    else:
        sum_product_across_double(table, x, n, width, out)


cdef inline void max_sum(
    const floating* table, const floating* x, Py_ssize_t n, Py_ssize_t width, floating* out
) noexcept nogil:
    if floating is float:
        max_sum_float(table, x, n, width, out)
    else:
        max_sum_double(table, x, n, width, out)


cdef inline void max_sum_across(
    const floating* table, const floating* x, Py_ssize_t n, Py_ssize_t width, floating* out
) noexcept nogil:
    if floating is float:
        max_sum_across_float(table, x, n, width, out)
    else:
        max_sum_across_double(table, x, n, width, out)


cdef inline void potts_sum_product(
    const floating* x, floating on, floating off, Py_ssize_t n, Py_ssize_t width, floating* out
) noexcept nogil:
    if floating is float:
        potts_sum_product_float(x, on, off, n, width, out)
    else:
        potts_sum_product_double(x, on, off, n, width, out)


cdef inline void potts_max_sum(
    const floating* x, floating on, floating off, Py_ssize_t n, Py_ssize_t width, floating* out
) noexcept nogil:
    if floating is float:
        potts_max_sum_float(x, on, off, n, width, out)
    else:
        potts_max_sum_double(x, on, off, n, width, out)


cdef inline double replace_probabilities(
    const floating* fresh, floating* kept, Py_ssize_t width, double damping
) noexcept nogil:
    if floating is float:
        return replace_probabilities_float(fresh, kept, width, damping)
    else:
        return replace_probabilities_double(fresh, kept, width, damping)


cdef inline double replace_scores(
    floating* fresh, floating* kept, Py_ssize_t width, double damping
) noexcept nogil:
    if floating is float:
        return replace_scores_float(fresh, kept, width, damping)
    else:
        return replace_scores_double(fresh, kept, width, damping)


cdef inline floating exponentiate(floating* x, Py_ssize_t n, Py_ssize_t width) noexcept nogil:
    if floating is float:
        return exponentiate_float(x, n, width)
    else:
        return exponentiate_double(x, n, width)


cdef inline void exponentiate_all(floating* x, Py_ssize_t n) noexcept nogil:
    if floating is float:
        exponentiate_all_float(x, n)
    else:
        exponentiate_all_double(x, n)


cdef inline double send_short(
    const floating* base, const floating* rows, Py_ssize_t first, Py_ssize_t last, Py_ssize_t skip,
    const floating* table, floating on, floating off, Py_ssize_t n, Py_ssize_t n_columns, floating* kept,
    double damping, Py_ssize_t width, bint halved
) noexcept nogil:
    if floating is float:
        return send_short_float(
            base, rows, first, last, skip, table, on, off, n, n_columns, kept, damping, width, halved)
    else:
        return send_short_double(
            base, rows, first, last, skip, table, on, off, n, n_columns, kept, damping, width, halved)


cdef inline void add_outer(
    const floating* x, double scale, const double* y, Py_ssize_t n, Py_ssize_t width, double* accumulated
) noexcept nogil:
    if floating is float:
        add_outer_float(x, scale, y, n, width, accumulated)
    else:
        add_outer_double(x, scale, y, n, width, accumulated)


cdef inline floating row_dot(const floating* x, const floating* y, Py_ssize_t width) noexcept nogil:
    if floating is float:
        return row_dot_float(x, y, width)
    else:
        return row_dot_double(x, y, width)


cdef inline void row_quotient(const floating* x, const floating* y, Py_ssize_t width, floating* out) noexcept nogil:
    if floating is float:
        row_quotient_float(x, y, width, out)
    else:
        row_quotient_double(x, y, width, out)


cdef inline floating row_below_best(const floating* row, Py_ssize_t n, Py_ssize_t width, floating* out) noexcept nogil:
    if floating is float:
        return row_below_best_float(row, n, width, out)
    else:
        return row_below_best_double(row, n, width, out)


cdef inline void row_power(floating* row, floating power, Py_ssize_t width) noexcept nogil:
    if floating is float:
        row_power_float(row, power, width)
    else:
        row_power_double(row, power, width)


cdef inline void odds_from_node(
    const floating* odds, const floating* coupling, const floating* power, Py_ssize_t n, floating total, floating* fresh
) noexcept nogil:
    if floating is float:
        send_odds_float(odds, coupling, power, n, total, fresh)
    else:
        send_odds_double(odds, coupling, power, n, total, fresh)
