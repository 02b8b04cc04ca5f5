"""Genotypes from PLINK, PLINK 2 and VCF files, against the libraries that wrote them; in memory as bytes, on disk as two bits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pgenlib
import pytest
from bed_reader import open_bed, to_bed
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as some

import eigenpact as ep
from eigenpact.data.alleles import match_variants
from eigenpact.data.description import Description
from eigenpact.data.packed_genotypes import PackedRows, pack, turned
from eigenpact.data.readers import read_table
from eigenpact.errors import EigenpactError, FileError
from eigenpact.numerics.sources import CountRows

N, D = 13, 22
LITTLE = 40


def counts() -> Any:
    """Copies of the counted allele (N x D), 255 where missing."""
    rng = np.random.default_rng(0)
    found = rng.integers(0, 3, (N, D)).astype(np.uint8)
    found[rng.random((N, D)) < 0.1] = 255
    return found


def as_floats(genotypes: Any) -> Any:
    return np.where(genotypes == 255, np.nan, genotypes.astype(float))


def write_bed(folder: Path, genotypes: Any, name: str = "a") -> Path:
    n, d = genotypes.shape
    values = genotypes.astype(np.int8)
    values[genotypes == 255] = -127
    properties = {
        "fid": ["0"] * n,
        "iid": [f"p{i}" for i in range(n)],
        "sid": [f"rs{j}" for j in range(d)],
        "chromosome": ["1"] * (d // 2) + ["X"] * (d - d // 2),
        "bp_position": [100 * (j + 1) for j in range(d)],
        "allele_1": ["A"] * d,
        "allele_2": ["G"] * d,
    }
    to_bed(folder / f"{name}.bed", values, properties=properties)
    return folder / f"{name}.bed"


def write_pgen(folder: Path, genotypes: Any) -> Path:
    values = np.ascontiguousarray(genotypes.T.astype(np.int8))
    values[genotypes.T == 255] = -9
    writer = pgenlib.PgenWriter(os.fsencode(folder / "a.pgen"), N, variant_ct=D, nonref_flags=False)
    writer.append_biallelic_batch(values)
    writer.close()
    lines = [f"1\t{100 * (j + 1)}\trs{j}\tG\tA" for j in range(D)]
    (folder / "a.pvar").write_text("##source=test\n#CHROM\tPOS\tID\tREF\tALT\n" + "\n".join(lines) + "\n")
    people = [f"p{i}\t1\tpop{i % 2}" for i in range(N)]
    (folder / "a.psam").write_text("#IID\tSEX\tPOP\n" + "\n".join(people) + "\n")
    return folder / "a.pgen"


def vcf_text(genotypes: Any) -> str:
    called = {0: "0/0", 1: "0|1", 2: "1/1", 255: "./."}
    head = '##fileformat=VCFv4.2\n##contig=<ID=1>\n##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">\n'
    head += "\t".join(["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *(f"p{i}" for i in range(N))])
    lines = [
        "\t".join(["1", str(100 * (j + 1)), f"rs{j}", "G", "A", ".", ".", ".", "GT", *(called[int(g)] for g in genotypes[:, j])])
        for j in range(genotypes.shape[1])
    ]
    return "\n".join([head, *lines]) + "\n"


def write_vcf(folder: Path, genotypes: Any) -> Path:
    (folder / "a.vcf").write_text(vcf_text(genotypes))
    return folder / "a.vcf"


@pytest.mark.parametrize("write", [write_bed, write_pgen, write_vcf])
@pytest.mark.parametrize("memory", [None, LITTLE, 10**6])
def test_counts_names_and_variants(write: Any, memory: int | None, tmp_path: Path) -> None:
    genotypes = counts()
    table = read_table(write(tmp_path, genotypes), memory=memory)
    assert isinstance(table.X, CountRows)
    assert isinstance(table.X, PackedRows) == (memory == LITTLE or (memory is not None and write is write_vcf))
    assert table.X.dtype == np.float64
    np.testing.assert_array_equal(table.X[:], as_floats(genotypes))
    np.testing.assert_array_equal(table.X.counts, genotypes)
    np.testing.assert_array_equal(table.X[np.array([12, 0, 3, 3])], as_floats(genotypes)[[12, 0, 3, 3]])
    np.testing.assert_array_equal(table.X[4:9], as_floats(genotypes)[4:9])
    assert table.row_ids == tuple(f"p{i}" for i in range(N))
    assert table.feature_names == tuple(f"rs{j}" for j in range(D))
    assert table.variants is not None
    assert table.variants.counted == ("A",) * D
    assert table.variants.other == ("G",) * D
    assert table.variants.position.tolist() == [100 * (j + 1) for j in range(D)]
    assert set(table.variants.chromosome) == ({"1", "X"} if write is write_bed else {"1"})
    if write is write_pgen:
        assert table.texts["POP"][:3] == ("pop0", "pop1", "pop0")
    table.X.close()


def test_bytes_in_memory_are_bed_readers(tmp_path: Path) -> None:
    path = write_bed(tmp_path, counts())
    with open_bed(path) as bed:
        np.testing.assert_array_equal(read_table(path).X[:], bed.read(dtype="float64"))


@given(some.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 11)), elements=st.sampled_from([0, 1, 2, 255])))
@settings(max_examples=60, deadline=None)
def test_packing_and_turning_lose_nothing(genotypes: Any) -> None:
    """Whatever the sizes: those that four does not divide end in padding."""
    store = PackedRows(Path("x"), genotypes.shape[0])
    by_variant = np.ascontiguousarray(genotypes.T)
    for first in range(0, len(by_variant), 4):
        slab = by_variant[first : first + 4]
        store.add(pack(slab), len(slab))
    np.testing.assert_array_equal(store.finish().counts, genotypes)
    assert turned(pack(by_variant)).shape == (-(-genotypes.shape[0] // 4) * 4, -(-genotypes.shape[1] // 4))
    store.close()


def test_the_same_components_from_bytes_and_from_disk(tmp_path: Path) -> None:
    genotypes = np.random.default_rng(1).integers(0, 3, (60, 37)).astype(np.uint8)
    for name, part in (("a", genotypes[:25]), ("b", genotypes[25:])):
        write_bed(tmp_path, part, name)
    fits = [
        ep.FederatedPCA(3, solver="krylov", random_state=0).fit(
            {name: read_table(tmp_path / f"{name}.bed", memory=memory).X for name in "ab"}
        )
        for memory in (None, LITTLE)
    ]
    arrays = ep.FederatedPCA(3, solver="krylov", random_state=0).fit(
        {"a": genotypes[:25].astype(float), "b": genotypes[25:].astype(float)}
    )
    assert fits[0].components_.tobytes() == fits[1].components_.tobytes() == arrays.components_.tobytes()


def test_variants_with_more_alleles_are_left_out_and_counted(tmp_path: Path) -> None:
    genotypes = counts()
    lines = vcf_text(genotypes).splitlines()
    lines[5] = lines[5].replace("\tG\tA\t", "\tG\tA,T\t")
    lines[7] = lines[7].replace("\tG\tA\t", "\tG\t.\t")
    (tmp_path / "a.vcf").write_text("\n".join(lines) + "\n")
    table = read_table(tmp_path / "a.vcf")
    kept = [j for j in range(D) if j not in (1, 3)]
    np.testing.assert_array_equal(table.X[:], as_floats(genotypes)[:, kept])
    assert table.notes == ("2 variants with more or fewer than two alleles were left out",)


def test_variants_without_names_are_named_by_place(tmp_path: Path) -> None:
    """The same name at a site that counts the other allele."""
    path = write_bed(tmp_path, counts())
    bim = path.with_suffix(".bim")
    lines = bim.read_text().replace("rs1\t", ".\t").splitlines()
    bim.write_text("\n".join(lines))
    first = read_table(path).feature_names
    bim.write_text("\n".join(line.replace("A\tG", "G\tA") for line in lines))
    assert first is not None
    assert first[1] == "1:200:A:G"
    assert read_table(path).feature_names == first


def test_people_of_one_name_are_told_apart_by_family(tmp_path: Path) -> None:
    path = write_bed(tmp_path, counts())
    path.with_suffix(".fam").write_text("".join(f"f{i} p 0 0 0 -9\n" for i in range(N)))
    table = read_table(path)
    assert table.row_ids is not None
    assert table.row_ids[2] == "f2:p"
    assert table.texts["family"][2] == "f2"


@pytest.mark.parametrize(
    ("ending", "change", "told"),
    [
        (".bed", lambda b: b[:-5], "they do not belong together"),
        (".bed", lambda b: b"xx" + b[2:], "does not begin as a PLINK"),
        (".bed", lambda b: b[:2] + b"\0" + b[3:], "person by person"),
        (".bim", lambda b: b.replace(b"300", b"3oo"), "line 3: position '3oo'"),
        (".bim", lambda b: b[: len(b) // 2].rpartition(b"\t")[0], "line 12: 2 cells where 6"),
        (".bim", lambda b: b"\xff" + b, "not a text in UTF-8"),
        (".fam", lambda b: b + b, "26 people"),
    ],
)
def test_damaged_plink_files_are_told_by_name_and_place(ending: str, change: Any, told: str, tmp_path: Path) -> None:
    path = write_bed(tmp_path, counts())
    damaged = path.with_suffix(ending)
    damaged.write_bytes(change(damaged.read_bytes()))
    for memory in (None, LITTLE):
        with pytest.raises(EigenpactError, match=told):
            read_table(path, memory=memory)
    damaged.unlink()
    with pytest.raises(FileError, match=rf"a\{ending} does not exist"):
        read_table(path)


def test_damaged_vcf_and_pgen_files_are_told(tmp_path: Path) -> None:
    path = write_pgen(tmp_path, counts())
    (tmp_path / "a.psam").write_text("#IID\np1\n")
    with pytest.raises(FileError, match=r"a\.pgen cannot be read with its 1 people and 22 variants"):
        read_table(path)
    text = vcf_text(counts())
    (tmp_path / "a.vcf").write_text(text[:-20] + "\n1\tnonsense\n")
    with pytest.raises(FileError, match=r"a\.vcf: what follows variant 2[12] is damaged"):
        read_table(tmp_path / "a.vcf")
    (tmp_path / "a.vcf").write_text("nonsense")
    with pytest.raises(FileError, match=r"a\.vcf cannot be read"):
        read_table(tmp_path / "a.vcf")


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_bed(tmp_path, counts())
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(FileError, match="TMPDIR"):
        read_table(path, memory=LITTLE)


def test_renamed_variants_are_matched_by_their_new_names(tmp_path: Path) -> None:
    genotypes = counts()
    reference = read_table(write_bed(tmp_path, genotypes))
    path = write_bed(tmp_path, genotypes, "b")
    moved = [f"1\tv{j}\t0\t{7000 + j}\tA\tG\n" for j in range(D)]  # other ids, and places of another assembly
    path.with_suffix(".bim").write_text("".join(moved))
    said = Description.of({"rename": {"v3": "rs5", "v4": "rs1"}, "drop": ["v0"]})
    table = read_table(path, said)
    assert reference.variants is not None
    assert table.variants is not None
    assert table.variants.ids == table.feature_names
    columns = match_variants(reference.variants, table.variants).columns
    assert {j: int(at) for j, at in enumerate(columns) if at >= 0} == {5: 2, 1: 3}
    np.testing.assert_array_equal(table.X[:], as_floats(genotypes)[:, 1:])
