"""``@local``: what may be declared, and which names a site runs."""

from __future__ import annotations

import sys
from types import FunctionType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenpact.errors import WireError
from eigenpact.runtime import Reply, Request, Site, SiteServer, find_local, local, wire_table
from eigenpact.runtime.local import Kept, as_arrays


@local(takes={"Z": "d k", "k": ""}, sends={"G": "d <=k", "n": ""}, reads=("told",), keeps=("seen",), bound={"G": "trace"})
def declared(site: Site, Z, k):
    """Only its declaration is used."""


@local(keeps=("left",))
def leave(_site: Site):
    """Keep something."""
    return Reply(keep={"left": 1.0})


@local(sends={"left": ""})
def peek(site: Site):
    """Read it undeclared."""
    return site.kept["left"]


def grown_up(site):
    """To be marked in tests."""


def test_a_function_must_stand_at_module_level():
    def inside(site):
        """Cannot be found by name."""

    with pytest.raises(WireError, match=r"inside.*module level"):
        local()(inside)
    with pytest.raises(WireError, match="module level"):
        local()(Site.rng)
    with pytest.raises(WireError, match="module level"):
        local()(lambda _: None)


def test_bounds_are_names_that_exist_for_arrays_that_are_sent():
    with pytest.raises(WireError, match=r"'huge' of 'G'.*allowed are trace, traces, unit"):
        local(sends={"G": "d"}, bound="huge")(grown_up)
    with pytest.raises(WireError, match=r"'trace' of 'H'.*what it sends \(G\)"):
        local(sends={"G": "d"}, bound={"H": "trace"})(grown_up)


def test_a_shape_that_cannot_be_read_is_refused_at_declaration():
    with pytest.raises(WireError, match="'d / 2' is not allowed"):
        local(sends={"G": "d/2"})(grown_up)


def test_the_wire_table_lists_all_that_is_taken_sent_kept_and_read():
    rows = [(row["way"], row["array"], row["shape"], row["bound"]) for row in wire_table([declared])]
    assert rows == [
        ("to site", "Z", "d k", "numbers"),
        ("to site", "k", "", "numbers"),
        ("from site", "G", "d <=k", "trace"),
        ("from site", "n", "", "none"),
        ("kept at site", "seen", "", ""),
        ("read at site", "told", "", ""),
    ]
    assert {row["function"] for row in wire_table([declared])} == {"declared"}


def test_a_function_sees_what_it_declares_to_read_and_no_more():
    array = np.arange(3.0)
    kept = Kept(declared, {"told": array, "seen": 1, "other": 2})
    assert kept["told"] is array
    assert dict(kept) == {"told": array}
    assert len(Kept(declared, {})) == 0
    assert Kept(declared, {}).get("told", 7) == 7
    assert "told" not in Kept(declared, {})
    for ask in (lambda: kept["other"], lambda: kept.get("other"), lambda: "other" in kept, lambda: kept["seen"]):
        with pytest.raises(WireError, match=r"declared/1 reads site\.kept\['\w+'\], declared are \['told'\]; add it to reads="):
            ask()


def test_a_site_refuses_a_function_that_reads_more_than_it_declares():
    server = SiteServer("A", np.ones((2, 3)))
    server.execute(Request("run", 0, 1, "local", leave.name, ()), 0)
    with pytest.raises(WireError, match=r"peek at site 'A': .*:peek/1 reads site\.kept\['left'\], declared are \[\]"):
        server.execute(Request("run", 0, 2, "sum", peek.name, ()), 1)


def test_arguments_give_sizes_by_shape_and_by_value():
    assert declared.check_args((np.zeros((5, 2)), np.int64(2)), 5) == {"d": 5, "k": 2}
    sizes = declared.check_args((np.zeros((5, 2)), np.array(2, dtype=np.uint8)), 5)
    declared.check_reply((np.zeros((5, 1)), np.array(1)), sizes)
    with pytest.raises(WireError, match=r"reply 'G' has shape \(5, 3\)"):
        declared.check_reply((np.zeros((5, 3)), np.array(1)), sizes)
    assert sizes == {"d": 5, "k": 2}


def test_a_whole_number_may_not_contradict_a_shape():
    with pytest.raises(WireError, match="argument 'k' is 3, but size 'k' is 2"):
        declared.check_args((np.zeros((5, 2)), np.array(3)), 5)


def test_wrong_counts_and_shapes_of_arguments_are_named():
    with pytest.raises(WireError, match=r"declared/1: 1 argument array\(s\), declared are 2 \(Z, k\)"):
        declared.check_args((np.zeros((5, 2)),), 5)
    with pytest.raises(WireError, match=r"argument 'Z' has shape \(4, 2\), declared is \(d k\) with d=5"):
        declared.check_args((np.zeros((4, 2)), np.array(2)), 5)


@pytest.mark.parametrize("dtype", ["float16", "complex128", "object", "datetime64[s]", "U3", "int16", "S4"])
def test_only_plain_numbers_cross_a_boundary(dtype):
    with pytest.raises(WireError, match=r"argument 'Z' has dtype.*allowed are bool, float32, float64"):
        declared.check_args((np.zeros((5, 2), dtype=dtype), np.array(2)), 5)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "uint64", "uint8", "bool"])
def test_plain_numbers_do(dtype):
    assert declared.check_args((np.zeros((5, 2), dtype=dtype), np.array(2)), 5)["k"] == 2


def test_arrays_become_plain_c_ordered_and_native():
    fortran, swapped, scalar = as_arrays((np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(3, dtype=">f8"), 2.5))
    assert fortran.flags.c_contiguous
    assert fortran.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert swapped.dtype.isnative
    assert swapped.tolist() == [0, 1, 2]
    assert scalar.shape == ()


def test_a_registered_function_is_found_by_name():
    assert find_local(declared.name) is declared
    assert find_local(f"{__name__}:declared/1") is declared


def test_the_packages_own_functions_are_found_whatever_module_they_are_in():
    assert find_local("eigenpact:scatter_action/1").short_name == "scatter_action"
    with pytest.raises(WireError, match=r"unknown function 'eigenpact:nothing/1'.*versions of eigenpact may differ"):
        find_local("eigenpact:nothing/1")
    with pytest.raises(WireError, match="unknown function 'eigenpact:scatter_action/2'"):
        find_local("eigenpact:scatter_action/2")
    with pytest.raises(WireError, match=r"a name by module, as before 0\.1\.0; names are now as in 'eigenpact:scatter_action/1'"):
        find_local("eigenpact.algorithms.products:scatter_action")


def test_a_declared_name_and_its_version():
    named = local(name="elsewhere:step", version=3)(_step)
    assert (named.name, named.short_name) == ("elsewhere:step/3", "step")
    assert find_local("elsewhere:step/3") is named


@pytest.mark.parametrize("name", ["eigenpact:step", "step", "elsewhere:", "else where:step", "elsewhere:step/2"])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(WireError, match="must be 'package:function', your own package's"):
        local(name=name)(_step)


def test_two_functions_of_one_name_are_refused():
    def of(module, name="step"):
        body = FunctionType(_step.__code__, {**globals(), "__name__": module}, name)
        body.__module__, body.__qualname__ = module, name
        return body

    local(name="elsewhere:same")(of("first"))
    local(name="elsewhere:same")(of("first"))  # a module that is loaded anew
    with pytest.raises(WireError, match="declared by step of first and by step of second; give one another name"):
        local(name="elsewhere:same")(of("second"))
    with pytest.raises(WireError, match="declared by step of first and by other of first; give one another name"):
        local(name="elsewhere:same")(of("first", "other"))


def _step(site):
    """Sends nothing."""


@pytest.mark.parametrize("name", ["elsewhere_{0}:f", "eigenpact.algorithms_{0}:f", "elsewhere_{0}", "eigenpact.algorithms.:f"])
def test_other_modules_are_refused_and_not_imported(tmp_path, monkeypatch, name):
    stem = tmp_path.name.replace("-", "_")
    name = name.format(stem)
    folder = tmp_path / "eigenpact" if name.startswith("eigenpact") else tmp_path
    folder.mkdir(exist_ok=True)
    module = name.partition(":")[0]
    (folder / (module.rpartition(".")[2] + ".py")).write_text("raise SystemExit('was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("eigenpact.__path__", [*sys.modules["eigenpact"].__path__, str(folder)])
    with pytest.raises(WireError, match="unknown function"):
        find_local(name)
    assert module not in sys.modules


@given(st.text(max_size=30))
def test_no_name_whatever_raises_another_error(name):
    for request in (name, "eigenpact.algorithms." + name):
        with pytest.raises(WireError):
            find_local(request)
