"""``python -m sklearn_crf restore``."""

import subprocess
import sys

import numpy as np
import pytest

from sklearn_crf import restore
from sklearn_crf.__main__ import main

io = pytest.importorskip("skimage.io", reason="image files need scikit-image")


@pytest.fixture
def files(tmp_path):
    """Write an image and its mask, and return their folder."""
    image = np.random.default_rng(0).integers(256, size=(24, 30, 3)).astype(np.uint8)
    mask = np.zeros((24, 30), dtype=np.uint8)
    mask[5:9] = 255
    for name, values in (("photo.png", image), ("mask.png", mask)):
        io.imsave(tmp_path / name, values, check_contrast=False)
    return tmp_path


def test_command_restores_files(files):
    image, out = io.imread(files / "photo.png"), files / "restored.png"
    main(["restore", str(files / "photo.png"), str(out), "--noise", "20"])
    np.testing.assert_array_equal(io.imread(out), restore(image, noise=20.0))
    main(["restore", str(files / "photo.png"), str(out), "--jpeg", "--quality", "fast"])
    np.testing.assert_array_equal(io.imread(out), restore(image, jpeg=True, quality="fast"))
    main(["restore", str(files / "photo.png"), str(out), "--mask", str(files / "mask.png")])
    np.testing.assert_array_equal(io.imread(out), restore(image, mask=io.imread(files / "mask.png") > 0))
    main(["restore", str(files / "photo.png"), str(out), "--scale", "2"])
    assert io.imread(out).shape == (48, 60, 3)


def test_command_says_what_is_wrong(files):
    command = [sys.executable, "-m", "sklearn_crf", "restore", str(files / "nothing.png"), str(files / "out.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nothing.png" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("n_colours", [1, 3])
def test_alpha_is_separated_from_colours(tmp_path, n_colours, dtype):
    rng, top = np.random.default_rng(0), np.iinfo(dtype).max
    photo, painted = rng.integers(top, size=(24, 30, n_colours)).astype(dtype), np.zeros((24, 30), bool)
    painted[5:9] = True
    alpha = rng.integers(top, size=(24, 30)).astype(dtype)
    names = [str(tmp_path / name) for name in ("photo.tif", "mask.tif", "out.tif")]
    colours = photo if n_colours == 3 else photo[..., 0]
    io.imsave(names[0], np.dstack([photo, alpha]), check_contrast=False)
    # White everywhere, but opaque only where it was painted.
    white = np.full((24, 30, n_colours), top, dtype)
    io.imsave(names[1], np.dstack([white, (top * painted).astype(dtype)]), check_contrast=False)
    for options, scale in ((["--mask", names[1]], 1), (["--scale", "2"], 2)):
        main(["restore", names[0], names[2], *options])
        found = io.imread(names[2])
        expected = restore(colours, scale=scale, mask=painted if scale == 1 else None)
        np.testing.assert_array_equal(found[..., :-1], expected.reshape(*expected.shape[:2], -1))
        np.testing.assert_array_equal(found[..., -1], alpha.repeat(scale, axis=0).repeat(scale, axis=1))


def test_images_of_one_frame_and_masks_with_ripples_are_read(files):
    image_module = pytest.importorskip("PIL.Image", reason="photographs need Pillow")
    image_module.open(files / "photo.png").save(files / "photo.gif")
    image_module.open(files / "mask.png").save(files / "mask.jpg", quality=50)
    assert np.count_nonzero(io.imread(files / "mask.jpg")) > np.count_nonzero(io.imread(files / "mask.png"))
    for photo in ("photo.gif", "photo.png"):
        main(["restore", str(files / photo), str(files / "out.png"), "--mask", str(files / "mask.jpg")])
        given = io.imread(files / photo).reshape(24, 30, 3)
        np.testing.assert_array_equal(
            io.imread(files / "out.png"), restore(given, mask=io.imread(files / "mask.png") > 0)
        )


@pytest.mark.parametrize("n_channels", [1, 2, 3, 4])
def test_masks_without_missing_pixels_are_errors(files, n_channels, capsys):
    mask = np.zeros((24, 30, n_channels), dtype=np.uint8)
    if n_channels in (2, 4):
        mask[5:9, :, -1] = 255
    io.imsave(files / "empty.tif", mask if n_channels > 1 else mask[..., 0], check_contrast=False)
    with pytest.raises(SystemExit):
        main(["restore", str(files / "photo.png"), str(files / "out.png"), "--mask", str(files / "empty.tif")])
    assert "draw the missing pixels in white" in capsys.readouterr().err


@pytest.mark.parametrize("kept", [slice(2), slice(12), slice(60), slice(-200)])
def test_damaged_files_are_named(files, kept, capsys):
    damaged = files / "damaged.png"
    damaged.write_bytes((files / "photo.png").read_bytes()[kept])
    with pytest.raises(SystemExit):
        main(["restore", str(damaged), str(files / "out.png")])
    assert f"{damaged} cannot be read as an image" in capsys.readouterr().err


def test_failed_writing_keeps_the_former_file(files, monkeypatch):
    former = (files / "mask.png").read_bytes()

    def fail(path, image, **_):
        path.write_bytes(b"half")
        if image.shape[0] > 8:
            raise OSError("no space")

    monkeypatch.setattr(io, "imsave", fail)
    with pytest.raises(SystemExit):
        main(["restore", str(files / "photo.png"), str(files / "mask.png")])
    assert (files / "mask.png").read_bytes() == former
    assert sorted(path.name for path in files.iterdir()) == ["mask.png", "photo.png"]


WRITABLE = {
    "float, PNG": (np.zeros((24, 30), dtype=np.float32), "out.png", "float32 with 1 channels"),
    "alpha, JPEG": (np.zeros((24, 30, 4), dtype=np.uint8), "out.jpg", "uint8 with 4 channels"),
    "colours of 16 bits, PNG": (np.zeros((24, 30, 3), dtype=np.uint16), "out.png", "uint16 with 3 channels"),
    "no folder": (np.zeros((24, 30), dtype=np.uint8), "none/out.png", "create the folder"),
}


@pytest.mark.parametrize("case", WRITABLE)
def test_files_that_cannot_be_written_are_errors_before_the_work(tmp_path, case, monkeypatch, capsys):
    image, name, message = WRITABLE[case]
    io.imsave(tmp_path / "photo.tif", image, check_contrast=False)
    monkeypatch.setattr("sklearn_crf.__main__.restore", lambda *_, **__: pytest.fail("the image was restored"))
    with pytest.raises(SystemExit):
        main(["restore", str(tmp_path / "photo.tif"), str(tmp_path / name)])
    assert message in capsys.readouterr().err


def draw_strokes(shape):
    """Return strokes in red on the right half and in green on the left half, on a transparent background."""
    strokes = np.zeros((*shape, 4), dtype=np.uint8)
    strokes[8:12, 3:9], strokes[8:12, 20:26] = [0, 255, 0, 255], [255, 0, 0, 255]
    return strokes


def test_command_labels_by_strokes(tmp_path):
    rng = np.random.default_rng(0)
    halves = np.where(np.arange(30) < 15, 80, 160)[np.newaxis, :, np.newaxis] * np.ones((24, 1, 3))
    photo = np.clip(halves + 30 * rng.normal(size=halves.shape), 0, 255).astype(np.uint8)
    names = [str(tmp_path / name) for name in ("photo.png", "strokes.png", "labels.png")]
    io.imsave(names[0], photo, check_contrast=False)
    io.imsave(names[1], draw_strokes((24, 30)), check_contrast=False)
    main(["label", *names])
    found = io.imread(names[2])
    expected = np.where((np.arange(30) < 15)[:, np.newaxis], [0, 255, 0], [255, 0, 0])
    assert found.shape == photo.shape
    assert np.mean((found == expected).all(axis=2)) > 0.95


@pytest.mark.parametrize("mode", ["P", "L", "RGB"])
def test_a_transparent_colour_is_no_stroke(files, mode):
    image_module = pytest.importorskip("PIL.Image", reason="photographs need Pillow")
    grey = np.full((24, 30), 90, dtype=np.uint8)  # the background
    grey[8:12, 3:9], grey[8:12, 20:26] = 200, 255
    strokes = image_module.fromarray(grey).convert(mode)
    strokes.save(files / "key.png", transparency=(90, 90, 90) if mode == "RGB" else strokes.getpixel((0, 0)))
    opaque = np.dstack([grey, grey, grey, np.where(grey == 90, 0, 255).astype(np.uint8)])
    io.imsave(files / "alpha.png", opaque, check_contrast=False)
    found = []
    for name in ("key.png", "alpha.png"):
        main(["label", *(str(files / each) for each in ("photo.png", name, "out.png"))])
        found.append(io.imread(files / "out.png"))
    assert set(np.unique(found[0])) <= {200, 255}
    np.testing.assert_array_equal(*found)


def test_labels_do_not_depend_on_the_type_of_the_image(tmp_path):
    rng = np.random.default_rng(0)
    halves = np.where(np.arange(30) < 15, 100, 140)[np.newaxis, :, np.newaxis] * np.ones((24, 1, 3))
    photo = np.clip(halves + 40 * rng.normal(size=halves.shape), 0, 255).astype(np.uint8)
    photo[0, 0], photo[0, 1] = 0, 255
    forms = {"uint8": photo, "uint16": photo.astype(np.uint16) * 257, "float32": photo.astype(np.float32) / 255}
    io.imsave(tmp_path / "strokes.png", draw_strokes((24, 30)), check_contrast=False)
    found = {}
    for name, values in forms.items():
        names = [str(tmp_path / each) for each in (f"{name}.tif", "strokes.png", f"{name}.png")]
        io.imsave(names[0], values, check_contrast=False)
        assert io.imread(names[0]).dtype == name
        main(["label", *names])
        found[name] = io.imread(names[2])
    np.testing.assert_array_equal(found["uint16"], found["uint8"])
    assert np.mean(found["float32"] == found["uint8"]) > 0.99


@pytest.mark.parametrize(
    ("strokes", "message"),
    [
        (np.zeros((24, 30, 3), dtype=np.uint8), "has strokes of 0 colours: draw in 2 to 32 colours"),
        (draw_strokes((24, 31)), "has shape"),
    ],
)
def test_strokes_that_cannot_be_used_are_named(files, strokes, message, capsys):
    io.imsave(files / "strokes.png", strokes, check_contrast=False)
    with pytest.raises(SystemExit):
        main(["label", str(files / "photo.png"), str(files / "strokes.png"), str(files / "out.png")])
    assert message in capsys.readouterr().err


def test_command_turns_photographs_upright(tmp_path):
    image_module = pytest.importorskip("PIL.Image", reason="photographs need Pillow")
    photo = np.zeros((24, 40, 3), dtype=np.uint8)
    photo[:12] = 200
    tag = image_module.Exif()
    tag[0x0112] = 6  # turned by 90 degrees
    names = [str(tmp_path / name) for name in ("photo.jpg", "upright.png")]
    image_module.fromarray(photo).save(names[0], exif=tag, quality=95)
    main(["restore", *names, "--noise", "5"])
    found = io.imread(names[1])
    assert found.shape == (40, 24, 3)
    assert found[:, :10].mean() < 20
    assert found[:, -10:].mean() > 180


def test_command_reads_colours_of_print(tmp_path):
    image_module = pytest.importorskip("PIL.Image", reason="photographs need Pillow")
    photo = np.full((24, 32, 3), [200, 90, 40], dtype=np.uint8)
    names = [str(tmp_path / name) for name in ("print.jpg", "restored.png")]
    image_module.fromarray(photo).convert("CMYK").save(names[0], quality=95)
    main(["restore", *names, "--noise", "5"])
    found = io.imread(names[1])
    assert found.shape == photo.shape
    assert np.abs(found.mean((0, 1)) - photo[0, 0]).max() < 10
