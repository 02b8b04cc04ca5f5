"""Categories become columns of zeros and ones by an agreed dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from eigenpact.data.categories import all_categories, categories_apart, categories_in, categories_named, one_hot
from eigenpact.data.readers import Table
from eigenpact.errors import InputError
from eigenpact.numerics.sources import ArraySource


def table(cells, X=None):
    rows = np.arange(float(len(cells)))[:, None] if X is None else X
    return Table(rows, ("age",), texts={"sex": tuple(cells), "label": ("x",) * len(cells)}, categorical=("sex",))


def test_the_dictionary_is_that_of_all_sites_in_sorted_order_and_labels_are_none():
    found = [categories_in(table(cells)) for cells in (("m", "d", ""), ("f", "m"))]
    assert found == [{"sex": ("d", "m")}, {"sex": ("f", "m")}]
    assert all_categories(found) == all_categories(found[::-1]) == {"sex": ("d", "f", "m")}


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, ArraySource])
def test_a_column_for_every_category_and_empty_cells_are_missing(kind):
    made = one_hot(table(("m", "", "f"), kind(np.array([[5.0], [6.0], [7.0]]))), {"sex": ("d", "f", "m")})
    assert made.feature_names == ("age", "sex=d", "sex=f", "sex=m")
    X = made.X[:] if isinstance(made.X, (np.ndarray,)) or not sparse.issparse(made.X) else made.X.toarray()
    assert_array_equal(X, [[5, 0, 0, 1], [6, np.nan, np.nan, np.nan], [7, 0, 1, 0]])
    assert one_hot(made, {}) is made


def test_unknown_categories_are_refused_by_name():
    with pytest.raises(InputError, match="site 'A': column 'sex' holds 'x'; agreed on are 'f', 'm'"):
        one_hot(table(("m", "x")), {"sex": ("f", "m")}, "site 'A'")


def test_an_agreed_list_of_features_names_the_categories():
    assert categories_named(("age", "sex=f", "sex=m"), ["sex"]) == {"sex": ("f", "m")}


def test_free_text_and_columns_without_names_are_refused():
    with pytest.raises(InputError, match="column 'sex' has 1001 categories"):
        categories_in(table([f"t{i}" for i in range(1001)]))
    with pytest.raises(InputError, match="no names"):
        categories_in(Table(np.ones((1, 1)), None, texts={"sex": ("f",)}, categorical=("sex",)))


def test_categories_are_apart_only_where_two_sites_have_some_and_none_in_common():
    assert categories_apart({"A": {"sex": ("f", "m")}, "B": {"sex": ("m",)}, "C": {"sex": ()}, "D": {}}, "strict") == ()
    sites = {"A": {"sex": ("f", "m")}, "B": {"sex": ("f",)}, "C": {"sex": ("0", "1")}, "D": {"sex": ()}}
    (told,) = categories_apart(sites, "union")
    assert told == "column 'sex': sites have no category in common, 'A' has 'f', 'm'; 'C' has '0', '1'"
    assert categories_apart({"A": {"sex": ("f",)}, "B": {"sex": ("m",)}, "C": {"sex": ("f", "m")}}, "strict") == ()
    with pytest.raises(InputError, match=r"column 'sex': sites have no category in common, 'A' has 'f', 'm'; .*intersection"):
        categories_apart(sites, "strict")
