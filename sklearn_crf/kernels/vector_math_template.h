/* Included once for each precision and length of vectors. */

/* Exponential and logarithm of whole vectors, with errors of at most two units in the last place. (The C library has
   functions of single numbers only.) VECTOR and BITS are types of vectors of REAL and of unsigned integers. MATH_INLINE
   sets the target processor of the functions. All other macros are defined with the precision. */
#if ROWS_VECTORS
#define BITS_OF_ONE ((UNSIGNED)BIAS << MANTISSA)
/* Adding and subtracting this constant rounds to an integer; after the addition, the last bits hold this integer. */
#define ROUNDING ((REAL)1.5 * (REAL)((UNSIGNED)1 << MANTISSA))

/* exp(x); about the smallest normal number if the result would be smaller */
MATH_INLINE VECTOR MATH_NAME(vector_exp)(VECTOR x)
{
    const VECTOR least = (VECTOR){0} - (REAL)(0.6931 * (BIAS - 2));
    const BITS low = (BITS)(x < least);
    VECTOR rounded, r, r2, r4, p;
    x = (VECTOR)((~low & (BITS)x) | (low & (BITS)least));
    rounded = x * (REAL)1.44269504088896340736 + ROUNDING;
    r = rounded - ROUNDING;
    /* log 2 in two parts; the first has few bits, so that its product with the integer is exact */
    r = (x - r * LOG2_HIGH) - r * LOG2_LOW;
    r2 = r * r;
    r4 = r2 * r2;
    /* Taylor series to r^12, summed in pairs: in Horner's scheme, each step would wait for the previous step. */
    p = (1 + r + r2 * ((REAL)(1.0 / 2) + r * (REAL)(1.0 / 6)))
        + r4 * (((REAL)(1.0 / 24) + r * (REAL)(1.0 / 120)) + r2 * ((REAL)(1.0 / 720) + r * (REAL)(1.0 / 5040))
                + r4 * (((REAL)(1.0 / 40320) + r * (REAL)(1.0 / 362880))
                        + r2 * ((REAL)(1.0 / 3628800) + r * (REAL)(1.0 / 39916800)) + r4 * (REAL)(1.0 / 479001600)));
    return (VECTOR)((BITS)p + ((BITS)rounded << MANTISSA));
}

/* log(x) for normal positive x */
MATH_INLINE VECTOR MATH_NAME(vector_log)(VECTOR x)
{
    /* x = m 2^e with m from sqrt(1/2) to sqrt(2); exponent is e + BIAS */
    const BITS exponent = ((BITS)x - SQRT_HALF_BITS + BITS_OF_ONE) >> MANTISSA;
    const VECTOR m = (VECTOR)((BITS)x - (exponent << MANTISSA) + BITS_OF_ONE);
    /* Convert the integer by writing it to the last bits of 2^MANTISSA. */
    const VECTOR e = (VECTOR)(exponent | ((UNSIGNED)(BIAS + MANTISSA) << MANTISSA))
        - (REAL)(((UNSIGNED)1 << MANTISSA) + BIAS);
    /* log m = 2 artanh f */
    const VECTOR f = (m - 1) / (m + 1), s = f * f, s2 = s * s, s4 = s2 * s2;
    const VECTOR series = ((REAL)(2.0 / 3) + s * (REAL)(2.0 / 5)) + s2 * ((REAL)(2.0 / 7) + s * (REAL)(2.0 / 9))
        + s4 * (((REAL)(2.0 / 11) + s * (REAL)(2.0 / 13)) + s2 * ((REAL)(2.0 / 15) + s * (REAL)(2.0 / 17))
                + s4 * ((REAL)(2.0 / 19) + s * (REAL)(2.0 / 21)));
    return e * LOG2_HIGH + (2 * f + (f * s * series + e * LOG2_LOW));
}
#undef BITS_OF_ONE
#undef ROUNDING
#else
MATH_INLINE VECTOR MATH_NAME(vector_exp)(VECTOR x) { return EXP(x); }
MATH_INLINE VECTOR MATH_NAME(vector_log)(VECTOR x) { return LOG(x); }
#endif

/* Messages from a node of two states along its edges, each as the log-odds of the second state. Up to terms that depend
   on one node alone, a table of two states is a score J for equal states. If h is the log-odds of the node without the
   message of the receiver, the message is rho log((e^h e^J + 1) / (e^h + e^J)). To avoid overflow, only -|h| and -|J|
   are exponentiated.

   coupling is exp(-|J|) with the sign of J; total is the log-odds of the node with all n messages. Whole vectors are
   read and written. */
MATH_FUNCTION void MATH_NAME(odds_messages)(const REAL *odds, const REAL *coupling, const REAL *power, ptrdiff_t n,
                                            REAL total, REAL *fresh)
{
    for (ptrdiff_t j = 0; j < n; j += (ptrdiff_t)(sizeof(VECTOR) / sizeof(REAL))) {
        VECTOR own, c, rho, h, z, k, out;
        memcpy(&own, odds + j, sizeof(VECTOR));
        memcpy(&c, coupling + j, sizeof(VECTOR));
        memcpy(&rho, power + j, sizeof(VECTOR));
        h = total - own / rho;
#if ROWS_VECTORS
        const BITS sign = (BITS){0} + ((UNSIGNED)1 << (8 * sizeof(REAL) - 1));
        z = MATH_NAME(vector_exp)((VECTOR)((BITS)h | sign));
        k = (VECTOR)((BITS)c & ~sign);
        out = rho * MATH_NAME(vector_log)((1 + z * k) / (z + k));
        out = (VECTOR)((BITS)out ^ (((BITS)h ^ (BITS)c) & sign));
#else
        z = EXP(h > 0 ? -h : h);
        k = c > 0 ? c : -c;
        out = rho * LOG((1 + z * k) / (z + k));
        out = (h > 0) == (c > 0) ? out : -out;
#endif
        memcpy(fresh + j, &out, sizeof(VECTOR));
    }
}

/* x = exp(x), 0 if the result would be subnormal; n is a multiple of the longest vector */
MATH_FUNCTION void MATH_NAME(exp_of_all)(REAL *x, ptrdiff_t n)
{
    for (ptrdiff_t j = 0; j < n; j += (ptrdiff_t)(sizeof(VECTOR) / sizeof(REAL))) {
        VECTOR own, out;
        memcpy(&own, x + j, sizeof(VECTOR));
        out = MATH_NAME(vector_exp)(own);
#if ROWS_VECTORS
        out = (VECTOR)((BITS)out & (BITS)(own > (REAL)(-0.6931 * (BIAS - 2))));
#endif
        memcpy(x + j, &out, sizeof(VECTOR));
    }
}

/* out = log(x) for normal x or 0; n is a multiple of the longest vector */
MATH_FUNCTION void MATH_NAME(log_of_all)(const REAL *x, ptrdiff_t n, REAL *out)
{
    for (ptrdiff_t j = 0; j < n; j += (ptrdiff_t)(sizeof(VECTOR) / sizeof(REAL))) {
        VECTOR own, result;
        memcpy(&own, x + j, sizeof(VECTOR));
        result = MATH_NAME(vector_log)(own);
#if ROWS_VECTORS
        const BITS none = (BITS)(own <= 0);
        result = (VECTOR)((none & (BITS)((VECTOR){0} - (REAL)INFINITY)) | (~none & (BITS)result));
#endif
        memcpy(out + j, &result, sizeof(VECTOR));
    }
}
