// Threads share the likelihood of chains, for ThreadSanitizer: `make tsan`. The sums must be those of one thread.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "chains/risk.hpp"

using namespace crf;

static const i64 kStates = 5, kWidth = 8, kChains = 120, kFeatures = 40, kOfNode = 6, kBlocks = 24;

static int run_on_pool(Block block, void* context, std::ptrdiff_t n_blocks, int n_threads) {
    return Pool::shared().run(block, context, n_blocks, n_threads, nullptr) ? 0 : -1;
}

// Products of matrices as BLAS has them, column by column.
static void product(char* turn_a, char* turn_b, int* m, int* n, int* k, double* alpha, double* a, int* lda, double* b,
                    int* ldb, double* beta, double* c, int* ldc) {
    for (int j = 0; j < *n; ++j)
        for (int i = 0; i < *m; ++i) {
            double sum = 0;
            for (int l = 0; l < *k; ++l)
                sum += (*turn_a == 'T' ? a[l + i * *lda] : a[i + l * *lda]) *
                       (*turn_b == 'T' ? b[j + l * *ldb] : b[l + j * *ldb]);
            c[i + j * *ldc] = *alpha * sum + (*beta != 0 ? *beta * c[i + j * *ldc] : 0);
        }
}

struct Problem {
    std::vector<i64> ptr{0};
    std::vector<i32> labels;
    std::vector<double> table, factor, transposed, rows, weights, intercept, chain_weight;
    std::vector<ChainBlock> blocks;
    std::vector<ChainPanel> panels;
    std::vector<std::vector<i32>> arrays;
    std::vector<i64> pair_ptr;
    std::vector<i32> pair_column, row_of;
    bool is_sparse;

    explicit Problem(bool sparse) : is_sparse(sparse) {
        std::mt19937 draw(0);
        const auto random = [&] { return double(draw() % 1000) / 1000 - 0.5; };
        for (i64 i = 0; i < kChains; ++i) ptr.push_back(ptr.back() + 1 + draw() % 30);
        for (i64 s = 0; s < ptr.back(); ++s) labels.push_back(i32(draw() % kStates));
        for (i64 i = 0; i < kChains; ++i) chain_weight.push_back(1 + draw() % 3);
        factor.assign(kStates * kWidth, 0.0);
        transposed = factor;
        for (i64 a = 0; a < kStates; ++a)
            for (i64 b = 0; b < kStates; ++b) {
                table.push_back(random() - 0.5);
                factor[a * kWidth + b] = transposed[b * kWidth + a] = std::exp(table.back());
            }
        for (i64 k = 0; k < kStates; ++k) intercept.push_back(random());
        for (i64 p = 0; p < kStates * kFeatures; ++p) weights.push_back(random());
        for (i64 p = 0; p < ptr.back() * kFeatures && !sparse; ++p) rows.push_back(random());
        for (i64 f = 0; f <= kFeatures; ++f) pair_ptr.push_back(f * kStates);
        for (i64 p = 0; p < kStates * kFeatures; ++p) pair_column.push_back(i32(p % kStates));
        for (i64 f = 0; f < kFeatures; ++f) row_of.push_back(f % 3 ? i32(f) : -1);
        for (i64 b = 0; b < kBlocks; ++b) {
            blocks.push_back({b * kChains / kBlocks, (b + 1) * kChains / kBlocks});
            add_panel(b, draw);
        }
    }

    void add_panel(i64 b, std::mt19937& draw) {
        const i64 first = ptr[blocks[b].first], n = ptr[blocks[b].last] - first;
        ChainPanel panel{b, b + 1, kFeatures, {}};
        panel.features[0] = reinterpret_cast<i64>(rows.data() + first * kFeatures);
        if (is_sparse) {
            std::vector<i32> feature, offsets{0}, node;
            for (i32 f = 0; f < kFeatures; ++f) {
                for (i32 s = 0; s < n; ++s)
                    if (draw() % kFeatures < kOfNode) node.push_back(s);
                feature.push_back(f);
                offsets.push_back(i32(node.size()));
            }
            for (const auto& array : {feature, offsets, node}) arrays.push_back(array);
            for (int k = 0; k < 3; ++k) panel.features[k] = reinterpret_cast<i64>(arrays[arrays.size() - 3 + k].data());
        }
        panels.push_back(panel);
    }

    // All sums, with the gradient of sparse features behind them.
    std::vector<double> evaluate(int n_threads) const {
        DenseFeatures<double> dense{kFeatures, weights.data(), reinterpret_cast<void*>(product),
                                    reinterpret_cast<void*>(product)};
        std::vector<double> gradient(weights.size()), kept(ptr.back() * kWidth), own_rows(2 * kFeatures * kWidth);
        SparseWeights<double> sparse;
        sparse.n_features = kFeatures;
        sparse.pair_ptr = pair_ptr.data();
        sparse.pair_column = pair_column.data();
        sparse.weights = weights.data();
        sparse.gradient = gradient.data();
        sparse.row_of = row_of.data();
        sparse.rows = own_rows.data();
        sparse.row_gradient = own_rows.data() + kFeatures * kWidth;
        const std::vector<i32> range_ends{7, 20, 33, 40};
        ChainRisk<double> risk;
        risk.transitions = {kStates, kWidth, table.data(), factor.data(), transposed.data(), 0.0, 500.0, 0.0};
        risk.n_columns = kStates;
        risk.intercept = intercept.data();
        risk.ptr = ptr.data();
        risk.labels = labels.data();
        risk.weight = chain_weight.data();
        risk.blocks = blocks.data();
        risk.panels = panels.data();
        risk.n_panels = i64(panels.size());
        risk.columns = kept.data();
        risk.most_kept = ptr.back() / 3;
        risk.range_ends = range_ends.data();
        risk.n_ranges = i64(range_ends.size());
        (is_sparse ? (void)(risk.sparse = &sparse) : (void)(risk.dense = &dense));
        std::vector<double> partial(kBlocks * risk.n_sums()), total(risk.n_sums());
        risk.partial = partial.data();
        if (risk.run(Threads{run_on_pool, n_threads}, total.data()) != 0) std::abort();
        total.insert(total.end(), gradient.begin(), gradient.end());
        return total;
    }
};

int main() {
    for (const bool is_sparse : {false, true}) {
        const Problem problem(is_sparse);
        const auto expected = problem.evaluate(1);
        for (int round = 0; round < 20; ++round)
            if (problem.evaluate(2 + round % 4) != expected) {
                std::fprintf(stderr, "sums depend on threads\n");
                return 1;
            }
    }
    std::puts("the likelihood of chains: no races, same sums");
}
