"""FederatedPCA on real MPI ranks, compared with the in-process engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.estimators.model_files import load_model
from tests.engines.problems import SOLVERS, problem_sites

pytest.importorskip("mpi4py")

pytestmark = pytest.mark.xdist_group("mpi")

ROOT = Path(__file__).parents[2]
MPIEXEC = Path(sys.executable).parent / "mpiexec"


def mpiexec(ranks: int, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a Python program on this many ranks of this machine."""
    environment = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PYTHONPATH": str(ROOT),
    }
    command = [str(MPIEXEC), "--oversubscribe", "-n", str(ranks), sys.executable, "-m", "mpi4py", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, cwd=ROOT)


@pytest.fixture(scope="module")
def in_process() -> dict[str, ep.FederatedPCA]:
    """Every solver's answer in one process."""
    sites = problem_sites()
    return {
        label: ep.FederatedPCA(3, solver=solver, random_state=0, **options).fit(sites)
        for label, (solver, options) in SOLVERS.items()
    }


@pytest.mark.parametrize("ranks", [1, 2, 4, 7])
def test_same_bits_and_ledger_on_ranks(ranks: int, in_process: dict[str, ep.FederatedPCA], tmp_path: Path) -> None:
    """Named sites give the same bits and the same ledger on any number of ranks, also more ranks than sites."""
    done = mpiexec(ranks, "-m", "tests.engines.mpi_job", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for label, expected in in_process.items():
        pca = load_model(tmp_path / label)
        for attribute in ("components_", "explained_variance_", "mean_", "scale_"):
            assert np.array_equal(getattr(pca, attribute), getattr(expected, attribute)), (label, attribute)
        assert list(pca.ledger_) == list(expected.ledger_), label
        assert pca.n_rounds_ == expected.n_rounds_
        assert pca.sites_ == ("accra", "bergen", "lima", "oslo", "quito")


def test_a_failing_site_ends_the_job_with_its_reason(tmp_path: Path) -> None:
    """A site with another number of features stops every rank with a message, and nobody hangs."""
    script = tmp_path / "job.py"
    script.write_text(
        "import numpy as np\nfrom mpi4py import MPI\nimport eigenpact as ep\nrank = MPI.COMM_WORLD.rank\n"
        "ep.FederatedPCA(2, engine='mpi').fit({f'site{rank}': np.ones((5, 3 + rank)) * np.arange(5)[:, None]})\n"
    )
    done = mpiexec(2, str(script), timeout=60)
    assert done.returncode != 0
    assert "site 'site0' has 3 features but 'site1' has 4" in done.stderr


def test_two_ranks_with_a_site_of_one_name_are_refused(tmp_path: Path) -> None:
    """Site names are unique over all ranks."""
    script = tmp_path / "job.py"
    script.write_text("import numpy as np, eigenpact as ep\nep.FederatedPCA(2, engine='mpi').fit({'A': np.eye(4)})\n")
    done = mpiexec(2, str(script), timeout=60)
    assert done.returncode != 0
    assert "site 'A' is on rank 0 and on rank 1" in done.stderr


def test_a_failure_while_other_ranks_send_much_does_not_hang(tmp_path: Path) -> None:
    """One site's function fails while others are sending replies too large to be buffered: the job ends with the reason."""
    script = tmp_path / "job.py"
    script.write_text(
        "import numpy as np\nfrom mpi4py import MPI\nimport eigenpact as ep\n"
        "from eigenpact.algorithms.consensus import gram\nfrom eigenpact.rows import Rows\n"
        "rank = MPI.COMM_WORLD.rank\n"
        "def broken(self):\n    raise OSError('disk of site1 is gone')\n"
        "if rank == 1:\n    Rows.scatter = broken\n"
        "X = np.random.default_rng(rank).normal(size=(30, 700))\n"
        "ep.FederatedPCA(2, solver='gram', engine='mpi').fit({f'site{rank}': X})\n"
    )
    done = mpiexec(4, str(script), timeout=60)
    assert done.returncode != 0
    assert "disk of site1 is gone" in done.stderr
    assert "scatter_triangle" in done.stderr


def test_a_proxy_on_another_rank_is_refused(tmp_path: Path) -> None:
    """Rows of another rank cannot help without travelling; the error names the sites that can."""
    script = tmp_path / "job.py"
    script.write_text(
        "import numpy as np\nfrom mpi4py import MPI\nimport eigenpact as ep\nrank = MPI.COMM_WORLD.rank\n"
        "X = np.random.default_rng(rank).normal(size=(30, 5))\n"
        "ep.FederatedPCA(2, solver=ep.Krylov(proxy='site1'), engine='mpi').fit({f'site{rank}': X})\n"
    )
    done = mpiexec(2, str(script), timeout=60)
    assert done.returncode != 0
    assert "proxy='site1' is not a site of the coordinator's own process" in done.stderr
    assert "allowed here are site0" in done.stderr
