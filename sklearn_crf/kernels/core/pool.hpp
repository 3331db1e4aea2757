// Thread pool of this process. Its threads (helpers) share the blocks of a call and sleep between calls.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#ifndef _WIN32
#include <pthread.h>
#endif

namespace crf {

using Block = void (*)(void* context, std::ptrdiff_t block);
// Called between blocks by the calling thread; a nonzero result ends the call.
using Check = int (*)();

// Interval between checks for interruptions.
constexpr std::chrono::milliseconds kBetweenChecks{50};

class Pool {
public:
    // The pool of this process. A forked process starts with a new pool, because threads do not survive a fork.
    static Pool& shared() {
        static const bool is_watched = watch_forks();
        (void)is_watched;
        return *current();
    }

    // Runs every block once, on at most n_threads threads. Returns false if a check ended the call. If blocks fail,
    // throws the exception of the first of them; blocks start in ascending order.
    bool run(Block function, void* context, std::ptrdiff_t n_blocks, int n_threads, Check check) {
        Job job{function, context, n_blocks};
        const bool is_nested = is_inside();
        const auto n_helpers = std::min<std::ptrdiff_t>(n_threads, n_blocks) - 1;
        Clock::time_point checked = Clock::now();
        job.most_helpers = is_nested ? 0 : n_helpers;
        if (job.most_helpers > 0) open(job, n_threads - 1);
        is_inside() = true;
        while (job.work_on_next())
            if (check && Clock::now() - checked > kBetweenChecks) {
                if (check()) job.interrupt();
                checked = Clock::now();
            }
        is_inside() = is_nested;
        if (job.most_helpers > 0) wait_for_helpers(job, check);
        if (job.error) std::rethrow_exception(job.error);
        return !job.is_interrupted;
    }

    // Ends and joins all helpers once they finish their current blocks. The next call starts new helpers.
    void close() {
        std::vector<std::thread> leaving;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            ++generation_;
            leaving.swap(helpers_);
        }
        work_.notify_all();
        for (auto& helper : leaving) helper.join();
    }

private:
    using Clock = std::chrono::steady_clock;
    using Lock = std::unique_lock<std::mutex>;

    struct Job {
        Block function;
        void* context;
        std::ptrdiff_t n_blocks;
        std::ptrdiff_t most_helpers = 0, n_helpers = 0;  // protected by the lock of the pool
        std::atomic<std::ptrdiff_t> next{0};
        std::atomic<bool> is_stopped{false};
        bool is_interrupted = false;  // by the caller
        std::mutex mutex{};
        std::exception_ptr error{};
        std::ptrdiff_t failed = std::numeric_limits<std::ptrdiff_t>::max();

        Job(Block function, void* context, std::ptrdiff_t n_blocks)
            : function(function), context(context), n_blocks(n_blocks) {}

        bool has_blocks() const { return !is_stopped && next < n_blocks; }

        bool work_on_next() {
            if (is_stopped) return false;
            const std::ptrdiff_t block = next++;
            if (block >= n_blocks) return false;
            try {
                function(context, block);
            } catch (...) {
                const std::lock_guard<std::mutex> lock(mutex);
                if (block < failed) {
                    failed = block;
                    error = std::current_exception();
                }
                is_stopped = true;
            }
            return true;
        }

        void interrupt() { is_stopped = is_interrupted = true; }
    };

    // Whether this thread is running a block. A nested call then runs on this thread alone.
    static bool& is_inside() {
        static thread_local bool inside = false;
        return inside;
    }

    static Pool*& current() {
        static Pool* pool = new Pool;  // never destroyed: helpers may outlive static objects
        return pool;
    }

    static bool watch_forks() {
#ifndef _WIN32
        pthread_atfork(nullptr, nullptr, [] { current() = new Pool; });
#endif
        return true;
    }

    void open(Job& job, int n_wanted) {
        const Lock lock(mutex_);
        try {
            while (std::ptrdiff_t(helpers_.size()) < n_wanted)
                helpers_.emplace_back(&Pool::help, this, generation_.load());
        } catch (const std::system_error&) {
            // The system cannot start more threads: the existing threads do the work.
        }
        jobs_.push_back(&job);
        for (std::ptrdiff_t k = 0; k < job.most_helpers; ++k) work_.notify_one();
    }

    void wait_for_helpers(Job& job, Check check) {
        Lock lock(mutex_);
        jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
        while (!done_.wait_for(lock, kBetweenChecks, [&] { return job.n_helpers == 0; })) {
            if (!check) continue;
            lock.unlock();
            if (check()) job.interrupt();
            lock.lock();
        }
    }

    Job* open_job() const {
        for (Job* job : jobs_)
            if (job->n_helpers < job->most_helpers && job->has_blocks()) return job;
        return nullptr;
    }

    void help(unsigned generation) {
        is_inside() = true;
        Lock lock(mutex_);
        for (;;) {
            Job* job = nullptr;
            work_.wait(lock, [&] { return generation != generation_ || (job = open_job()); });
            if (generation != generation_) return;
            ++job->n_helpers;
            lock.unlock();
            while (generation == generation_ && job->work_on_next()) {
            }
            lock.lock();
            if (--job->n_helpers == 0) done_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable work_, done_;
    std::vector<std::thread> helpers_;
    std::vector<Job*> jobs_;
    std::atomic<unsigned> generation_{0};
};

// Interface for running blocks in parallel: a function of the pool and the number of threads. The function returns
// nonzero after a failed or interrupted call.
struct Threads {
    int (*run)(Block, void*, std::ptrdiff_t, int);
    int n_threads;

    template <class Function>
    bool each(std::ptrdiff_t n_blocks, Function function) const {
        const Block block = [](void* context, std::ptrdiff_t i) { (*static_cast<Function*>(context))(i); };
        return run(block, &function, n_blocks, n_threads) == 0;
    }

    // Like each(), but throws if the call fails. Python's error is already set and replaces this exception.
    template <class Function>
    void share(std::ptrdiff_t n_blocks, Function function) const {
        if (!each(n_blocks, function)) throw std::runtime_error("interrupted");
    }
};

}  // namespace crf
