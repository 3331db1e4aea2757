// Belief propagation, plain or tree-reweighted, of an installed libDAI on a factor graph in its text format.
//
//     libdai_bp FIELD.fg TOL MAX_ITER UPDATES REPETITIONS [DAMPING PROBABILITY]
//
// With PROBABILITY every edge has that edge probability (TRWBP), without it is plain belief propagation. Prints, for each
// repetition, "sweeps seconds" (processor time of init and run, reading excluded), then "log_z VALUE", then the
// marginals, one variable a line.

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#define DAI_WITH_BP
#define DAI_WITH_TRWBP
#include <dai/bp.h>
#include <dai/factorgraph.h>
#include <dai/trwbp.h>

static void set_probability(dai::BP &, double) {}

static void set_probability(dai::TRWBP &bp, double probability)
{
    for (std::size_t i = 0; i < bp.nrFactors(); i++)
        bp.setWeight(i, bp.factor(i).vars().size() == 2 ? probability : 1.0);
}

template <class Algorithm>
static void run(const dai::FactorGraph &graph, const dai::PropertySet &options, int repetitions, double probability)
{
    Algorithm bp(graph, options);
    for (int repetition = 0; repetition < repetitions; repetition++) {
        const std::clock_t start = std::clock();
        Algorithm fresh(graph, options);
        set_probability(fresh, probability);
        fresh.init();
        fresh.run();
        std::printf("%zu %.9f\n", std::size_t(fresh.Iterations()), double(std::clock() - start) / CLOCKS_PER_SEC);
        bp = fresh;
    }
    std::printf("log_z %.12f\n", double(bp.logZ()));
    for (std::size_t i = 0; i < graph.nrVars(); i++) {
        const dai::Factor belief = bp.beliefV(i);
        for (std::size_t a = 0; a < belief.nrStates(); a++)
            std::printf("%.12f ", double(belief[a]));
        std::printf("\n");
    }
}

int main(int argc, char **argv)
{
    if (argc != 6 && argc != 8) {
        std::fprintf(stderr, "usage: libdai_bp FIELD.fg TOL MAX_ITER UPDATES REPETITIONS [DAMPING PROBABILITY]\n");
        return 2;
    }
    dai::FactorGraph graph;
    graph.ReadFromFile(argv[1]);
    dai::PropertySet options;
    options.set("tol", dai::Real(std::atof(argv[2])));
    options.set("maxiter", std::size_t(std::atol(argv[3])));
    options.set("updates", std::string(argv[4]));
    options.set("verbose", std::size_t(0));
    options.set("logdomain", false);
    if (argc == 6) {
        run<dai::BP>(graph, options, std::atoi(argv[5]), 1.0);
    } else {
        options.set("damping", dai::Real(std::atof(argv[6])));
        options.set("nrtrees", std::size_t(0));
        run<dai::TRWBP>(graph, options, std::atoi(argv[5]), std::atof(argv[7]));
    }
    return 0;
}
