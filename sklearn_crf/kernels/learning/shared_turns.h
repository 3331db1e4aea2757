/* Numbered items that threads claim while one thread leads. Counters are atomic: writes before a counter is increased
   are visible to threads that read the increased value. */

#ifndef SKLEARN_CRF_SHARED_TURNS_H
#define SKLEARN_CRF_SHARED_TURNS_H

#include <stdint.h>

#if defined(_MSC_VER)
#include <intrin.h>
#include <windows.h>
#else
#include <sched.h>
#endif

static inline int64_t counter_value(int64_t *counter)
{
#if defined(_MSC_VER)
    return _InterlockedOr64(counter, 0);
#else
    return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
#endif
}

static inline void raise_counter(int64_t *counter, int64_t value)
{
#if defined(_MSC_VER)
    _InterlockedExchange64(counter, value);
#else
    __atomic_store_n(counter, value, __ATOMIC_RELEASE);
#endif
}

static inline void count_one(int64_t *counter)
{
#if defined(_MSC_VER)
    _InterlockedExchangeAdd64(counter, 1);
#else
    __atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL);
#endif
}

/* Claim the next number below a limit for this thread; returns -1 if no number is left. */
static inline int64_t take_number(int64_t *next, int64_t limit)
{
    int64_t number = counter_value(next);
    while (number < limit) {
#if defined(_MSC_VER)
        int64_t found = _InterlockedCompareExchange64(next, number + 1, number);
        if (found == number)
            return number;
        number = found;
#else
        if (__atomic_compare_exchange_n(next, &number, number + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return number;
#endif
    }
    return -1;
}

/* Wait briefly for another thread, which may need this processor. */
static inline void wait_a_moment(int64_t n_before)
{
    if (n_before < 2000) {
#if defined(__x86_64__) && !defined(_MSC_VER)
        __builtin_ia32_pause();
#elif defined(__aarch64__) && !defined(_MSC_VER)
        __asm__ __volatile__("yield");
#endif
        return;
    }
#if defined(_MSC_VER)
    SwitchToThread();
#else
    sched_yield();
#endif
}

#endif
