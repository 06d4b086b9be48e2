"""A loader reads images from files, and refuses what is none."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from advisor.errors import InvalidInput
from advisor.workload.named_workloads import workload
from advisor.zoo.image_files import ImageFiles, found_images
from advisor.zoo.recipe import recipe_of
from advisor.zoo.task import build

SIZES = ((40, 30), (64, 64), (20, 50))


@pytest.fixture
def folder(tmp_path):
    """Two classes of red and blue pictures of several sizes, and what is no picture."""
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


def test_a_folder_for_each_class_is_found_without_what_is_no_picture(folder):
    found = found_images(folder)
    assert (found.classes, found.count, found.cifar) == (2, 6, False)
    assert {label for _, label in found.files} == {0, 1}


def test_a_folder_called_train_is_the_one_that_is_meant(folder, tmp_path_factory):
    above = tmp_path_factory.mktemp("above")
    folder.rename(above / "train")
    assert found_images(above).count == 6


def test_an_image_is_cut_out_scaled_and_normalised_with_its_class(folder):
    torch.manual_seed(0)
    images = ImageFiles(found_images(folder), 24, 10)
    for _ in range(8):
        image, label = images.one()
        assert image.shape == (3, 24, 24)
        red, _, blue = (float(channel.mean()) for channel in image)
        assert (red > 0.9, blue > 0.9) == (label == 1, label == 0)


def test_cifar_has_its_labels_and_pixels(tmp_path):
    torch.manual_seed(0)
    found = found_images(cifar(tmp_path))
    assert (found.classes, found.count, found.cifar) == (10, 20, True)
    images = ImageFiles(found, 32, 10)
    for _ in range(5):
        image, label = images.one()
        assert image.shape == (3, 32, 32)
        assert float(image[0, 16, 16]) == pytest.approx(10 * float(label) / 127.5 - 1)


def test_cifar_in_its_own_folder_is_found_and_scaled(tmp_path):
    (tmp_path / "cifar-10-batches-bin").mkdir()
    cifar(tmp_path / "cifar-10-batches-bin")
    image, _ = ImageFiles(found_images(tmp_path), 64, 10).one()
    assert image.shape == (3, 64, 64)


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
        found_images(tmp_path)
    assert not (tmp_path / "fired").exists()


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"neither a folder of \.jpg"):
        found_images(tmp_path)
    with pytest.raises(InvalidInput, match="no such folder"):
        found_images(tmp_path / "nowhere")


def test_half_a_record_is_refused(tmp_path):
    (tmp_path / "data_batch_1.bin").write_bytes(b"\0" * 3000)
    with pytest.raises(InvalidInput, match="no multiple of 3073"):
        found_images(tmp_path)


def test_more_classes_than_the_model_has_are_refused(folder):
    for number in range(10):
        (folder / f"class{number}").mkdir()
        Image.new("RGB", (8, 8)).save(folder / f"class{number}" / "1.png")
    with pytest.raises(InvalidInput, match="12 classes, and the model tells 10"):
        ImageFiles(found_images(folder), 8, 10)


@pytest.mark.parametrize("content", [b"", b"no jpeg at all", b"\xff\xd8\xff\xe0" + b"\0" * 50])
def test_a_broken_image_is_named_when_it_is_read(tmp_path, content):
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "1.jpg"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"1\.jpg: it does not decode"):
        ImageFiles(found_images(tmp_path), 8, 10).one()


def test_a_workload_trains_on_a_folder_by_its_loader(folder):
    images = found_images(folder)
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
    with pytest.raises(InvalidInput, match="no image"):
        workload("mlp-toy-bs4-loader1").reading(folder, 6)
    forced = replace(workload("mlp-toy-bs4-loader1"), data=str(folder))
    with pytest.raises(InvalidInput, match="no image"):
        recipe_of(forced)
    with pytest.raises(InvalidInput, match="absolute"):
        replace(forced, data="images")


def test_an_unconditional_model_takes_any_classes(folder):
    reading = replace(workload("unet-cifar10-bs2-loader1"), data=str(folder))
    _, label = recipe_of(reading).examples.one()
    assert label == 0
