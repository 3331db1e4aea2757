"""Learning methods by name, with the options that they support, and a way to watch the iterates of training."""

import time

from sklearn_crf.learning import LEARNINGS


def named_learning(name, **options):
    """Return the learning method of a name as in the papers, without options that it does not support."""
    kind = LEARNINGS[name]
    known = kind().get_params()
    options = {"edge_scale": 1, **options}
    return kind(**{key: value for key, value in options.items() if key in known})


def watched(learning, watch):
    """Return a learning method that calls ``watch`` with the processor seconds and the weights of each iterate.

    Training stops if the call returns True.
    """

    class Watched(type(learning)):
        def train(self, risk, plan, data, make_start, run):
            begin = time.process_time()

            def visit(coef):
                weights = data.scaling.outer(data.potentials, coef)
                ends = watch(time.process_time() - begin, weights)
                return run.on_iteration(coef) or bool(ends)

            return super().train(risk, plan, data, make_start, run._replace(on_iteration=visit))

    return Watched(**learning.get_params(deep=False))
