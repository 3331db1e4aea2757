// Belief propagation of an installed libDAI on a factor graph in its text format.
//
//     libdai_bp FIELD.fg TOL MAX_ITER UPDATES REPETITIONS
//
// Prints, for each repetition, "sweeps seconds" (processor time of init and run, reading excluded), then "log_z
// VALUE", then the marginals, one variable a line.

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#define DAI_WITH_BP
#include <dai/bp.h>
#include <dai/factorgraph.h>

int main(int argc, char **argv)
{
    if (argc != 6) {
        std::fprintf(stderr, "usage: libdai_bp FIELD.fg TOL MAX_ITER UPDATES REPETITIONS\n");
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
    dai::BP bp(graph, options);
    for (int repetition = 0; repetition < std::atoi(argv[5]); repetition++) {
        const std::clock_t start = std::clock();
        dai::BP fresh(graph, options);
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
    return 0;
}
