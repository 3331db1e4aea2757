// Many threads share the pool at once, fork, fail, stop and close it, for ThreadSanitizer: `make tsan`.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "core/pool.hpp"

using namespace crf;

static void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "failed: %s\n", what);
    std::abort();
}

template <class Function>
static bool run(std::ptrdiff_t n_blocks, int n_threads, Function function, Check check = nullptr) {
    const Block block = [](void* context, std::ptrdiff_t i) { (*static_cast<Function*>(context))(i); };
    return Pool::shared().run(block, &function, n_blocks, n_threads, check);
}

static double sum_of(int n_threads, int n_blocks) {
    std::vector<double> parts(n_blocks);
    run(n_blocks, n_threads, [&](std::ptrdiff_t i) {
        for (int k = 1; k < 200; ++k) parts[i] += 1.0 / (k + i);
    });
    double total = 0;
    for (double part : parts) total += part;
    return total;
}

static void sums_do_not_depend_on_threads() {
    const double expected = sum_of(1, 97);
    std::vector<std::thread> callers;
    for (int c = 0; c < 6; ++c)
        callers.emplace_back([=] {
            for (int round = 0; round < 200; ++round) require(sum_of(1 + (c + round) % 5, 97) == expected, "sum");
        });
    for (int round = 0; round < 20; ++round) Pool::shared().close();
    for (auto& caller : callers) caller.join();
}

static void nested_calls_run_inline() {
    std::vector<int> counts(8 * 8);
    run(8, 4, [&](std::ptrdiff_t i) {
        const auto self = std::this_thread::get_id();
        run(8, 4, [&, i](std::ptrdiff_t k) {
            require(std::this_thread::get_id() == self, "nested");
            ++counts[8 * i + k];
        });
    });
    for (int count : counts) require(count == 1, "every block once");
}

static void the_first_error_by_number_is_thrown() {
    for (int n_threads = 1; n_threads < 5; ++n_threads)
        for (int round = 0; round < 100; ++round) try {
                run(64, n_threads, [](std::ptrdiff_t i) {
                    if (i % 7 == 3) throw std::runtime_error(std::to_string(i));
                });
                require(false, "throws");
            } catch (const std::runtime_error& error) {
                require(error.what() == std::string("3"), "the first error");
            }
}

static void a_check_ends_a_call() {
    for (int n_threads = 1; n_threads < 5; ++n_threads) {
        std::atomic<int> n_done{0};
        const bool is_complete = run(
            1000, n_threads,
            [&](std::ptrdiff_t) {
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
                ++n_done;
            },
            [] { return 1; });
        require(!is_complete && n_done < 1000, "ends");
    }
}

static void a_forked_process_has_a_pool_of_its_own() {
    sum_of(4, 97);
    const pid_t child = fork();
    if (child == 0) {
        run(97, 4, [](std::ptrdiff_t) {});
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child");
}

int main() {
    sums_do_not_depend_on_threads();
    nested_calls_run_inline();
    the_first_error_by_number_is_thrown();
    a_check_ends_a_call();
    Pool::shared().close();
#ifndef __SANITIZE_THREAD__
    a_forked_process_has_a_pool_of_its_own();  // ThreadSanitizer starts no threads after a fork
#else
    (void)a_forked_process_has_a_pool_of_its_own;
#endif
    std::puts("the pool: no races, same sums");
}
