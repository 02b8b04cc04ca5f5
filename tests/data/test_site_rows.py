"""A site's rows for a federation: from a file with a description beside it, as FLARE and Flower open them."""

from __future__ import annotations

import numpy as np
import pytest

from eigenpact.data.site_rows import open_rows
from eigenpact.errors import InputError, PolicyError


def test_the_description_beside_the_table_is_read(tmp_path):
    file = tmp_path / "patients.csv"
    file.write_bytes("Größe;Alter;x\n1,5;61;?\n2,5;48;1\n".encode("latin-1"))
    with pytest.raises(InputError, match="line 1, column 1: byte 0xf6 is not UTF-8"):
        open_rows("north", str(file), ("age", "height"))
    toml = 'encoding = "latin-1"\ncolumns = ["age", "height"]\n[rename]\n"Größe" = "height"\nAlter = "age"\n'
    (tmp_path / "patients.csv.toml").write_text(toml, encoding="utf-8")
    np.testing.assert_array_equal(open_rows("north", str(file), ("height", "age")), [[1.5, 61], [2.5, 48]])
    lacking = open_rows("north", str(file), ("height", "weight"))
    np.testing.assert_array_equal(lacking, [[1.5, np.nan], [2.5, np.nan]], "the site's gate refuses, or runs with --features")
    with pytest.raises(PolicyError, match="none of the agreed columns") as caught:
        open_rows("north", str(file), ("weight", "pulse"))
    assert "Alter" not in str(caught.value), "the coordinator is told this"
    (tmp_path / "patients.csv.toml").write_text('colums = ["age"]\n')
    with pytest.raises(InputError, match=r"patients\.csv\.toml: unknown key 'colums' \(did you mean 'columns'\?\)"):
        open_rows("north", str(file), ("height", "age"))
