"""Loops compiled while the program runs: whether they are, what their instructions do, and that machine code is kept alive."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eigenpact.errors import InputError
from eigenpact.numerics import compiled_action, compiled_sparse, machine_code
from eigenpact.numerics.machine_code import LINE, VARIABLE, ZEROS, Code, Processor, Vectors, compiled, memory, processor, vectors

HERE = processor()
needs_loops = pytest.mark.skipif(HERE is None, reason="no loops are compiled on this machine: llvmlite, or AVX2, is missing")
DOUBLES = Vectors("double", 8, 4)


@pytest.fixture
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a processor is, is found out again, whatever the environment of these tests says."""
    monkeypatch.delenv(VARIABLE, raising=False)
    processor.cache_clear()
    yield
    processor.cache_clear()


# -- whether loops are compiled ---------------------------------------------------------------------


def test_no_loop_is_compiled_where_none_is_asked_for(asked_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    monkeypatch.setenv(VARIABLE, "no")
    check_none()


def test_no_loop_is_compiled_without_llvmlite(asked_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "llvmlite" else real(name, *more))
    check_none()


def check_none() -> None:
    assert processor() is None
    assert not compiled_action.worth_compiling(1 << 30, 1000, 14)
    assert not compiled_sparse.worth_compiling(1 << 40, 14)
    for use in (
        lambda: compiled(Code(), []),
        lambda: compiled_action.NarrowProducts(np.ones((70, 2))),
    ):
        with pytest.raises(RuntimeError, match="not compiled"):
            use()


@pytest.mark.parametrize("said", ["", "No", "yes ", "1"])
def test_a_word_that_is_not_known_is_refused_every_time(said: str, monkeypatch: pytest.MonkeyPatch, asked_anew: None) -> None:  # noqa: ARG001
    monkeypatch.setenv(VARIABLE, said)
    for _ in range(2):
        with pytest.raises(InputError, match="allowed are yes and no"):
            processor()
    monkeypatch.setenv(VARIABLE, "no")
    assert processor() is None


def llvm_that(features: Any, version: tuple[int, ...] = (20, 1, 8)) -> Any:
    def found() -> Any:
        if isinstance(features, Exception):
            raise features
        made = dict.fromkeys(features, True)
        return SimpleNamespace(get=made.get, flatten=lambda: ",".join(f"+{name}" for name in features))

    return SimpleNamespace(get_host_cpu_features=found, get_host_cpu_name=lambda: "one", llvm_version_info=version)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (["avx2", "fma", "avx512f"], Processor("one", "+avx2,+fma,+avx512f,-prefer-256-bit", 64, 32)),
        (["avx2", "fma"], Processor("one", "+avx2,+fma", 32, 16)),
        (["avx2"], None),
        (["avx", "fma"], None),
        (["neon"], None),
        ([], None),
        (RuntimeError("failed to get host cpu features"), None),
    ],
)
def test_registers_are_those_of_the_processor(
    features: Any,
    expected: Processor | None,
    monkeypatch: pytest.MonkeyPatch,
    asked_anew: None,  # noqa: ARG001
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(machine_code.importlib, "import_module", lambda _: llvm_that(features))
    assert processor() == expected


def test_an_llvmlite_that_is_old_or_cannot_be_loaded_is_as_good_as_none(
    monkeypatch: pytest.MonkeyPatch,
    asked_anew: None,  # noqa: ARG001
) -> None:
    """Numba brings one of its own choice; before 0.45 it does not take what is written here."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(machine_code.importlib, "import_module", lambda _: llvm_that(["avx2", "fma"], (15, 0, 7)))
    check_none()
    for error in (OSError("Could not find/load shared object file"), ImportError("no binding")):

        def fails(_: str, error: Exception = error) -> Any:
            raise error

        processor.cache_clear()
        monkeypatch.setattr(machine_code.importlib, "import_module", fails)
        check_none()


def test_llvmlite_is_not_imported_before_a_loop_is_worth_it() -> None:
    """Which takes some tenths of a second, and memory."""
    lines = "import sys, eigenpact.numerics.rows; print('llvmlite' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "False", done.stderr[-2000:]


# -- instructions -----------------------------------------------------------------------------------


def address(array: Any) -> int:
    return int(array.ctypes.data)


@needs_loops
@pytest.mark.parametrize(("begin", "end", "step"), [(0, 5, 1), (2, 11, 3), (0, 1, 4), (3, 3, 1), (4, 1, 1), (-2, 2, 1)])
def test_loops_turn_as_often_as_ranges(begin: int, end: int, step: int) -> None:
    """With ends that are known before, and with such as are not; several within each other."""
    whole = Vectors("i64", 8, 1)
    for ends in ((begin, end), ("%begin", "%end")):
        code = Code()

        def count(i: str, code: Code = code) -> None:
            times = code.load("i64", "%out", 8)
            code.store("i64", code.plus(times, 1), "%out", 8)
            code.loop(0, 2, 1, lambda _: code.store("i64", i, code.at("%out", 1, whole), 8))

        code.loop(*ends, step, count, may_be_empty=True)
        out = np.array([0, 77])
        compiled(code, ["ptr out", "i64 begin", "i64 end"])(address(out), begin, end)
        turns = range(begin, end, step)
        assert out.tolist() == [len(turns), turns[-1] if turns else 77]


@needs_loops
@pytest.mark.parametrize(("count", "may_be_empty"), [(0, True), (1, True), (7, True), (1, False), (7, False)])
def test_sums_are_kept_from_turn_to_turn(count: int, may_be_empty: bool) -> None:
    code, doubles = Code(), DOUBLES
    first = [code.load(doubles.type, "%first", 8), ZEROS]

    def body(i: str, sums: list[str]) -> list[str]:
        x = code.load(doubles.type, code.at("%X", code.times(i, 4), doubles), 8)
        return [code.plus_product(doubles, x, x, sums[0]), code.new(f"fadd {doubles.type} {sums[1]}, {x}")]

    for place, found in enumerate(code.sums(0, "%n", doubles, first, body, may_be_empty=may_be_empty)):
        code.store(doubles.type, found, code.at("%out", 4 * place, doubles), 8)
    X, start, out = np.arange(28.0).reshape(7, 4), np.full(4, 100.0), np.full((2, 4), np.nan)
    compiled(code, ["ptr X", "ptr first", "ptr out", "i64 n"])(*map(address, (X, start, out)), count)
    np.testing.assert_array_equal(out, [100 + (X[:count] ** 2).sum(axis=0), X[:count].sum(axis=0)])


@needs_loops
def test_whole_numbers_and_choices() -> None:
    whole = Vectors("i64", 8, 1)
    code = Code()
    some = code.new("icmp slt i64 %a, %b")
    made = [
        code.plus("%a", "%b"), code.minus("%a", "%b"), code.times("%a", "%b"), code.over("%b", 7), code.least("%a", "%b"),
        code.choose(some, "%a", "3"), code.widened(code.new("trunc i64 %a to i32"), "i32"),
    ]  # fmt: skip
    for place, value in enumerate(made):
        code.store("i64", value, code.at("%out", place, whole), 8)
    code.when(some, lambda: code.store("i64", "-1", code.at("%out", len(made), whole), 8))
    function = compiled(code, ["i64 a", "i64 b", "ptr out"])
    for a, b in ((-5, 30), (30, 5), (2**40, 2**20 + 6)):
        out = np.zeros(8, np.int64)
        function(a, b, address(out))
        low = int(np.array(a).astype(np.int32))
        assert out.tolist() == [a + b, a - b, a * b, b // 7, min(a, b), a if a < b else 3, low, -1 if a < b else 0]


@needs_loops
def test_numbers_are_rounded_as_numpy_rounds_them() -> None:
    """A product and a sum at once, and from one precision to the other; tiny ones are not made zero."""
    code, singles = Code(), vectors(np.dtype(np.float32), 4)
    x, y = code.load(DOUBLES.type, "%x", 8), code.spread(DOUBLES, "%y")
    code.store(singles.type, code.convert(x, DOUBLES.type, singles.type), "%single", 4)
    code.store(DOUBLES.type, code.convert(code.load(singles.type, "%single", 4), singles.type, DOUBLES.type), "%back", 8)
    code.store(DOUBLES.type, code.plus_product(DOUBLES, x, y, code.in_all_places(DOUBLES, "-1.0")), "%x", 8)
    code.add_to("%y", code.load(DOUBLES.type, "%back", 8), DOUBLES)
    x_, y_, single, back = (
        np.array([1 + 2.0**-40, 1e-42, np.inf, 1e300]),
        np.full(4, 1 - 2.0**-40),
        np.zeros(4, "f4"),
        np.zeros(4),
    )
    with np.errstate(over="ignore"):
        expected = x_.astype(np.float32)
    compiled(code, [f"ptr {name}" for name in ("x", "y", "single", "back")])(*map(address, (x_, y_, single, back)))
    np.testing.assert_array_equal(single, expected)
    np.testing.assert_array_equal(back, expected.astype(float))
    assert x_.tolist() == [-(2.0**-80), -1.0, np.inf, 1e300 * (1 - 2.0**-40)]
    np.testing.assert_array_equal(y_, (1 - 2.0**-40) + back)


@needs_loops
def test_a_function_outlives_everything_it_was_made_from() -> None:
    """Its machine code is let go of with it, and not before."""
    functions = []
    for number in range(20):
        code = Code()
        code.store("i64", str(number), "%out", 8)
        functions.append(compiled(code, ["ptr out"]))
        del code
    gc.collect()
    out = np.zeros(1, np.int64)
    for number, function in enumerate(functions):
        function(address(out))
        assert out[0] == number
        functions[number] = None  # type: ignore[call-overload]
        del function
        gc.collect()


@needs_loops
def test_a_wrong_number_of_arguments_is_refused() -> None:
    function = compiled(Code(), ["ptr a", "i64 n"])
    with pytest.raises(TypeError):
        function(1)
    with pytest.raises(ctypes.ArgumentError):
        function(1, 2.5)


@needs_loops
def test_wrong_instructions_are_refused() -> None:
    code = Code()
    code.new("add nsw i64 %nothing, 1")
    with pytest.raises(RuntimeError, match="nothing"):
        compiled(code, [])


@needs_loops
def test_threads_compile_at_once() -> None:
    found: dict[int, int] = {}
    ready = threading.Barrier(5)

    def make(number: int) -> None:
        code = Code()
        code.store("i64", str(number), "%out", 8)
        ready.wait(30)
        out = np.zeros(1, np.int64)
        compiled(code, ["ptr out"])(address(out))
        found[number] = int(out[0])

    threads = [threading.Thread(target=make, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {number: number for number in range(5)}


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (3, 5, 7)])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_memory_begins_with_a_line_and_is_of_the_shape(shape: tuple[int, ...], kind: Any) -> None:
    for zeros in (True, False):
        made = memory(shape, np.dtype(kind), zeros=zeros)
        assert (made.shape, made.dtype, address(made) % LINE if made.size else 0) == (shape, np.dtype(kind), 0)
        assert made.flags.c_contiguous
        assert not zeros or not made.any()
        made[...] = 1
