"""Sites whose files lack agreed columns: which ones are counted by a sum, left out, and refused where nobody counts."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.cli.site_settings import describe, read_policy
from eigenpact.data.readers import Table, Variants
from eigenpact.data.site_rows import fitted_to
from eigenpact.data.take_columns import take_columns
from eigenpact.engines.federation.identities import public_of
from eigenpact.engines.federation.trust import own_from
from eigenpact.errors import EigenpactError, InputError, PolicyError
from eigenpact.estimators.plans import functions_to_compare
from eigenpact.numerics.columns import columns_present
from eigenpact.numerics.sources import ArraySource
from eigenpact.runtime import MailConnection, Site, SiteLedger
from eigenpact.runtime.lacking import count_having, keep_features
from eigenpact.runtime.units import place_medians

AGREED = ("age", "bmi", "chol", "rate", "sex=f", "sex=m")


class Institutions:
    """Sites that read their own files and answer by bytes behind their gates, in one process."""

    spread, costs = False, ep.engines.InProcess().costs

    def __init__(self, folder, files, features=AGREED, **rules):
        ledgers = {name: folder / f"{name}.ledger" for name in files}
        keys = {name: public_of(own_from(SiteLedger(path).secret())) for name, path in ledgers.items()}
        listed = (*read_policy(None).functions, *functions_to_compare())
        policy = replace(read_policy(None), participants=keys, compare_columns=True, functions=listed)
        policy = replace(policy, **rules)
        self.replies, self.min_sites, self.features = [], len(files), features
        self.sites = {
            name: describe(name, data, features, policy, ledgers[name]).stand_ready()[0] for name, data in files.items()
        }

    def execute(self, held, job, graph=None):
        assert not held
        assert graph is None
        return job(MailConnection(self, self.sites, round_timeout=5.0, announces=True, features=self.features))

    def now(self):
        return 0.0

    def send(self, site, data):
        self.replies.append((site, self.sites[site].handle(data)))

    def receive(self, _until):
        return self.replies.pop(0) if self.replies else None


def write(path, columns, X):
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(X.tolist())
    return path


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    rows = {
        name: np.round(rng.normal(size=(n, 6)) @ rng.normal(size=(6, 6)), 3) for name, n in zip("ABC", (40, 30, 25), strict=True)
    }
    own = {"A": [0, 1, 2, 3, 4, 5], "B": [3, 2, 1, 0, 5, 4], "C": [5, 0, 2, 4]}  # C lacks bmi and rate
    paths = {name: write(tmp_path / f"{name}.csv", [AGREED[j] for j in own[name]], X[:, own[name]]) for name, X in rows.items()}
    return tmp_path, paths, rows


@pytest.mark.parametrize("secure", [False, True])
def test_intersection_between_institutions_is_the_pca_of_what_all_have_and_names_no_site(files, secure):
    folder, paths, rows = files
    engine = Institutions(folder, paths)
    pca = ep.FederatedPCA(2, engine=engine, features="intersection", secure=secure, random_state=0, max_rounds=300).fit()
    at = [0, 2, 4, 5]
    truth = PCA(2, svd_solver="full").fit(np.vstack(list(rows.values()))[:, at])
    found = np.abs(pca.components_[:, at] @ truth.components_.T)
    np.testing.assert_allclose(found, np.eye(2), atol=1e-6)
    assert not pca.components_[:, [1, 3]].any()
    assert pca.features_report_.n_features == 4
    assert pca.features_report_.named(AGREED).at_sites == {"bmi": 2, "rate": 2}
    assert pca.features_report_.sites == {}
    lacking = rows["C"].copy()
    lacking[:, [1, 3]] = np.nan
    np.testing.assert_array_equal(pca.transform(lacking), pca.transform(rows["C"]))
    broken = rows["C"].copy()
    broken[0, 0] = np.nan
    with pytest.raises(InputError, match="NaN"):
        pca.transform(broken)


def test_a_strict_run_is_refused_by_the_site_that_lacks_columns_and_names_agreed_ones_alone(files):
    folder, paths, _ = files
    with pytest.raises(EigenpactError, match="rule features: this site's table lacks the agreed columns bmi, rate; add them"):
        ep.FederatedPCA(2, engine=Institutions(folder, paths), max_rounds=300).fit()


def test_a_site_that_does_not_compare_columns_refuses_by_the_name_of_the_rule(files):
    folder, paths, _ = files
    engine = Institutions(folder, paths, functions=read_policy(None).functions, compare_columns=False)
    for asked in ({"features": "intersection"}, {"check_units": True}):
        with pytest.raises(EigenpactError, match="rule compare_columns = false: this site does not tell which columns it has"):
            ep.FederatedPCA(2, engine=engine, max_rounds=300, **asked).fit()


def test_where_nobody_lacks_anything_the_answer_is_that_of_a_strict_run(files):
    folder, paths, _ = files
    some = {name: paths[name] for name in "AB"}
    runs = [
        ep.FederatedPCA(
            2, solver="gram", engine=Institutions(folder, some, exact_replies=True), features=mode, random_state=0, max_rounds=300
        ).fit()
        for mode in ("strict", "intersection", "union")
    ]
    assert len({run.components_.tobytes() for run in runs}) == 1
    assert runs[1].features_report_.nothing_changed


def test_a_table_with_none_of_the_agreed_columns_takes_no_part(files):
    folder, paths, _ = files
    other = write(folder / "other.csv", ["u", "v"], np.ones((30, 2)))
    with pytest.raises(EigenpactError, match="has none of the agreed columns"):
        ep.FederatedPCA(2, engine=Institutions(folder, paths | {"C": other}), features="intersection", max_rounds=300).fit()


def test_a_sum_that_forgets_this_site_is_refused():
    site = Site("A", np.array([[1.0, np.nan], [2.0, np.nan]]))
    sites, having = count_having(site)
    assert (int(sites), having.tolist()) == (1, [1, 0])
    with pytest.raises(PolicyError, match="rule features"):
        keep_features(site, np.array([0, 2]), np.array(1))
    assert keep_features(site, np.array([1, 0]), np.array(1)).keep


def test_variants_are_brought_into_line_with_the_agreed_list():
    agreed = ["rs1 1:10 A/G", "rs2 1:20 A/C", "rs3 1:30 A/T", "rs4 1:40 C/T"]
    own = Variants(("1",) * 3, np.array([30, 20, 10]), ("rs3", "rs2", "rs1"), ("T", "C", "A"), ("A", "A", "G"))
    table = Table(np.array([[0, 1, 2], [2, 255, 0]], dtype=np.uint8), own.ids, variants=own)
    _, plan = fitted_to(table, agreed)
    assert plan.lacking.tolist() == [2, 3]  # rs3 is ambiguous and written otherwise, rs4 is not there
    np.testing.assert_array_equal(take_columns(table.X, plan), [[2, 1, 255, 255], [0, 255, 255, 255]])


@pytest.mark.parametrize("kind", [np.asarray, ArraySource])
def test_columns_without_a_number_are_lacking(kind):
    X = np.array([[np.nan, 1.0, np.nan], [np.nan, np.nan, 0.0]])
    assert columns_present(kind(X)).tolist() == [False, True, True]


def test_a_site_in_another_unit_says_so_in_its_own_log_and_is_counted_alone(tmp_path, caplog):
    rng = np.random.default_rng(3)
    rows = {name: np.abs(rng.normal(size=(60, 6)) * [8, 4, 40, 12, 0.1, 0.1] + [54, 26, 200, 75, 1, 1]) for name in "ABCD"}
    rows["C"][:, 2] /= 38.67
    paths = {name: write(tmp_path / f"{name}.csv", AGREED, X) for name, X in rows.items()}
    engine = Institutions(tmp_path, paths)
    pca = ep.FederatedPCA(2, engine=engine, check_units=True, secure=True, max_rounds=300, random_state=0).fit()
    assert [record.message for record in caplog.records if "unit" in record.message] == [
        "column 'chol' may be in another unit here: its median is 5.124, at the others about 205; about 40.1 times less: "
        "cholesterol in mmol/L instead of mg/dL?"
    ]
    told = "column 'chol': 1 of 4 sites find their values off by a factor between units; their logs say more"
    assert pca.features_report_.named(AGREED).notes == (told,)
    plain = ep.FederatedPCA(
        2, engine=Institutions(tmp_path, {n: paths[n] for n in "ABD"}), check_units=True, max_rounds=300
    ).fit()
    assert plain.features_report_.nothing_changed


def test_few_rows_and_zeros_tell_no_median():
    few = Site("A", np.full((10, 2), [5.0, 7.0]) + np.arange(10.0)[:, None], min_rows=20)
    assert not any(array.any() for array in place_medians(few))
    zeros = Site("A", np.c_[np.zeros(30), np.arange(1.0, 31.0)])
    assert place_medians(zeros)[0].tolist() == [0, 1]
