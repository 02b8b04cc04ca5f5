"""Find, verify and cache the files of the real data sets."""

from __future__ import annotations

import hashlib
import http.client
import importlib.util
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataUnavailableError, FileError, InputError
from ..storage import open_regular, replacing, writing
from .array_files import Archive

Arrays = dict[str, NDArray[Any]]

FILE_SHA256 = {
    "beijing_multisite_air.npz": "a6e1367983c94a75f5fe755c9ccbad4234867028f2760d805f63afe2ca950129",
    "bmc2012_video003_gray120x160.npz": "ea098f01b7c27ce73d816a448d1062eaeb1d6961bb1dc900a45acefb562ba680",
    "cifar10_train_batch1.npz": "8c5d9359aee463ee7b80b3c62da41c3a9bee07967a4e953acd9719fda44ee007",
    "debates_mytake_1960_2020.csv.gz": "ab09af29fdeada7050310c28ef1e18c2b84b5132aa4ea71522041690442238c3",
    "fashion_mnist_train.npz": "404be688c5dca6bddca92e48d43190820761178bacf3ed1810a2d208a27bb48a",
    "femnist_105writers.npz": "abaf2cbe1ba4a66a2a5170e1dc0bf0e1fb9d2171e31df605a88e5766d7e68ff3",
    "heart_disease_4sites.csv.gz": "8829c505e3627a5781de17468ca2cf1522a3acc4242d8beef8d39a83df6058b8",
    "i2r_escalator_gray130x160.npz": "3535c6b64c8f64d365f406c42affaafda5f68e6cca605eca73b7c6156367f387",
    "kg_phase1_1092x14079.npz": "4ee635cc29bd9f23945a6747b1622551fba591c832c67479ae9163b8bcaf5102",
    "mnist_test.npz": "af5595f05f0cc260498196e07655cfa443d2d96874d5ba0dcfeaea06defbda81",
    "mnist_train.npz": "33e9753a8d3ed06561a816bf46d6d686b20801696e497f092853c1634577f43f",
    "mnist_writers_qmnist.npz": "b745da0f69100f261d0012b250c3b34e006232206855d6173af25aa66d7f4e2d",
    "pbmc68k_reduced_700x765.npz": "59cd8590b5f99332a5e170ee278b4e17ed496ba5e9e53b10cc09be7948bf43e4",
    "uci_har_inertial_by_subject.npz": "f84ec62595fa4fb303895fdd46055d7124b3c9504fe57983245955648f7fb9d3",
}
"""Checksums of the files as distributed."""

IMAGES_SHA256 = {
    "fashion_mnist_train.npz": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
    "mnist_test.npz": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
    "mnist_train.npz": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
}
"""Checksums of the bytes of the array "images", which a file written from OpenML must have too."""

_verified: set[tuple[str, int, int]] = set()


def cache_folder() -> Path:
    """Return the folder of downloaded sets: EIGENPACT_CACHE, or "eigenpact" in XDG_CACHE_HOME or ~/.cache."""
    own = os.environ.get("EIGENPACT_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eigenpact"


def folders() -> list[Path]:
    """Return the folders that are searched, in order: EIGENPACT_DATA if set, then the cache."""
    given = os.environ.get("EIGENPACT_DATA")
    return [*([Path(given)] if given else []), cache_folder()]


def find(file_name: str) -> Path | None:
    """Return the verified file from the first folder that has it, None if no folder does."""
    path = next((folder / file_name for folder in folders() if (folder / file_name).is_file()), None)
    if path is not None:
        verify(path)
    return path


def verify(path: Path) -> None:
    """Raise a FileError unless the file has its recorded checksum, or its images have theirs.

    A file that was verified is not read again in this process while its time and size stay the same.
    """
    stat = path.stat()
    key = (str(path.resolve()), stat.st_mtime_ns, stat.st_size)
    expected = FILE_SHA256.get(path.name)
    if expected is None or key in _verified:
        return
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        what = "the file"
        if path.name in IMAGES_SHA256:
            expected, found, what = IMAGES_SHA256[path.name], images_sha256(read_npz(path), path), "its array 'images'"
        if found != expected:
            raise FileError(
                f"{path} has the wrong content: the sha256 of {what} is {found}, expected {expected}; "
                "delete it and fetch it again"
            )
    _verified.add(key)


def images_sha256(arrays: Arrays, source: object) -> str:
    """Return the checksum of the bytes of ``arrays["images"]``, n_rows x height x width; ``source`` is for the message."""
    if "images" not in arrays:
        raise FileError(f"{source} has no array 'images', only {sorted(arrays)}; delete it and fetch it again")
    return hashlib.sha256(np.ascontiguousarray(arrays["images"]).data).hexdigest()


def read_npz(path: Path) -> Arrays:
    """Return all arrays of a .npz file; nothing in it is ever unpickled."""
    try:
        with open_regular(path, follow=True) as stream:
            archive = Archive(stream)
            return {name: archive.read(name) for name in archive.names}
    except InputError as error:
        raise FileError(f"{path} is not a readable .npz file ({error}); delete it and fetch it again") from error


def unavailable(file_name: str, why: str) -> DataUnavailableError:
    """Return the error for a file that is nowhere: what was looked for, where, and what to do."""
    tried = ", ".join(str(folder) for folder in folders())
    unset = "" if os.environ.get("EIGENPACT_DATA") else " (the environment variable EIGENPACT_DATA is not set)"
    return DataUnavailableError(
        f"{file_name} is not in {tried}{unset}, and {why}; put the file in one of these folders, or set EIGENPACT_DATA to "
        "the folder that has it"
    )


def require(file_name: str) -> Path:
    """Return the verified file, or raise a DataUnavailableError."""
    path = find(file_name)
    if path is None:
        raise unavailable(file_name, "it cannot be downloaded")
    return path


def fetch_openml_arrays(name: str, file_name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Download an image set from OpenML: values (n_rows x n_features) and labels (n_rows), both as bytes.

    ``file_name`` is the file the download stands in for, named in the error if there is no network.
    """
    from sklearn.datasets import fetch_openml

    parser = "pandas" if importlib.util.find_spec("pandas") else "liac-arff"
    try:
        with warnings.catch_warnings():  # the error below says it
            warnings.filterwarnings("ignore", message="A network error occurred")
            bunch = fetch_openml(name, version=1, as_frame=False, parser=parser, cache=False, n_retries=1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise unavailable(file_name, f"OpenML's {name} cannot be downloaded ({error})") from error
    return np.asarray(bunch.data).astype(np.uint8), np.asarray(bunch.target).astype(np.int64).astype(np.uint8)


def store(file_name: str, arrays: Arrays) -> None:
    """Write arrays to the cache as one .npz file, which appears complete or not at all.

    Arrays that do not have the recorded checksum are not stored: a DataUnavailableError names both.
    """
    expected = IMAGES_SHA256.get(file_name)
    if expected is not None and (found := images_sha256(arrays, "the download")) != expected:
        raise unavailable(file_name, f"the images of the download have sha256 {found}, expected {expected}")
    folder = cache_folder()
    named: dict[str, Any] = arrays
    advice = "set EIGENPACT_CACHE to a folder that can"
    with writing(folder, advice):
        folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / file_name, advice) as part:
        np.savez_compressed(part, **named)
