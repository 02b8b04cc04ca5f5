"""The real data sets, one function each, and ``load`` to take one by name.

A set's files are looked for in the folder named by the environment variable EIGENPACT_DATA, then in the user's cache
(EIGENPACT_CACHE, else "eigenpact" in XDG_CACHE_HOME or ~/.cache); MNIST, Fashion-MNIST and CIFAR-10 are else downloaded from
OpenML into the cache.  Every file is verified against a recorded checksum.  Images are flattened to rows, row-major, and keep
their type (uint8); ``extra["shape"]`` is the shape of one image.
"""

from __future__ import annotations

import csv
import difflib
import gzip
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from . import files

__all__ = [
    "NAMES", "Dataset", "beijing_air", "cifar10", "debates", "digits", "fashion_mnist", "femnist", "genomes", "har",
    "heart_disease", "load", "mnist", "mnist_test", "pbmc68k", "video_bmc", "video_escalator",
]  # fmt: skip

NAMES = tuple(name for name in __all__ if name not in ("NAMES", "Dataset", "load"))
"""What :func:`load` takes."""

CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in memory.

    Attributes
    ----------
    name : str
        What :func:`load` takes.
    X : array or scipy sparse CSR, n_rows x n_features
    y : array (length n_rows) of labels, or None
    groups : dict of str to array (length n_rows)
        Natural ways to form sites: a writer, a station, a hospital per row.  Give one to ``partition.by_group``.
    feature_names : tuple of str (length n_features), or None
    extra : dict
        What else the set brings; see its function.
    """

    name: str
    X: Any
    y: NDArray[Any] | None = None
    groups: dict[str, NDArray[Any]] = field(default_factory=dict)
    feature_names: tuple[str, ...] | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def load(name: str) -> Dataset:
    """Load a data set by name; ``NAMES`` lists them.

    >>> load("digits").X.shape
    (1797, 64)
    >>> load("digit")
    Traceback (most recent call last):
    eigenpact.errors.InputError: unknown data set 'digit' (did you mean 'digits'?); allowed are beijing_air, ...
    """
    if name not in NAMES:
        close = difflib.get_close_matches(str(name), NAMES, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise InputError(f"unknown data set {name!r}{hint}; allowed are {', '.join(NAMES)}")
    loaded: Dataset = globals()[name]()
    return loaded


def digits() -> Dataset:
    """Handwritten digits that come with scikit-learn, always available: X 1797 x 64 float64 (0 to 16), y the digit.

    >>> digits().extra["shape"]
    (8, 8)
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    names = tuple(str(feature) for feature in bunch.feature_names)
    return Dataset("digits", bunch.data, bunch.target, feature_names=names, extra={"shape": (8, 8)})


def mnist() -> Dataset:
    """MNIST training images: X 60000 x 784 uint8, y the digit; groups "writer" (539) where the QMNIST file is available."""
    return _mnist("mnist", "mnist_train.npz", "train_writer")


def mnist_test() -> Dataset:
    """MNIST test images: X 10000 x 784 uint8, y the digit; groups "writer" (297) where the QMNIST file is available."""
    return _mnist("mnist_test", "mnist_test.npz", "test_writer")


def _mnist(name: str, file_name: str, writer_key: str) -> Dataset:
    if (path := files.find(file_name)) is None:
        values, labels = files.fetch_openml_arrays("mnist_784", file_name)
        for part, rows in (("mnist_train.npz", slice(60000)), ("mnist_test.npz", slice(60000, None))):
            files.store(part, {"images": values[rows].reshape(-1, 28, 28), "labels": labels[rows]})
        path = files.require(file_name)
    writers = files.find("mnist_writers_qmnist.npz")
    groups = {} if writers is None else {"writer": files.read_npz(writers)[writer_key]}
    return _images(name, files.read_npz(path), groups)


def fashion_mnist() -> Dataset:
    """Fashion-MNIST training images: X 60000 x 784 uint8, y the kind of article, 0 to 9."""
    file_name = "fashion_mnist_train.npz"
    if (path := files.find(file_name)) is None:
        values, labels = files.fetch_openml_arrays("Fashion-MNIST", file_name)
        files.store(file_name, {"images": values[:60000].reshape(-1, 28, 28), "labels": labels[:60000]})
        path = files.require(file_name)
    return _images("fashion_mnist", files.read_npz(path))


def cifar10() -> Dataset:
    """CIFAR-10, 10000 colour images: X 10000 x 3072 uint8 (row, column, then red, green, blue), y the class, 0 to 9.

    The checksummed file holds the first training batch.  Without it the first 10000 images of OpenML's CIFAR_10 are taken and
    cached as "cifar10_openml.npz"; no checksum is recorded for those, and their order is OpenML's.  ``extra["source"]`` says
    which it was.
    """
    path = files.find("cifar10_train_batch1.npz") or files.find("cifar10_openml.npz")
    if path is None:
        values, labels = files.fetch_openml_arrays("CIFAR_10", "cifar10_train_batch1.npz")
        images = values[:10000].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        arrays = {"images": np.ascontiguousarray(images), "labels": labels[:10000], "label_names": np.array(CIFAR10_NAMES)}
        files.store("cifar10_openml.npz", arrays)
        path = files.require("cifar10_openml.npz")
    source = "first training batch" if path.name == "cifar10_train_batch1.npz" else "OpenML CIFAR_10, first 10000"
    dataset = _images("cifar10", files.read_npz(path))
    dataset.extra["source"] = source
    return dataset


def femnist() -> Dataset:
    """Handwritten characters of LEAF's FEMNIST: X 16393 x 784 uint8 on white (255), y 0 to 61, groups "writer" (105).

    ``extra["is_test"]`` (length 16393) marks LEAF's test rows.
    """
    arrays = files.read_npz(files.require("femnist_105writers.npz"))
    dataset = _images("femnist", arrays, {"writer": arrays["writer_ids"][arrays["writer"]]})
    dataset.extra["is_test"] = arrays["is_test"]
    return dataset


def har() -> Dataset:
    """Raw inertial signals of UCI HAR: X 10299 x 1152 float32, y the activity, 0 to 5, groups "subject" (30).

    A row is a window of 128 time steps of 9 channels, channel by channel.
    """
    arrays = files.read_npz(files.require("uci_har_inertial_by_subject.npz"))
    blocks = arrays["blocks"]
    windows = np.concatenate([blocks[arrays["first"]], blocks[arrays["second"]]], axis=2)
    names = tuple(f"{channel}_{step:03d}" for channel in arrays["channels"] for step in range(windows.shape[2]))
    extra = {"shape": windows.shape[1:], "activity_names": _texts(arrays["activity_names"]), "segment": arrays["segment"]}
    X = windows.reshape(len(windows), -1)
    return Dataset("har", X, arrays["activity"], {"subject": arrays["subject"]}, names, extra)


def beijing_air() -> Dataset:
    """Hourly air quality and weather in Beijing: X 420768 x 11 float32 with NaN where missing, groups "station" (12).

    Rows are station by station, in time order from ``extra["start"]``; ``extra["wind_dir"]`` (length 420768) indexes
    ``extra["wind_names"]``, -1 where missing.
    """
    arrays = files.read_npz(files.require("beijing_multisite_air.npz"))
    X = arrays["X"]
    extra = {"start": str(arrays["start"][0]), "wind_dir": arrays["wind_dir"].ravel(), "wind_names": _texts(arrays["wind_names"])}
    station = np.repeat(arrays["stations"], X.shape[1])
    names = _texts(arrays["features"])
    return Dataset("beijing_air", X.reshape(-1, X.shape[2]), None, {"station": station}, names, extra)


def heart_disease() -> Dataset:
    """UCI heart disease: X 920 x 13 float64 with NaN where missing, y the diagnosis, 0 to 4, groups "site" (4 hospitals)."""
    header, *rows = _read_csv("heart_disease_4sites.csv.gz")
    values = np.array([[float(cell) if cell else np.nan for cell in row[1:]] for row in rows])
    sites = np.array([row[0] for row in rows])
    return Dataset("heart_disease", values[:, :-1], values[:, -1].astype(np.int64), {"site": sites}, tuple(header[1:-1]))


def genomes() -> Dataset:
    """1000 Genomes phase 1: X 1092 x 14079 int8, allele counts 0, 1, 2 per SNP, none missing.

    groups are "population" (14) and "super_population" (4); feature names are the SNPs.  extra: "sample" and
    "population_inferred" (length 1092), "a1", "a2" and "pos_b37" (length 14079).
    """
    arrays = files.read_npz(files.require("kg_phase1_1092x14079.npz"))
    groups = {key: arrays[key] for key in ("population", "super_population")}
    extra = {key: arrays[key] for key in ("sample", "population_inferred", "a1", "a2", "pos_b37")}
    return Dataset("genomes", arrays["genotypes"], arrays["super_population"], groups, _texts(arrays["snp"]), extra)


def pbmc68k() -> Dataset:
    """Blood cells: X 700 x 765 float32 (scaled expression), y the cell type, 0 to 9, feature names the genes.

    extra: "lognorm" (700 x 765), "cell_type_names", "highly_variable" (length 765), and scanpy's PCA of
    ``X[:, highly_variable]``: "X_pca" (700 x 50), "pca_variance" (length 50).  Those numbers are a
    randomized SVD's: the variances are right to 2e-5 for the first 7 components and up to 6.5 % too small further on.
    """
    arrays = files.read_npz(files.require("pbmc68k_reduced_700x765.npz"))
    extra: dict[str, Any] = {key: arrays[key] for key in ("lognorm", "highly_variable", "X_pca", "pca_variance")}
    extra["cell_type_names"] = _texts(arrays["cell_type_names"])
    return Dataset("pbmc68k", arrays["X"], arrays["cell_type"], {}, _texts(arrays["genes"]), extra)


def video_bmc() -> Dataset:
    """Video 003 of BMC 2012, a static camera: X 794 x 19200 uint8, a row per grey frame of 120 x 160, groups "frame"."""
    return _video("video_bmc", "bmc2012_video003_gray120x160.npz")


def video_escalator() -> Dataset:
    """The I2R escalator video, a static camera: X 200 x 20800 uint8, a row per grey frame of 130 x 160, groups "frame"."""
    return _video("video_escalator", "i2r_escalator_gray130x160.npz")


def debates() -> Dataset:
    """U.S. presidential debates: X 6437 x 4585 sparse int64, how often each word occurs in each turn.

    Words are lower case, at least two letters long and occur in at least 5 turns; they are the feature names.  groups are "year"
    (13), "debate", "speaker" and "role"; extra: "text", "date" and "turn" (length 6437).
    """
    from sklearn.feature_extraction.text import CountVectorizer

    header, *rows = _read_csv("debates_mytake_1960_2020.csv.gz")
    columns = {name: np.array(cells) for name, cells in zip(header, zip(*rows, strict=True), strict=True) if name != "text"}
    texts = tuple(row[header.index("text")] for row in rows)
    counter = CountVectorizer(min_df=5)
    X = counter.fit_transform(texts).tocsr()
    groups = {"year": columns["year"].astype(np.int64)} | {key: columns[key] for key in ("debate", "speaker", "role")}
    extra = {"text": texts, "date": columns["date"], "turn": columns["turn"].astype(np.int64)}
    return Dataset("debates", X, None, groups, _texts(counter.get_feature_names_out()), extra)


def _images(name: str, arrays: files.Arrays, groups: dict[str, NDArray[Any]] | None = None) -> Dataset:
    images = arrays["images"]
    extra: dict[str, Any] = {"shape": images.shape[1:]}
    if "label_names" in arrays:
        extra["label_names"] = _texts(arrays["label_names"])
    return Dataset(name, images.reshape(len(images), -1), arrays["labels"], groups or {}, extra=extra)


def _video(name: str, file_name: str) -> Dataset:
    frames = files.read_npz(files.require(file_name))["frames"]
    groups = {"frame": np.arange(len(frames))}
    return Dataset(name, frames.reshape(len(frames), -1), None, groups, extra={"shape": frames.shape[1:]})


def _read_csv(file_name: str) -> list[list[str]]:
    with gzip.open(files.require(file_name), "rt", encoding="utf-8", newline="") as stream:
        return [row for row in csv.reader(stream) if row]


def _texts(values: NDArray[Any]) -> tuple[str, ...]:
    return tuple(str(value) for value in values.tolist())
