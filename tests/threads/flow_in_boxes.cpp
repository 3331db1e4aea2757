// Boxes of one lattice solved by threads at once, for ThreadSanitizer: `make tsan`. The flow must be that of one thread.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "flow_calls.hpp"

using namespace crf;

static const i64 kRows = 48, kColumns = 56, kSide = 16;
static const i64 kNodes = kRows * kColumns;

struct Network {
    std::vector<i64> delta;
    i64 degree, guard;
    std::vector<i32> residual, excess, label, lists;
    std::vector<u8> parent, flag;

    Network(int connectivity, unsigned seed) {
        if (connectivity == 4) delta = {1, kColumns, -kColumns, -1};
        else delta = {1, kColumns - 1, kColumns, kColumns + 1, -kColumns - 1, -kColumns, -kColumns + 1, -1};
        degree = i64(delta.size());
        guard = kColumns + (connectivity == 8);
        const i64 stored = kNodes + 2 * guard;
        residual.assign(stored * degree, 0);
        excess.assign(kNodes, 0);
        label.assign(stored, 0);
        parent.assign(stored, 254);
        flag.assign(kNodes, 0);
        lists.assign(5 * kNodes, 0);
        std::mt19937 draw(seed);
        for (i64 i = 0; i < kNodes; ++i) {
            excess[i] = i32(draw() % 201) - 100;
            for (i64 k = 0; k < degree; ++k)
                if (inside(i, k)) residual[(guard + i) * degree + k] = i32(draw() % 60);
        }
    }

    // Whether an arc stays in the lattice: a step never crosses more than one column.
    bool inside(i64 i, i64 k) const {
        const i64 j = i + delta[k];
        return j >= 0 && j < kNodes && std::abs(j % kColumns - i % kColumns) <= 1;
    }

    Buffers<i32> buffers(std::vector<i32>& bucket) {
        return {residual.data(), excess.data(), label.data(), lists.data(), bucket.data(), parent.data(),
                flag.data(),     kNodes,        kNodes * degree, i64(bucket.size())};
    }

    void solve(const std::vector<i64>& low, const std::vector<i64>& high, i64 start) {
        const i64 shape[2] = {kRows, kColumns}, size = (high[0] - low[0]) * (high[1] - low[1]);
        std::vector<i32> bucket(size + 4);
        i64 progress[8] = {0};
        const Box box{2, shape, low.data(), high.data()};
        while (!run_lattice(buffers(bucket), delta.data(), int(degree), guard, box, start, size, progress, 500)) {
        }
    }

    void solve_boxes() {
        std::vector<i32> closed(residual.size(), 0);
        for (i64 i = 0; i < kNodes; ++i)
            for (i64 k = 0; k < degree; ++k)
                if (inside(i, k) && box_of(i) != box_of(i + delta[k])) {
                    const i64 arc = (guard + i) * degree + k;
                    std::swap(closed[arc], residual[arc]);
                }
        std::vector<std::thread> threads;
        i64 start = 0;
        for (i64 row = 0; row < kRows; row += kSide)
            for (i64 column = 0; column < kColumns; column += kSide) {
                const std::vector<i64> low{row, column};
                const std::vector<i64> high{std::min(row + kSide, kRows), std::min(column + kSide, kColumns)};
                threads.emplace_back([this, low, high, start] { solve(low, high, start); });
                start += (high[0] - low[0]) * (high[1] - low[1]);
            }
        for (auto& thread : threads) thread.join();
        std::transform(closed.begin(), closed.end(), residual.begin(), residual.begin(), std::plus<i32>());
    }

    static i64 box_of(i64 i) { return i / kColumns / kSide * kColumns + i % kColumns / kSide; }

    // Demand that is left, and the nodes that reach it: of the smallest minimum cut, however the flow was found.
    std::vector<i64> solution() {
        solve({0, 0}, {kRows, kColumns}, 0);
        std::vector<i64> found(1, 0);
        for (i64 i = 0; i < kNodes; ++i) {
            found[0] += std::min(excess[i], 0);
            if (label[guard + i] < 0) found.push_back(i);
        }
        return found;
    }
};

int main() {
    for (unsigned seed = 0; seed < 20; ++seed)
        for (int connectivity : {4, 8}) {
            Network alone(connectivity, seed), shared(connectivity, seed);
            shared.solve_boxes();
            if (alone.solution() != shared.solution()) {
                std::printf("seed %u, %d neighbours: threads found another cut\n", seed, connectivity);
                return 1;
            }
        }
    std::printf("40 lattices of 12 boxes each, a thread for every box: the cuts of one thread\n");
    return 0;
}
