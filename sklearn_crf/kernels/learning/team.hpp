// Threads of the pool that stay awake for many short rounds of blocks. Waking them for each round would be slow.
#pragma once

#include <thread>

#include "core/pool.hpp"
#include "core/types.hpp"

namespace crf {

class Team {
public:
    // Calls lead() in one thread of a new team, while the other threads help with the rounds that it opens.
    template <class Lead>
    static void run(const Threads& threads, Lead lead) {
        const int most = std::max(1, int(std::thread::hardware_concurrency()));
        Team team(std::min(threads.n_threads, most));
        threads.share(team.n_threads_, [&](std::ptrdiff_t k) {
            if (k > 0) return team.help();
            lead(team);
            team.is_over_ = true;
        });
    }

    // Calls function(block) for each block on all threads of the team. It must not throw.
    template <class Function>
    void each(i64 n_blocks, Function function) {
        if (n_threads_ == 1 || n_blocks == 1) {
            for (i64 k = 0; k < n_blocks; ++k) function(k);
            return;
        }
        context_ = &function;
        call_ = [](void* context, std::ptrdiff_t k) { (*static_cast<Function*>(context))(k); };
        n_done_ = 0;
        const std::uint64_t round = (next_ >> 32) + 1;
        next_ = round << 32 | std::uint64_t(n_blocks);
        while (work_on_next()) {
        }
        for (int n = 0; n_done_ < n_blocks; ++n) wait(n);
    }

private:
    explicit Team(int n_threads) : n_threads_(n_threads) {}

    // Claims and runs the last block that is left; returns false if none is left. The number of the round prevents a
    // late thread from claiming a block by the count of an earlier round.
    bool work_on_next() {
        std::uint64_t next = next_;
        while (next & 0xFFFFFFFF)
            if (next_.compare_exchange_weak(next, next - 1)) {
                call_(context_, std::ptrdiff_t(next & 0xFFFFFFFF) - 1);
                ++n_done_;
                return true;
            }
        return false;
    }

    void help() {
        for (int n = 0; !is_over_; ++n)
            if (work_on_next()) n = 0;
            else wait(n);
    }

    static void wait(int n) {
        if (n > 2000) return std::this_thread::yield();
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
        __builtin_ia32_pause();
#endif
    }

    const int n_threads_;
    Block call_ = nullptr;
    void* context_ = nullptr;
    std::atomic<std::uint64_t> next_{0};  // number of the round, and number of its blocks that are left
    std::atomic<i64> n_done_{0};
    std::atomic<bool> is_over_{false};
};

}  // namespace crf
