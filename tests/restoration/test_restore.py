"""Photographs restored by the fields that come with the package."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.interpolate import griddata
from scipy.ndimage import convolve, zoom

from sklearn_crf import restore
from sklearn_crf.restoration import _restore as ready
from sklearn_crf.restoration._noise import PhotoNoise
from sklearn_crf.rtf import JPEG


def photograph(height=96, width=120):
    """Return a smooth colour scene with edges, with values from 0 to 1."""
    rows, columns = np.mgrid[:height, :width] / height
    scene = 0.5 + 0.3 * np.sin(3 * rows) * np.cos(4 * columns)
    scene = np.where((rows - 0.5) ** 2 + (columns - 0.6) ** 2 < 0.1, 0.15 + 0.3 * columns, scene)
    return np.stack([scene, 0.8 * scene + 0.1 * rows, 0.9 - 0.7 * scene], axis=-1)


@pytest.fixture(scope="module")
def coins():
    """Return a part of a grey photograph that no field was trained on, with values from 0 to 1."""
    data = pytest.importorskip("skimage.data", reason="the photograph comes with scikit-image")
    return data.coins()[60:180, 20:164] / 255


def psnr(image, truth):
    return -10 * np.log10(np.mean((np.asarray(image, dtype=float) - truth) ** 2) + 1e-12)


CLEAN = photograph()
NOISY = CLEAN + 0.08 * np.random.default_rng(0).normal(size=CLEAN.shape)


@pytest.mark.parametrize("level", [0.02, 0.08, 0.2])
@pytest.mark.parametrize("is_grey", [False, True])
def test_noise_of_any_level_is_removed(level, is_grey):
    clean = CLEAN[..., 0] if is_grey else CLEAN
    noisy = clean + level * np.random.default_rng(1).normal(size=clean.shape)
    restored = restore(noisy)
    assert restored.shape == noisy.shape
    assert psnr(restored, clean) > psnr(noisy, clean) + 4
    assert psnr(restored, clean) > psnr(restore(noisy, noise=level), clean) - 0.3


@pytest.mark.parametrize("given", ["auto", 0.3])
@pytest.mark.parametrize("is_grey", [False, True])
def test_clipped_noise_is_removed_as_well_as_other_noise(is_grey, given):
    clean = np.clip(1.2 * (CLEAN - 0.3), 0, 1)
    clean = np.tile(clean[..., 2] if is_grey else clean, (2, 2) if is_grey else (2, 2, 1))
    noisy = clean + 0.3 * np.random.default_rng(1).normal(size=clean.shape)
    clipped = np.clip(noisy, 0, 1)
    assert 0.1 < np.mean(clipped != noisy) < 0.5
    found, restored = restore(clipped, noise=given), np.clip(restore(noisy, noise=given), 0, 1)
    assert psnr(found, clean) > psnr(restored, clean) - 0.5
    dark = clean < 0.1
    assert abs(found[dark].mean() - clean[dark].mean()) < 0.03
    assert psnr(
        restore((255 * clipped).round().astype(np.uint8), noise="auto" if given == "auto" else 76.5) / 255, clean
    ) > (psnr(found, clean) - 0.05)


@pytest.mark.parametrize("is_clipped", [False, True])
@pytest.mark.parametrize("n_colours", [0, 3])
def test_noise_that_grows_with_brightness_is_removed(n_colours, is_clipped):
    colours = np.random.default_rng(0).random((12, 12, n_colours or 1))
    clean = np.kron(colours, np.ones((24, 24, 1)))
    clean = clean if n_colours else clean[..., 0]
    noisy = clean + np.sqrt(0.03 * clean + 1e-4) * np.random.default_rng(1).normal(size=clean.shape)
    noisy = np.clip(noisy, 0, 1) if is_clipped else noisy
    restored, as_white = restore(noisy), restore(noisy, noise=np.std(noisy - clean))
    # Without clipping, the least value of the image counts as black.
    assert psnr(restored, clean) > psnr(as_white, clean) + (1 if is_clipped else 0)
    for some in (clean < 0.2, clean > 0.8):
        assert abs(restored[some].mean() - clean[some].mean()) < 0.02


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("high", [False, True])
@pytest.mark.parametrize("offset", [2.0, 200.0, np.inf])
@pytest.mark.parametrize("level", [2.0, 30.0])
def test_transforms_of_noise_are_inverted_without_bias(low, high, offset, level):
    brightness = np.array([1.0, 20.0, 60.0, 200.0, 250.0])
    spread = level * np.ones(5)
    if np.isfinite(offset):
        spread *= np.sqrt(brightness + offset) * 2 * (np.sqrt(255 + offset) - np.sqrt(offset)) / 255
    noisy = brightness + spread * np.random.default_rng(0).normal(size=(100_000, 5))
    noisy = np.clip(noisy, 0 if low else -np.inf, 255 if high else np.inf)
    noise = PhotoNoise(offset, low, high, np.ones((1, 1), dtype=bool) if low or high else None)
    stabilised = noise.stabilise(noisy)
    means = noise.compute_means(brightness, level)
    assert_allclose(means, stabilised.mean(axis=0), atol=5 * level / np.sqrt(len(noisy)) + 1e-3 * level)
    assert_allclose(noise.invert(means, level), brightness, atol=0.5)


def test_white_noise_is_not_transformed():
    values = 255 * np.tile(NOISY, (2, 2, 1))
    noise = PhotoNoise.of(values, is_white=False, bounded=(True, True))
    assert (noise.offset, noise.low, noise.high, noise.clipped) == (np.inf, False, False, None)
    assert noise.stabilise(values) is values
    assert noise.invert(values, 20.0) is values
    assert PhotoNoise.of(np.clip(values, 0, 255), is_white=True, bounded=(True, True)).clipped.shape == values.shape
    assert PhotoNoise.of(np.clip(values, 0, 255), is_white=True, bounded=(False, False)).clipped is None


def test_clean_photographs_stay_as_they_are():
    assert psnr(restore(CLEAN), CLEAN) > 45


FORMS = {
    "bytes": (lambda x: np.rint(255 * x).astype(np.uint8), lambda x: x / 255),
    "16 bits": (lambda x: np.rint(65535 * x).astype(np.uint16), lambda x: x / 65535),
    "float32": (lambda x: x.astype(np.float32), lambda x: x),
    "floats of bytes": (lambda x: 255 * x, lambda x: x / 255),
    "own range": (lambda x: 6 * x - 3, lambda x: (x + 3) / 6),
    "units of 1e-6": (lambda x: 1e-6 * x, lambda x: 1e6 * x),
    "signed bytes": (lambda x: np.rint(255 * x - 128).astype(np.int8), lambda x: (x + 128) / 255),
}


@pytest.mark.parametrize("form", FORMS)
def test_types_and_ranges_restore_alike(form):
    there, back = FORMS[form]
    noisy = there(np.clip(NOISY, 0, 1))
    restored = restore(noisy)
    assert restored.dtype == noisy.dtype
    assert psnr(back(restored.astype(float)), restore(np.clip(NOISY, 0, 1))) > 40


def test_alpha_is_kept():
    alpha = np.random.default_rng(0).random(CLEAN.shape[:2])[..., np.newaxis]
    restored = restore(np.concatenate([NOISY, alpha], axis=2))
    np.testing.assert_array_equal(restored[..., 3:], alpha)
    np.testing.assert_array_equal(restored[..., :3], restore(NOISY))


@pytest.mark.parametrize("quality", [5, 10, 20, 40])
def test_blocks_of_compressed_photographs_are_removed(quality, coins):
    compressed = JPEG(quality)(255 * coins, np.random.default_rng(0)).astype(np.uint8)
    restored = restore(compressed, jpeg=True)
    assert restored.dtype == np.uint8
    assert psnr(restored / 255, coins) > psnr(compressed / 255, coins) + 0.3
    assert psnr(restored / 255, coins) > psnr(restore(compressed, jpeg=False) / 255, coins) + 0.2
    np.testing.assert_array_equal(restore(compressed), restored)


@pytest.mark.parametrize("damage", ["noise", "jpeg"])
def test_larger_models_restore_better(damage, coins):
    rng = np.random.default_rng(0)
    is_jpeg = damage == "jpeg"
    given = JPEG(10)(255 * coins, rng) / 255 if is_jpeg else coins + 0.1 * rng.normal(size=coins.shape)
    errors = [psnr(restore(given, jpeg=is_jpeg, quality=name), coins) for name in ("fast", "default", "high")]
    assert errors == sorted(errors)
    assert errors[0] > psnr(given, coins) + (0.7 if is_jpeg else 6)


def test_files_of_high_quality_and_clean_images_stay_as_they_are(coins):
    compressed = JPEG(95)(255 * coins, np.random.default_rng(0)).astype(np.uint8)
    assert psnr(restore(compressed, jpeg=True) / 255, coins) > psnr(compressed / 255, coins) - 0.5
    clean = np.rint(255 * coins).astype(np.uint8)
    assert psnr(restore(clean, jpeg=True) / 255, clean / 255) > 45


def test_noise_that_survived_compression_is_removed_as_noise(coins):
    rng = np.random.default_rng(0)
    noisy = np.clip(np.rint(255 * coins + 25 * rng.normal(size=coins.shape)), 0, 255)
    compressed = JPEG(80)(noisy, rng).astype(np.uint8)
    np.testing.assert_array_equal(restore(compressed), restore(compressed, jpeg=False))
    assert psnr(restore(compressed) / 255, coins) > psnr(restore(compressed, jpeg=True) / 255, coins) + 3


# Images that were never compressed, although their pixels have few values or come in squares
UNCOMPRESSED = {
    "squares of 8": lambda rng: np.kron(rng.integers(10, 240, (20, 20)), np.ones((8, 8), dtype=int)),
    "squares of 12": lambda rng: np.kron(rng.integers(10, 240, (20, 20)), np.ones((12, 12), dtype=int)),
    "gradient": lambda rng: np.add.outer(np.arange(160), np.arange(160)) // 2,
    "steep gradient": lambda rng: np.tile(3 * np.add.outer(np.arange(40), np.arange(40)), (4, 4)),
    "chessboard": lambda rng: np.where(np.add.outer(np.arange(160), np.arange(160)) % 2, 200, 40),
    "one colour": lambda rng: np.full((160, 160), 90),
    "few values": lambda rng: 32 * rng.integers(1, 7, (160, 160)),
    "small": lambda rng: rng.integers(1, 255, (5, 6)),
}


@pytest.mark.parametrize("name", UNCOMPRESSED)
def test_images_that_were_never_compressed_are_told_apart(name):
    image = UNCOMPRESSED[name](np.random.default_rng(0)).astype(np.uint8)
    np.testing.assert_array_equal(restore(image, quality="fast"), restore(image, jpeg=False, quality="fast"))


def test_blocks_are_found_if_parts_of_the_image_were_cut_off(coins):
    compressed = JPEG(10)(255 * coins, np.random.default_rng(0)).astype(np.uint8)
    whole, part = restore(compressed, jpeg=True), restore(compressed[3:, 5:], jpeg=True)
    inner = np.s_[20:-20, 20:-20]
    assert psnr(part[inner] / 255, whole[3:, 5:][inner] / 255) > 45


def test_blocks_of_compressed_colours_are_removed():
    compressed = JPEG(10)(255 * CLEAN, np.random.default_rng(0)).astype(np.uint8)
    assert psnr(restore(compressed, jpeg=True) / 255, CLEAN) > psnr(compressed / 255, CLEAN) + 1


@pytest.mark.parametrize("by", ["mask", "nan"])
def test_missing_pixels_are_filled_in_and_others_kept(by, coins):
    mask = np.random.default_rng(2).random(coins.shape) < 0.4
    image = np.where(mask, np.nan if by == "nan" else 0.0, coins)
    restored = restore(image, mask=mask if by == "mask" else None)
    np.testing.assert_array_equal(restored[~mask], coins[~mask])
    known, gaps = np.argwhere(~mask), np.argwhere(mask)
    of_nearest = griddata(known, coins[~mask], gaps, method="nearest")
    of_lines = griddata(known, coins[~mask], gaps, method="linear")
    of_lines = np.where(np.isnan(of_lines), of_nearest, of_lines)
    assert psnr(restored[mask], coins[mask]) > psnr(of_lines, coins[mask]) + 0.5


def test_colours_of_missing_pixels_are_filled_in():
    mask = np.random.default_rng(2).random(CLEAN.shape[:2]) < 0.4
    restored = restore(np.where(mask[..., np.newaxis], np.nan, CLEAN))
    np.testing.assert_array_equal(restored[~mask], CLEAN[~mask])
    assert psnr(restored[mask], CLEAN[mask]) > 30


@pytest.mark.parametrize("noise", [0.002, 0.02])
def test_known_blur_is_undone(noise, coins):
    kernel = np.ones((5, 5))
    blurred = convolve(coins, kernel / 25, mode="nearest")
    blurred += noise * np.random.default_rng(3).normal(size=blurred.shape)
    inner = np.s_[4:-4, 4:-4]
    restored, of_given = restore(blurred, kernel=kernel), restore(blurred, kernel=kernel, noise=noise)
    assert psnr(restored[inner], coins[inner]) > psnr(blurred[inner], coins[inner]) + 1
    assert psnr(restored[inner], coins[inner]) > psnr(of_given[inner], coins[inner]) - 0.2


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_images_are_enlarged_better_than_by_splines(scale, coins):
    small = coins.reshape(120 // scale, scale, 144 // scale, scale).mean(axis=(1, 3))
    restored = restore(small, scale=scale)
    assert restored.shape == coins.shape
    assert psnr(restored, coins) > psnr(zoom(small, scale, order=3, grid_mode=True, mode="nearest"), coins)


def test_colours_are_enlarged():
    assert restore(CLEAN[:20, :24], scale=3).shape == (60, 72, 3)


def test_lists_are_restored_image_by_image():
    images, mask = [NOISY[:40, :50], NOISY[:60, :30, 0]], np.zeros((40, 50), dtype=bool)
    mask[3:6] = True
    for own, one in zip(restore(images), images, strict=True):
        np.testing.assert_array_equal(own, restore(one))
    both = restore(images, mask=[mask, None])
    np.testing.assert_array_equal(both[0], restore(images[0], mask=mask))
    np.testing.assert_array_equal(both[1], restore(images[1]))


def test_same_bits_for_any_number_of_threads_and_input_that_is_not_written_to():
    noisy = NOISY.copy()
    noisy.flags.writeable = False
    np.testing.assert_array_equal(restore(noisy, n_jobs=1), restore(noisy, n_jobs=3))


@pytest.mark.parametrize("image", [np.zeros((40, 40), dtype=np.uint8), np.full((40, 40, 3), 7e-3), np.ones((2, 9))])
@pytest.mark.parametrize("jpeg", [False, True])
def test_images_of_one_colour(image, jpeg):
    np.testing.assert_allclose(restore(image, jpeg=jpeg), image, atol=1e-3)


def test_dark_photographs():
    dark = np.rint(6 * CLEAN).astype(np.uint8)
    assert np.abs(restore(dark).astype(int) - dark).max() <= 2


WRONG = {
    "several images as an array": ((np.zeros((5, 8, 8, 3)),), {}, "image must have shape .* pass several images as"),
    "grey with alpha": ((np.zeros((8, 8, 2)),), {}, "must have shape .* and grey images without an alpha channel"),
    "one pixel": ((np.zeros((1, 1)),), {}, r"with at least two rows and columns, got \(1, 1\)"),
    "an axis of one channel": ((np.zeros((8, 8, 1)),), {}, r"pass a grey image as image\[..., 0\]"),
    "text": (("photo.jpg",), {}, "image must hold numbers, got the string 'photo.jpg'"),
    "infinity": ((np.full((8, 8), np.inf),), {}, "image holds infinity"),
    "nothing known": (([CLEAN, np.full((8, 8), np.nan)],), {}, r"image\[1\] has no known pixel"),
    "all masked": ((CLEAN,), {"mask": np.ones((96, 120), dtype=bool)}, "image has no known pixel"),
    "mask of another size": ((CLEAN,), {"mask": np.ones((9, 12), dtype=bool)}, "mask of image must be booleans of"),
    "mask of numbers": ((CLEAN,), {"mask": np.ones((96, 120))}, "mask of image must be booleans"),
    "too few masks": (([CLEAN, CLEAN],), {"mask": [None]}, "mask holds 1 masks, but image holds 2 images"),
    "negative noise": ((CLEAN,), {"noise": -1.0}, "noise must be 'auto', a positive number"),
    "infinite noise": ((CLEAN,), {"noise": np.inf}, "noise must be 'auto', a positive number"),
    "noise of a name": ((CLEAN,), {"noise": "much"}, "noise must be 'auto', a positive number"),
    "levels": ((CLEAN,), {"noise": [1.0]}, "noise must be 'auto' or a positive number"),
    "scale of nothing": ((CLEAN,), {"scale": 0}, "scale must be between 1 and 4, got 0"),
    "half a scale": ((CLEAN,), {"scale": 1.5}, "scale must be"),
    "kernel and scale": ((CLEAN,), {"kernel": np.ones((3, 3)), "scale": 2}, "undo the blur first, then enlarge"),
    "kernel of a number": ((CLEAN,), {"kernel": 3.0}, "kernel must be a matrix of finite numbers of positive sum"),
    "empty kernel": ((CLEAN,), {"kernel": np.zeros((3, 3))}, "kernel must be a matrix"),
    "mask and scale": ((CLEAN,), {"mask": np.eye(96, 120) > 0, "scale": 2}, "omit noise, jpeg, kernel and scale"),
    "mask and JPEG": ((CLEAN,), {"mask": np.eye(96, 120) > 0, "jpeg": True}, "omit noise, jpeg, kernel and scale"),
    "JPEG and noise": ((CLEAN,), {"jpeg": True, "noise": 0.1}, "jpeg=True cannot be combined with noise, kernel or"),
    "unknown preset": ((CLEAN,), {"quality": "best"}, "quality must be 'fast', 'default' or 'high', got 'best'"),
    "preset of a number": ((CLEAN,), {"quality": 7}, "quality must be 'fast', 'default' or 'high', got 7"),
    "quality of JPEG": ((CLEAN,), {"jpeg": 10}, "jpeg must be True, False or 'auto', got 10"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_named(case):
    given, options, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        restore(*given, **options)


@pytest.mark.parametrize("name", ready.FIELDS)
def test_ready_fields_are_read_as_they_were_written(name, tmp_path):
    path = ready.save(name, ready.load_trained_field(name), tmp_path)
    assert json.loads(path.read_text()) == json.loads((ready.FOLDER / path.name).read_text())
    assert path.stat().st_size < 90_000


@pytest.mark.parametrize(("image", "noise"), [(NOISY, 20), (255 * NOISY, 1e4)])
def test_noise_above_the_range_of_the_image_is_an_error(image, noise):
    with pytest.raises(
        ValueError,
        match=rf"^noise={noise:g} is more than the range of all values of image: give noise in",
    ):
        restore(image, noise=noise)


@pytest.mark.parametrize("quality", [4, 5])
def test_blocks_of_the_lowest_qualities_are_found(quality):
    data = pytest.importorskip("skimage.data", reason="the photograph comes with scikit-image")
    photo = data.camera()[:256, 128:384].astype(float)
    compressed = JPEG(quality)(photo, np.random.default_rng(0)).astype(np.uint8)
    found = restore(compressed, quality="fast")
    np.testing.assert_array_equal(found, restore(compressed, jpeg=True, quality="fast"))
    assert psnr(found / 255, photo / 255) > psnr(compressed / 255, photo / 255) + 0.5


def test_blur_of_two_rows_is_undone():
    image = np.random.default_rng(0).random((2, 50))
    found = restore(image, kernel=np.ones((1, 3)))
    assert found.shape == image.shape
    assert np.isfinite(found).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("noise", ["auto", 0.05, 0.2])
def test_grey_photographs_stored_in_colour_restore_like_grey(noise, dtype):
    rng, top = np.random.default_rng(2), 255 if dtype == np.uint8 else 1
    level = 0.1 if noise == "auto" else noise
    noisy = top * np.clip(CLEAN[..., 0] + level * rng.normal(size=CLEAN.shape[:2]), 0, 1)
    grey = (np.rint(noisy) if dtype == np.uint8 else noisy).astype(dtype)
    noise = noise if noise == "auto" else top * noise
    in_colour = restore(np.repeat(grey[..., np.newaxis], 3, axis=2), noise=noise)
    expected = restore(grey, noise=noise)
    assert_allclose(in_colour / top, np.repeat(expected[..., np.newaxis] / top, 3, axis=2), atol=0.02)
    assert psnr(in_colour[..., 0] / top, CLEAN[..., 0]) > psnr(expected / top, CLEAN[..., 0]) - 0.05


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("level", [0.05, 0.2])
def test_given_levels_suit_channels_that_share_noise(share, level):
    rng = np.random.default_rng(3)
    common, own = rng.normal(size=(*CLEAN.shape[:2], 1)), rng.normal(size=CLEAN.shape)
    noisy = CLEAN + level * (np.sqrt(share) * common + np.sqrt(1 - share) * own)
    assert psnr(restore(noisy, noise=level), CLEAN) > psnr(restore(noisy), CLEAN) - 0.5


def test_noise_of_planes_adds_up_to_the_noise_of_channels():
    rng = np.random.default_rng(4)
    for share in (0.0, 0.5, 1.0):
        common, own = rng.normal(size=(64, 64, 1)), rng.normal(size=(64, 64, 3))
        noisy = 0.5 + 0.1 * (np.sqrt(share) * common + np.sqrt(1 - share) * own)
        photo = ready._Photo.of(noisy, None, "image")
        levels = photo.divide_noise(0.1, photo.planes)
        assert_allclose(levels, [np.std(plane) for plane in photo.planes], atol=0.08 * 0.1 * photo.unit)
        assert ready._WEIGHTS @ np.square(levels) == pytest.approx((0.1 * photo.unit) ** 2)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(20, 24), (20, 24, 3), (20, 24, 4)])
def test_a_mask_without_missing_pixels_changes_nothing(shape, dtype):
    image = np.random.default_rng(0).random(shape)
    image = (255 * image).astype(np.uint8) if dtype == np.uint8 else image.astype(dtype)
    mask, gap = np.zeros(shape[:2], bool), np.eye(*shape[:2], dtype=bool)
    unchanged, filled = restore([image, image], mask=[mask, gap])
    np.testing.assert_array_equal(unchanged, image)
    assert not np.shares_memory(unchanged, image)
    np.testing.assert_array_equal(filled[~gap], image[~gap])
    assert not np.array_equal(filled, image)
    with pytest.raises(ValueError, match="has missing pixels or a mask"):
        restore(image, mask=mask, scale=2)


SHARPENING = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]])


@pytest.mark.parametrize("level", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("kernel", [[[1.0]], SHARPENING, np.ones((1, 2)), np.ones((7, 7))])
def test_detail_is_not_taken_for_noise_of_a_kernel(coins, kernel, level):
    kernel = np.asarray(kernel) / np.sum(kernel)
    made = convolve(coins, kernel[::-1, ::-1], mode="nearest", origin=[-(side % 2 == 0) for side in kernel.shape])
    made += level * np.random.default_rng(0).normal(size=coins.shape)
    expected = psnr(restore(made, kernel=kernel, noise=max(level, 0.5 / 255)), coins)
    assert psnr(restore(made, kernel=kernel), coins) > min(expected, 45) - 0.5
