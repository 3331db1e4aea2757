"""Ways to learn by name, with those of some options that they have, and the iterates of their training."""

import time

from sklearn_crf.learning import LEARNINGS


def named_learning(name, **options):
    """The way to learn of that name; options that it has not are left out."""
    kind = LEARNINGS[name]
    known = kind().get_params()
    return kind(**{key: value for key, value in options.items() if key in known})


def watched(learning, watch):
    """A way to learn that calls ``watch`` with the processor's seconds and the weights of every iterate.

    Training ends where the call returns True.
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
