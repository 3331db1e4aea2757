// Samples, from a thread that Python does not know, whether any thread holds the interpreter's lock (Python 3.11).
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

extern void *_PyThreadState_UncheckedGet(void);

static atomic_int is_watching;
static long n_held, n_samples;
static pthread_t sampler;

static void *watch(void *unused)
{
    const struct timespec pause = {0, 200000};
    (void)unused;
    while (is_watching) {
        n_held += _PyThreadState_UncheckedGet() != 0;
        n_samples++;
        nanosleep(&pause, 0);
    }
    return 0;
}

void start_watching(void)
{
    n_held = n_samples = 0;
    is_watching = 1;
    pthread_create(&sampler, 0, watch, 0);
}

double stop_watching(void)
{
    is_watching = 0;
    pthread_join(sampler, 0);
    return n_samples ? (double)n_held / n_samples : 0;
}
