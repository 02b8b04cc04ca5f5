"""The agreed list of features, from a file."""

from __future__ import annotations

import pytest

from eigenpact.data.agreed_list import read_features
from eigenpact.data.alleles import variants_named
from eigenpact.errors import FileError, InputError


def test_names_a_line(tmp_path):
    file = tmp_path / "agreed.txt"
    file.write_text("age\n\n sex=f \nsex=m\n")
    assert read_features(file) == ("age", "sex=f", "sex=m")


def test_variants_of_a_bim_file_name_the_allele_that_is_counted(tmp_path):
    file = tmp_path / "agreed.bim"
    file.write_text("1\trs1\t0\t10\tA\tG\nX\t.\t0\t20\tAT\tC\n")
    names = read_features(file)
    assert names == ("rs1 1:10 A/G", ". X:20 AT/C")
    found = variants_named(names)
    assert (found.chromosome, found.position.tolist(), found.ids) == (("1", "X"), [10, 20], ("rs1", "."))
    assert (found.counted, found.other) == (("A", "AT"), ("G", "C"))


def test_what_is_no_variant_is_named_by_its_line(tmp_path):
    file = tmp_path / "agreed.bim"
    file.write_text("1 rs1 0 10 A G\n1 rs2 0 ten A G\n")
    with pytest.raises(InputError, match="line 2: '1 rs2 0 ten A G' is no variant"):
        read_features(file)
    with pytest.raises(FileError, match="cannot be read"):
        read_features(tmp_path / "none.txt")
