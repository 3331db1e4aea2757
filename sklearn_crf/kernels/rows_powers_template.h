/* Included by rows_template.h: functions that compute exponentials and logarithms of whole rows. */

#define VECTOR V
#define BITS NAME(bits)
#if ROWS_VECTORS
typedef UNSIGNED BITS __attribute__((vector_size(16)));
#endif
#define MATH_NAME(name) NAME(name)
#define MATH_INLINE ROWS_INLINE
#define MATH_FUNCTION static
#include "vector_math_template.h"
#undef VECTOR
#undef BITS
#undef MATH_NAME
#undef MATH_INLINE
#undef MATH_FUNCTION

/* Call odds_messages with the widest vectors that are available. */
ROWS_INLINE void NAME(send_odds)(const REAL *odds, const REAL *coupling, const REAL *power, ptrdiff_t n, REAL total,
                                 REAL *fresh)
{
#if ROWS_DISPATCH
    if (use_avx2()) {
        NAME(wide_odds_messages)(odds, coupling, power, n, total, fresh);
        return;
    }
#endif
    NAME(odds_messages)(odds, coupling, power, n, total, fresh);
}

/* Apply an elementwise function with the widest vectors that are available; n is a multiple of 16 bytes. */
ROWS_INLINE void NAME(exponentiate_all)(REAL *x, ptrdiff_t n)
{
#if ROWS_DISPATCH
    if (use_avx2()) {
        const ptrdiff_t whole = n & -(2 * LANES);
        NAME(wide_exp_of_all)(x, whole);
        x += whole;
        n -= whole;
    }
#endif
    NAME(exp_of_all)(x, n);
}

ROWS_INLINE void NAME(logarithms)(const REAL *x, ptrdiff_t n, REAL *out)
{
#if ROWS_DISPATCH
    if (use_avx2()) {
        NAME(wide_log_of_all)(x, n, out);
        return;
    }
#endif
    NAME(log_of_all)(x, n, out);
}

/* Square roots are correctly rounded; general powers have errors of a few units in the last place. */
ROWS_INLINE V NAME(square_root)(V x)
{
#if ROWS_SSE2
    return (V)ROOT_INSTRUCTION(x);
#elif ROWS_VECTORS
    for (int l = 0; l < LANES; l++)
        x[l] = ROOT(x[l]);
    return x;
#else
    return ROOT(x);
#endif
}

/* x where possible, else 0 */
ROWS_INLINE V NAME(where_normal)(V x, V possible)
{
#if ROWS_VECTORS
    return (V)((INTEGERS)x & (INTEGERS)(possible >= LEAST_NORMAL));
#else
    return possible >= LEAST_NORMAL ? x : 0;
#endif
}

/* row = row to a power, 0 if the row is 0 or subnormal. A power of 1/2 needs no logarithm: it occurs for edges that
   are in half of the trees, as all edges of a grid are with probabilities of chains. */
ROWS_INLINE void NAME(row_power)(REAL *row, REAL power, ptrdiff_t width)
{
    for (ptrdiff_t j = 0; j < width; j += LANES) {
        const V x = NAME(load)(row + j);
        V raised;
        if (power == (REAL)0.5)
            raised = NAME(square_root)(x);
        else if (power == -1)
            raised = 1 / x;
        else
            raised = NAME(vector_exp)(power * NAME(vector_log)(x));
        NAME(store)(row + j, NAME(where_normal)(raised, x));
    }
}
