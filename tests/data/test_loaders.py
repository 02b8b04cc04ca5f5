"""The real sets: found, verified, downloaded when missing, and of the shapes their docstrings state."""

from __future__ import annotations

import hashlib
import os
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from eigenpact import datasets
from eigenpact.data import files, loaders
from eigenpact.errors import DataUnavailableError, FileError, InputError

with_data = pytest.mark.skipif("EIGENPACT_DATA" not in os.environ, reason="EIGENPACT_DATA is not set")


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """No data anywhere, and no network."""
    monkeypatch.setenv("EIGENPACT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("EIGENPACT_CACHE", str(tmp_path / "cache"))

    def offline(*_, **__):
        raise OSError("no network in tests")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    return tmp_path


def openml(monkeypatch, data, target):
    """Let fetch_openml answer with these arrays; return the list of names it was asked for."""
    asked = []

    def fetch(name, **_):
        asked.append(name)
        return SimpleNamespace(data=data, target=target)

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    return asked


def sha256_of_images(images):
    return hashlib.sha256(np.ascontiguousarray(images)).hexdigest()


SHAPES = {
    "beijing_air": (420768, 11),
    "cifar10": (10000, 3072),
    "debates": (6437, 4585),
    "digits": (1797, 64),
    "fashion_mnist": (60000, 784),
    "femnist": (16393, 784),
    "genomes": (1092, 14079),
    "har": (10299, 1152),
    "heart_disease": (920, 13),
    "mnist": (60000, 784),
    "mnist_test": (10000, 784),
    "pbmc68k": (700, 765),
    "video_bmc": (794, 19200),
    "video_escalator": (200, 20800),
}
GROUPS = {
    "beijing_air": {"station": 12},
    "debates": {"year": 13},
    "femnist": {"writer": 105},
    "genomes": {"population": 14, "super_population": 4},
    "har": {"subject": 30},
    "heart_disease": {"site": 4},
    "mnist": {"writer": 539},
    "mnist_test": {"writer": 297},
}


@with_data
@pytest.mark.parametrize("name", sorted(SHAPES))
def test_every_set_has_its_shape(name):
    data = datasets.load(name)
    assert data.name == name
    assert data.X.shape == SHAPES[name]
    assert data.y is None or data.y.shape == SHAPES[name][:1]
    assert all(group.shape == SHAPES[name][:1] for group in data.groups.values())
    assert data.feature_names is None or len(data.feature_names) == SHAPES[name][1]
    for group, count in GROUPS.get(name, {}).items():
        assert len(np.unique(data.groups[group])) == count
    if "shape" in data.extra:
        assert np.prod(data.extra["shape"]) == SHAPES[name][1]


def test_all_sets_are_listed_and_public():
    assert set(SHAPES) == set(datasets.NAMES)
    assert all(getattr(datasets, name) is getattr(loaders, name) for name in datasets.NAMES)


@with_data
def test_pbmc_rows_and_columns_fit_the_reference_pca():
    data = datasets.pbmc68k()
    X = data.X[:, data.extra["highly_variable"]].astype(float)
    values = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    # the reference is a randomized SVD: up to 6.5 % below the exact variance in its tail, so only the head is compared
    assert_allclose(values[:5] ** 2 / (len(X) - 1), data.extra["pca_variance"][:5], rtol=1e-5)


@with_data
def test_har_halves_overlap_as_the_windows_do():
    windows = datasets.har().X.reshape(-1, 9, 128)
    assert_array_equal(windows[0, :, 64:], windows[1, :, :64])


@with_data
def test_details_of_single_sets():
    heart = datasets.heart_disease()
    assert heart.feature_names[0] == "age"
    assert heart.X[0, :5].tolist() == [63, 1, 1, 145, 233]
    assert set(heart.groups["site"]) >= {"cleveland", "va"}
    assert np.isnan(heart.X).any()
    assert set(np.unique(heart.y)) == {0, 1, 2, 3, 4}
    assert np.unique(datasets.genomes().X).tolist() == [0, 1, 2]
    debates = datasets.debates()
    assert sparse.issparse(debates.X)
    word = debates.feature_names.index("president")
    assert "president" in debates.extra["text"][int(debates.X[:, [word]].tocoo().row[0])].lower()
    air = datasets.beijing_air()
    assert np.isnan(air.X).any(axis=0).all()
    assert air.groups["station"][35064] == "Changping"


@with_data
def test_recorded_checksums_cover_the_folder(monkeypatch):
    folder = files.folders()[0]
    assert {path.name for path in folder.iterdir() if path.suffix in {".npz", ".gz"}} == set(files.FILE_SHA256)
    with np.load(folder / "mnist_test.npz", allow_pickle=False) as archive:
        assert sha256_of_images(archive["images"]) == files.IMAGES_SHA256["mnist_test.npz"]
    monkeypatch.setattr(files, "_verified", set())
    files.verify(folder / "heart_disease_4sites.csv.gz")


def test_an_unknown_name_is_answered_with_the_closest():
    with pytest.raises(InputError, match=r"'minst' \(did you mean 'mnist'\?\); allowed are beijing_air, .*video_escalator"):
        datasets.load("minst")


def test_a_missing_file_says_where_it_was_looked_for(empty):
    with pytest.raises(DataUnavailableError) as caught:
        datasets.har()
    message = str(caught.value)
    assert "uci_har_inertial_by_subject.npz" in message
    assert str(empty / "data") in message
    assert str(empty / "cache") in message
    assert "set EIGENPACT_DATA" in message


@pytest.mark.parametrize("name", ["mnist", "mnist_test", "fashion_mnist", "cifar10"])
def test_without_network_the_download_is_reported(empty, name):
    with pytest.raises(DataUnavailableError, match=r"cannot be downloaded \(no network in tests\)"):
        datasets.load(name)
    assert not (empty / "cache").exists()


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("EIGENPACT_DATA", raising=False)
    monkeypatch.setenv("EIGENPACT_CACHE", str(tmp_path / "own"))
    assert files.folders() == [tmp_path / "own"]
    monkeypatch.delenv("EIGENPACT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.folders() == [tmp_path / "eigenpact"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.folders() == [tmp_path / ".cache" / "eigenpact"]


def test_a_changed_file_is_refused_with_both_checksums(empty):
    (empty / "data").mkdir()
    path = empty / "data" / "heart_disease_4sites.csv.gz"
    path.write_bytes(b"other content")
    found = hashlib.sha256(b"other content").hexdigest()
    with pytest.raises(FileError, match=f"{found}, expected {files.FILE_SHA256[path.name]}"):
        datasets.heart_disease()


def test_a_changed_image_file_is_refused_by_its_array(empty):
    (empty / "cache").mkdir()
    images = np.zeros((2, 28, 28), dtype=np.uint8)
    np.savez(empty / "cache" / "mnist_test.npz", images=images, labels=np.zeros(2))
    with pytest.raises(FileError, match=f"'images' is {sha256_of_images(images)}, expected"):
        datasets.mnist_test()
    np.savez(empty / "cache" / "mnist_test.npz", pictures=images)
    with pytest.raises(FileError, match=r"no array 'images', only \['pictures'\]"):
        datasets.mnist_test()
    (empty / "cache" / "mnist_test.npz").write_bytes(b"torn")
    with pytest.raises(FileError, match=r"not a readable \.npz"):
        datasets.mnist_test()


def test_verification_is_repeated_only_when_the_file_changes(empty, monkeypatch):
    path = empty / "mnist_writers_qmnist.npz"
    path.write_bytes(b"content")
    monkeypatch.setitem(files.FILE_SHA256, path.name, hashlib.sha256(b"content").hexdigest())
    calls = []
    digest = hashlib.file_digest
    monkeypatch.setattr(files.hashlib, "file_digest", lambda *a: calls.append(1) or digest(*a))
    files.verify(path)
    files.verify(path)
    assert len(calls) == 1
    path.write_bytes(b"Content, changed")
    with pytest.raises(FileError):
        files.verify(path)
    assert len(calls) == 2


@pytest.fixture
def small_mnist(monkeypatch):
    """An OpenML answer whose first 60000 rows are the training part, with the checksums to match."""
    data = (np.arange(60003 * 784, dtype=np.int64) % 251).reshape(60003, 784)
    target = (np.arange(60003) % 10).astype(str)
    pixels = data.astype(np.uint8).reshape(-1, 28, 28)
    monkeypatch.setitem(files.IMAGES_SHA256, "mnist_train.npz", sha256_of_images(pixels[:60000]))
    monkeypatch.setitem(files.IMAGES_SHA256, "mnist_test.npz", sha256_of_images(pixels[60000:]))
    monkeypatch.setitem(files.IMAGES_SHA256, "fashion_mnist_train.npz", sha256_of_images(pixels[:60000]))
    return data, target


def test_mnist_is_downloaded_once_and_cached(empty, monkeypatch, small_mnist):
    data, target = small_mnist
    asked = openml(monkeypatch, data, target)
    test = datasets.mnist_test()
    train = datasets.mnist()
    assert asked == ["mnist_784"], "one download serves both parts"
    assert train.X.dtype == np.uint8
    assert_array_equal(train.X, data[:60000])
    assert_array_equal(test.X, data[60000:])
    assert test.y.tolist() == [0, 1, 2]
    assert test.groups == {}, "no writers without the QMNIST file"
    assert sorted(path.name for path in (empty / "cache").iterdir()) == ["mnist_test.npz", "mnist_train.npz"]


def test_a_download_with_other_content_is_not_stored(empty, monkeypatch, small_mnist):
    data, target = small_mnist
    openml(monkeypatch, data[::-1], target)
    with pytest.raises(DataUnavailableError, match=r"the images of the download have sha256 \w+, expected \w+"):
        datasets.fashion_mnist()
    assert not (empty / "cache").exists()


@pytest.mark.usefixtures("empty")
def test_cifar_planes_become_pixels(monkeypatch):
    data = np.zeros((10001, 3072), dtype=np.int64)
    data[0, :1024], data[0, 1024:2048], data[0, 2048:] = 1, 2, 3  # planes: red, green, blue
    asked = openml(monkeypatch, data, np.array(["3"] * 10001))
    first, again = datasets.cifar10(), datasets.cifar10()
    assert asked == ["CIFAR_10"]
    assert first.X.shape == (10000, 3072)
    assert first.X[0, :6].tolist() == [1, 2, 3, 1, 2, 3]
    assert first.extra["label_names"][int(first.y[0])] == "cat"
    assert "OpenML" in again.extra["source"]


def test_a_cache_that_cannot_be_written_is_named(empty, monkeypatch, small_mnist):
    openml(monkeypatch, *small_mnist)
    (empty / "cache").write_text("a file where the folder should be")
    with pytest.raises(FileError, match=r"cannot be written: .*EIGENPACT_CACHE"):
        datasets.fashion_mnist()
