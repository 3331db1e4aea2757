"""Compare time and memory of mean field in fully connected fields with pydensecrf2, on the same image.

    python benchmarks/peers/dense_speed.py --peer PYTHON           # PYTHON has pydensecrf2 installed
    python benchmarks/peers/dense_speed.py --peer PYTHON --volume  # 120 x 150 x 100 voxels, 2 labels, 5 updates

The packages run alternately, in separate processes, several times. Printed are the shortest processor time of all
threads, separately for set-up (unary scores, lattices and normalisation) and updates; the shortest processor time of
the calling thread, which is about the elapsed time on an idle machine with enough cores; the shortest elapsed time; and
the peak memory minus the memory before the computation. The picture consists of coloured regions with noise; scores are
smooth and random. The results are also compared: the same kernels and weights must give the same probabilities.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

IMAGE, VOLUME = ((375, 500), 21, 10), ((120, 150, 100), 2, 5)
SPATIAL, BILATERAL, CHANNEL = 3.0, 80.0, 13.0
WEIGHTS = (3.0, 10.0)


def make_case(shape, n_classes, path):
    """Write a file with a noisy image of regions with smooth shading, and smooth random probabilities."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(0)
    smooth = gaussian_filter(rng.normal(size=(8, *shape)), (0, *[6.0] * len(shape)))
    region = smooth.argmax(axis=0)
    n_channels = 3 if len(shape) == 2 else 1
    palette = rng.uniform(30, 225, size=(8, n_channels))
    shade = gaussian_filter(rng.normal(size=shape), 20.0)
    image = (
        palette[region] + 25 * (shade / shade.std())[..., np.newaxis] + rng.normal(scale=4, size=(*shape, n_channels))
    )
    scores = gaussian_filter(rng.normal(size=(*shape, n_classes)), (*[6.0] * len(shape), 0))
    scores = 2 * scores / scores.std()
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    np.savez(path, image=np.clip(image, 0, 255).astype(np.uint8), probabilities=probabilities.astype(np.float32))


def peak_megabytes():
    """Return the peak memory of this process so far."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024


def ours(image, probabilities, n_iter, n_jobs):
    """Set up our field, and return a function that runs the updates."""
    from sklearn_crf import Bilateral, DenseExample, Spatial
    from sklearn_crf.dense._gaussian_kernels import build_filters
    from sklearn_crf.inference import DenseMeanField
    from sklearn_crf.models import DenseModel

    example = DenseExample(np.log(probabilities), image)
    kernels = [Spatial(SPATIAL), Bilateral(BILATERAL, CHANNEL)]
    filters = build_filters(kernels, example, "image", n_threads=n_jobs)
    model = DenseModel(example.rows, filters, WEIGHTS)
    return lambda: DenseMeanField(max_iter=n_iter).node_marginals(model, n_threads=n_jobs)


def theirs(image, probabilities, n_iter, n_jobs):
    """Set up pydensecrf2, which makes the features of volumes itself, and return a function that runs the updates."""
    import pydensecrf.densecrf as dcrf
    from pydensecrf.utils import create_pairwise_bilateral, create_pairwise_gaussian

    shape, n_classes = probabilities.shape[:-1], probabilities.shape[-1]
    unary = np.ascontiguousarray(-np.log(probabilities).reshape(-1, n_classes).T)
    if len(shape) == 2:
        field = dcrf.DenseCRF2D(shape[1], shape[0], n_classes)
        field.setUnaryEnergy(unary)
        field.addPairwiseGaussian(sxy=SPATIAL, compat=WEIGHTS[0])
        field.addPairwiseBilateral(sxy=BILATERAL, srgb=CHANNEL, rgbim=np.ascontiguousarray(image), compat=WEIGHTS[1])
    else:
        field = dcrf.DenseCRF(int(np.prod(shape)), n_classes)
        field.setUnaryEnergy(unary)
        sigmas = [SPATIAL] * len(shape)
        field.addPairwiseEnergy(create_pairwise_gaussian(sdims=sigmas, shape=shape), compat=WEIGHTS[0])
        sigmas = [BILATERAL] * len(shape)
        features = create_pairwise_bilateral(sdims=sigmas, schan=[CHANNEL], img=image, chdim=len(shape))
        field.addPairwiseEnergy(features, compat=WEIGHTS[1])
    return lambda: np.array(field.inference(n_iter)).T


def timed(call):
    """Return the result of a call, its seconds, and the processor seconds of all threads and of this thread."""
    clocks = time.perf_counter, time.process_time, time.thread_time
    start = [clock() for clock in clocks]
    result = call()
    return result, [clock() - at for clock, at in zip(clocks, start, strict=True)]


def work(side, path, n_iter, n_jobs):
    """Run one side in this process; print seconds, processor seconds and megabytes, and keep the result."""
    case = np.load(path)
    image, probabilities = case["image"], case["probabilities"]
    prepare = {"ours": ours, "theirs": theirs}[side]
    if side == "ours":
        import sklearn_crf.dense  # noqa: F401  the time of imports is not measured
    else:
        import pydensecrf.densecrf  # noqa: F401
    before = peak_megabytes()
    update, setup_clocks = timed(lambda: prepare(image, probabilities, n_iter, n_jobs))
    result, update_clocks = timed(update)
    clocks = [setup_clocks, update_clocks]
    np.save(f"{path}.{side}.npy", np.asarray(result, dtype=np.float32))
    print(json.dumps({"clocks": clocks, "memory": peak_megabytes() - before}))


def measured(python, side, path, n_iter, n_jobs):
    """Return the figures of one run in its own process."""
    command = [python, __file__, "--work", side, "--case", str(path), "--updates", str(n_iter), "--jobs", str(n_jobs)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def row(name, runs):
    """Print one line of the table: the shortest times of several runs, and the memory of the first run."""
    setup, updates = np.min([run["clocks"] for run in runs], axis=0)
    seconds, processor, caller = setup + updates
    print(
        f"{name:22}{setup[1]:8.3f}{updates[1]:9.3f}{processor:9.3f}{caller:9.3f}{seconds:9.3f}{runs[0]['memory']:9.0f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="path of a Python interpreter with pydensecrf2")
    parser.add_argument("--volume", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--updates", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.case, options.updates, options.jobs)
        return
    shape, n_classes, n_iter = VOLUME if options.volume else IMAGE
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.npz"
        make_case(shape, n_classes, path)
        print(f"{' x '.join(map(str, shape))}, {n_classes} labels, {n_iter} updates, float32")
        print(f"{'processor seconds':22}{'set-up':>8}{'updates':>9}{'sum':>9}{'caller':>9}{'seconds':>9}{'MB':>9}")
        runs = {("ours", 1): [], ("ours", 2): [], ("theirs", 1): []}
        for _ in range(options.repeats):
            for (side, n_jobs), found in runs.items():
                if side == "ours" or options.peer:
                    python = sys.executable if side == "ours" else options.peer
                    found.append(measured(python, side, path, n_iter, n_jobs))
        row("sklearn_crf, 1 thread", runs["ours", 1])
        row("sklearn_crf, 2 threads", runs["ours", 2])
        if options.peer:
            row("pydensecrf2", runs["theirs", 1])
            one, other = (np.load(f"{path}.{side}.npy") for side in ("ours", "theirs"))
            print(
                f"largest difference of a probability {np.abs(one - other).max():.2g}, labels that differ "
                f"{np.mean(one.argmax(axis=1) != other.argmax(axis=1)):.2g}"
            )


if __name__ == "__main__":
    main()
