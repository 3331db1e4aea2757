"""PatchGroups: compared with loops over groups; repeated structures, layouts and threads."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.fft import dctn, idctn
from scipy.linalg import hadamard

from sklearn_crf.preprocessing import PatchAverages, PatchGroups, PatchShrinkage

RNG = np.random.default_rng(0)
IMAGE = np.kron(RNG.random((5, 7)), np.ones((6, 5))) + 0.1 * RNG.normal(size=(30, 35))


def shrunk_by_loops(image, noise, search, step):
    """Compute shrunk patches group by group."""
    shrunk = PatchShrinkage([2.7 * noise]).fit_transform(image[None])[0, ..., 0]
    averages = PatchAverages([0.9 * noise], guide_threshold=2.7 * noise).fit_transform(image[None])[0, ..., 0]
    margin, turn = search + 7, hadamard(16) / 4
    x, pilot = (np.pad(part, margin, mode="symmetric") for part in (image, (shrunk + averages) / 2))
    total, weight = np.zeros((2, *x.shape))
    first = -(7 // step) * step

    def patch(part, i, j):
        return part[i : i + 8, j : j + 8]

    for i in range(first + margin, len(image) + margin, step):
        for j in range(first + margin, image.shape[1] + margin, step):
            own = patch(pilot, i, j)
            places = [(i + a, j + b) for a in range(-search, search + 1) for b in range(-search, search + 1)]
            off = [-1 if place == (i, j) else np.sum((patch(pilot, *place) - own) ** 2) for place in places]
            order = np.argsort(off, kind="stable")
            group = [places[k] for k in order[:16]]
            values, signal = (
                np.tensordot(turn, [dctn(patch(part, *place), norm="ortho") for place in group], 1)
                for part in (x, pilot)
            )
            gain = signal**2 / (signal**2 + (0.8 * noise) ** 2)
            values[0, 0, 0] /= gain[0, 0, 0]
            found = np.tensordot(turn, gain * values, 1)
            share = 1 / (np.sum(gain**2) + 0.1)
            for (a, b), part in zip(group, found, strict=True):
                total[a : a + 8, b : b + 8] += share * idctn(part, norm="ortho")
                weight[a : a + 8, b : b + 8] += share
    inside = slice(margin, -margin)
    return total[inside, inside] / weight[inside, inside]


@pytest.mark.parametrize("shape", [(30, 35), (1, 9), (17, 3)])
@pytest.mark.parametrize(("search", "step"), [(4, 3), (3, 8), (12, 8), (18, 8)])
def test_groups_are_those_of_loops(shape, search, step):
    # Subtract the mean, as is done internally: otherwise rounding changes the patches.
    image = IMAGE[: shape[0], : shape[1]]
    image = image - image.mean()
    found = PatchGroups(0.1, search_radius=search, step=step).fit_transform(image[None])[0]
    assert found.shape == (*shape, 1)
    assert found.dtype == np.float32
    # Two patches may be equally near up to rounding; either may be chosen.
    off = np.abs(found[..., 0] - shrunk_by_loops(image, 0.1, search, step))
    assert np.median(off) < 1e-5
    assert np.mean(off > 1e-3) < 0.05


def test_flat_areas_stay_flat():
    # All patches of a flat area are equal, and a group cannot hold all of them.
    image = np.full((60, 70), 10.0)
    image[:, :20] += RNG.normal(size=(60, 20))
    assert np.abs(PatchGroups(1.0).fit_transform(image[None])[0, :, 50:, 0] - 10).max() < 0.1


def test_what_repeats_itself_loses_its_noise():
    clean = np.tile(np.kron(RNG.random((2, 2)), np.ones((4, 4))), (6, 6))
    noisy = clean + 0.1 * RNG.normal(size=clean.shape)
    shrunk = PatchShrinkage([0.27]).fit_transform(noisy[None])[0, ..., 0]
    groups = PatchGroups(0.1).fit_transform(noisy[None])[0, ..., 0]
    errors = [np.mean((part - clean) ** 2) for part in (noisy, shrunk, groups)]
    assert errors[2] < 0.5 * min(errors[:2])


def test_threads_layouts_and_read_only_input():
    images = np.stack([IMAGE, IMAGE[::-1]])
    images.setflags(write=False)
    one, three = (PatchGroups(0.1, n_jobs=n).fit_transform(images) for n in (1, 3))
    assert_array_equal(one, three)
    # Threads start at other rows than groups.
    tall = np.tile(IMAGE[:, :9], (13, 1))[None]
    one, three = (PatchGroups(0.1, n_jobs=n, search_radius=4).fit_transform(tall) for n in (1, 3))
    assert_array_equal(one, three)
    ragged = PatchGroups(0.1).fit_transform([IMAGE, IMAGE[:9]])
    assert ragged.dtype == object
    colours = PatchGroups(0.1).fit(np.dstack([IMAGE, 2 * IMAGE])[None])
    assert colours.get_feature_names_out().tolist() == ["channel0_groups_0.1", "channel1_groups_0.1"]
    assert colours.transform(np.dstack([IMAGE, 2 * IMAGE])[None]).shape == (1, 30, 35, 2)


def test_pixels_depend_on_no_more_than_reach():
    # The sums of these numbers are exact, and the change does not alter their mean, which is subtracted internally.
    # Otherwise rounding would decide between equally similar patches, such as patches reflected at the border.
    image = np.round(64 * np.tile(IMAGE, (3, 3))) / 64
    groups = PatchGroups(0.1, search_radius=2).fit(image[None])
    other = image.copy()
    other[45, 50:52] += 1.0, -1.0
    changed = np.abs(np.diff([groups.transform(x[None])[0] for x in (image, other)], axis=0))[0, ..., 0] > 1e-3
    rows, columns = np.nonzero(changed)
    assert np.abs(rows - 45).max() <= groups.reach_
    assert np.abs(columns - 50).max() <= groups.reach_ + 1


@pytest.mark.parametrize("options", [{"noise": 0.0}, {"noise": "much"}, {"step": 9}, {"search_radius": -1}])
def test_bad_options_are_named(options):
    with pytest.raises((ValueError, TypeError), match=next(iter(options))):
        PatchGroups(**options).fit(IMAGE[None])
