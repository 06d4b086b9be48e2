"""Images that a loader reads from files."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from advisor.errors import InvalidInput
from advisor.workload.catalogue import workload
from advisor.zoo.images import ImageFiles, find_images
from advisor.zoo.recipes import recipe_of
from advisor.zoo.task import build

SIZES = ((40, 30), (64, 64), (20, 50))


@pytest.fixture
def folder(tmp_path):
    """Two classes of red and blue pictures of several sizes, and a text."""
    for name, colour in (("blue", (0, 0, 255)), ("red", (255, 0, 0))):
        (tmp_path / name).mkdir()
        for number, size in enumerate(SIZES):
            kind = "png" if number else "JPG"
            form = "png" if number else "jpeg"
            Image.new("RGB", size, colour).save(tmp_path / name / f"{number}.{kind}", form)
        (tmp_path / name / "notes.txt").write_text("no picture")
    (tmp_path / "empty").mkdir()
    return tmp_path


def cifar(folder, images=20):
    """CIFAR-10's binary form, each image of one colour that is ten times its label."""
    labels = torch.arange(images) % 10
    pixels = (10 * labels)[:, None].expand(-1, 3 * 32 * 32)
    records = torch.cat([labels[:, None], pixels], dim=1).to(torch.uint8)
    (folder / "data_batch_1.bin").write_bytes(records.numpy().tobytes())
    return folder


def test_folders_without_the_images_that_a_model_needs_are_refused(folder, tmp_path_factory):
    bare = tmp_path_factory.mktemp("bare")
    for place in (bare, bare / "nowhere"):
        with pytest.raises(InvalidInput, match="folder"):
            find_images(place)
    (bare / "data_batch_1.bin").write_bytes(b"\0" * 3000)
    with pytest.raises(InvalidInput, match="multiple of 3073"):
        find_images(bare)
    Image.new("RGB", (8, 8)).save(folder / "empty" / "1.png")
    with pytest.raises(InvalidInput, match="3 classes"):
        ImageFiles(find_images(folder), 8, 2)


def test_an_image_is_cut_out_scaled_and_normalised_with_its_class(folder):
    torch.manual_seed(0)
    contents = find_images(folder)
    assert (contents.classes, contents.count, contents.cifar) == (2, 6, False)
    images = ImageFiles(contents, 24, 10)
    for _ in range(8):
        image, label = images.one()
        assert image.shape == (3, 24, 24)
        red, _, blue = (float(channel.mean()) for channel in image)
        assert (red > 0.9, blue > 0.9) == (label == 1, label == 0)


def test_cifar_has_its_labels_and_pixels(tmp_path):
    torch.manual_seed(0)
    contents = find_images(cifar(tmp_path))
    assert (contents.classes, contents.count, contents.cifar) == (10, 20, True)
    images = ImageFiles(contents, 32, 10)
    for _ in range(5):
        image, label = images.one()
        assert image.shape == (3, 32, 32)
        assert float(image[0, 16, 16]) == pytest.approx(10 * float(label) / 127.5 - 1)


class _Fires:
    """Makes a file when it is read as a pickle."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("inside", ["", "cifar-10-batches-py"])
def test_pickles_are_never_read_and_the_binary_version_is_named(tmp_path, inside):
    folder = tmp_path / inside
    folder.mkdir(exist_ok=True)
    (folder / "data_batch_1").write_bytes(pickle.dumps(_Fires(tmp_path / "fired")))
    with pytest.raises(InvalidInput, match=r"run code .* cifar-10-binary\.tar\.gz"):
        find_images(tmp_path)
    assert not (tmp_path / "fired").exists()


@pytest.mark.parametrize("content", [b"", b"no jpeg at all", b"\xff\xd8\xff\xe0" + b"\0" * 50])
def test_a_broken_image_is_named_when_it_is_read(tmp_path, content):
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "1.jpg"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"1\.jpg: it cannot be decoded"):
        ImageFiles(find_images(tmp_path), 8, 10).one()


def test_a_workload_trains_on_a_folder_by_its_loader(folder):
    images = find_images(folder)
    reading = workload("cnn-cifar10-bs4-loader1").reading(folder, images.count)
    assert reading.name == "cnn-cifar10-bs4-loader1-files"
    assert reading.steps_per_epoch == 2
    step = build(reading, "cpu")
    try:
        pixels, labels = step.next_batch()
        assert pixels.shape == (4, 3, 32, 32)
        assert labels.max() < 2
        step()
    finally:
        step.close()


def test_what_reads_no_images_or_has_no_loader_is_refused(folder):
    with pytest.raises(InvalidInput, match="-loader4"):
        workload("cnn-cifar10-bs4").reading(folder, 6)
    with pytest.raises(InvalidInput, match="image"):
        workload("mlp-toy-bs4-loader1").reading(folder, 6)
    forced = replace(workload("mlp-toy-bs4-loader1"), data=str(folder))
    with pytest.raises(InvalidInput, match="not an image"):
        recipe_of(forced)
    with pytest.raises(InvalidInput, match="absolute"):
        replace(forced, data="images")
