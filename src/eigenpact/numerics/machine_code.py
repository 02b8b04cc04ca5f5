"""Loops compiled for this very processor while the program runs, by LLVM, where llvmlite is installed (the extra ``fast``).

BLAS is made for large matrices.  What passes over rows here has few columns, and waits for memory that a loop of our own asks for
beforehand.  A package with compiled code would need a wheel for every platform; llvmlite has one for most, and turns instructions
that are written here into machine code within some hundredths of a second.

A kernel is written once, with :class:`Code`, for registers of any width.  It is used where the processor has registers of at
least four doubles that multiply and add at once, and where there is so much work that compiling it costs little.  That depends
on shapes alone, so the same rows give the same bits every time.  ``EIGENPACT_COMPILED=no`` in the environment leaves all work to
numpy and scipy, as where llvmlite is missing; answers then differ by rounding errors.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .elsewhere import by_row

VARIABLE, ALLOWED = "EIGENPACT_COMPILED", ("yes", "no")
"""The environment variable that says whether loops are compiled, and what it may say."""

OLDEST = 20
"""LLVM's version, at least: that of llvmlite 0.45.  Earlier ones, which numba may have brought, cannot read what is here."""

LINE = 64
"""Bytes of a line of the cache."""

_one_at_a_time = threading.RLock()


@dataclass(frozen=True)
class Processor:
    """What is to be known of a processor: its name and features as LLVM writes them, and its registers for vectors.

    Attributes
    ----------
    name, features : str
    wide : int
        Bytes of a register.
    registers : int
    """

    name: str
    features: str
    wide: int
    registers: int

    @property
    def multiplies_bytes(self) -> bool:
        """Whether it has an instruction for sums of products of bytes, of its widest registers."""
        return f"+{'avx512vnni' if self.wide == 64 else 'avxvnni'}" in self.features.split(",")


@cache
def processor() -> Processor | None:
    """This processor, if loops are compiled for it; None else."""
    asked = os.environ.get(VARIABLE, "yes")
    if asked not in ALLOWED:
        raise InputError(f"{VARIABLE}={asked!r} is not known; allowed are {' and '.join(ALLOWED)}")
    if asked == "no" or importlib.util.find_spec("llvmlite") is None:
        return None
    try:
        llvm = importlib.import_module("llvmlite.binding")
        features = llvm.get_host_cpu_features()
    except (ImportError, OSError, RuntimeError):  # its library cannot be loaded, or does not know this processor
        return None
    if llvm.llvm_version_info[0] < OLDEST:
        return None
    if features.get("avx512f"):
        # LLVM would halve vectors for processors that once ran slower with whole ones.
        return Processor(llvm.get_host_cpu_name(), features.flatten() + ",-prefer-256-bit", 64, 32)
    if features.get("avx2") and features.get("fma"):
        return Processor(llvm.get_host_cpu_name(), features.flatten(), 32, 16)
    return None


@dataclass(frozen=True)
class Vectors:
    """Numbers of one kind, and as many of them as a register has.

    >>> doubles = Vectors("double", 8, 4)
    >>> doubles.type, doubles.padded(5)
    ('<4 x double>', 8)
    """

    number: str
    size: int
    lanes: int

    @property
    def type(self) -> str:
        """The type of a register full of them."""
        return f"<{self.lanes} x {self.number}>"

    @property
    def suffix(self) -> str:
        """What LLVM's names of functions of such vectors end with."""
        return f"v{self.lanes}f{8 * self.size}"

    def padded(self, count: int) -> int:
        """The least multiple of a register's numbers that is at least ``count``."""
        return -(-count // self.lanes) * self.lanes


NUMBERS = {np.dtype(np.float64): ("double", 8), np.dtype(np.float32): ("float", 4)}
READ = NUMBERS | {np.dtype(np.uint8): ("i8", 1)}
"""Kinds of numbers that kernels compute with, and that they read, as LLVM calls them, and their bytes."""


def readable(X: NDArray[Any]) -> bool:
    """Whether kernels read rows as they lie in memory.

    >>> readable(np.ones((2, 3))), readable(np.ones((2, 3)).T), readable(np.ones((2, 3), int))
    (True, False, False)
    """
    return X.dtype in READ and by_row(X)


def as_readable(X: NDArray[Any]) -> NDArray[Any]:
    """Rows, or a copy of them, that kernels read."""
    return X if readable(X) else np.require(X, X.dtype if X.dtype in READ else np.float64, ["C", "A"])


def vectors(kind: np.dtype[Any], lanes: int) -> Vectors:
    """So many numbers of a kind side by side.

    >>> vectors(np.dtype(np.float32), 8).type
    '<8 x float>'
    """
    return Vectors(*READ[kind], lanes)


BYTES = "@llvm.x86.avx512.vpdpbusd"
"""What LLVM's names of functions of bytes begin with."""

ZEROS = "zeroinitializer"
"""A vector of zeros."""


class Code:
    """LLVM's instructions of one function, written one after the other.

    Values are names, such as ``%v3``, or constants.  Whole numbers are of 64 bits.  Loops hold what they carry from one turn to
    the next in registers.

    >>> code = Code()
    >>> code.loop(0, 4, 1, lambda i: code.times(i, i))
    >>> code.lines[2:4]
    ['  %i0 = phi i64 [ 0, %entry ], [ %v2, %loop0 ]', '  %v1 = mul nsw i64 %i0, %i0']
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = itertools.count()
        self._block = "entry"

    def put(self, line: str) -> None:
        """Write an instruction without a value."""
        self.lines.append(f"  {line}")

    def new(self, expression: str) -> str:
        """The value of an instruction."""
        value = f"%v{next(self._count)}"
        self.put(f"{value} = {expression}")
        return value

    def plus(self, a: str | int, b: str | int) -> str:
        """The sum a + b of whole numbers."""
        return self.new(f"add nsw i64 {a}, {b}")

    def minus(self, a: str | int, b: str | int) -> str:
        """The difference a - b of whole numbers."""
        return self.new(f"sub nsw i64 {a}, {b}")

    def times(self, a: str | int, b: str | int) -> str:
        """The product a b of whole numbers."""
        return self.new(f"mul nsw i64 {a}, {b}")

    def over(self, a: str | int, b: str | int) -> str:
        """The quotient a / b of whole numbers that are not negative, rounded down."""
        return self.new(f"udiv i64 {a}, {b}")

    def least(self, a: str | int, b: str | int) -> str:
        """The smaller of two whole numbers."""
        return self.new(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def choose(self, condition: str, one: str, other: str, kind: str = "i64") -> str:
        """One of two values, the first where a condition holds."""
        return self.new(f"select i1 {condition}, {kind} {one}, {kind} {other}")

    def at(self, pointer: str, count: str | int, of: Vectors) -> str:
        """The address of the number that lies so many of its kind behind a pointer."""
        return self.new(f"getelementptr {of.number}, ptr {pointer}, i64 {count}")

    def load(self, kind: str, address: str, align: int) -> str:
        """What lies there."""
        return self.new(f"load {kind}, ptr {address}, align {align}")

    def store(self, kind: str, value: str, address: str, align: int) -> None:
        """Put a value there."""
        self.put(f"store {kind} {value}, ptr {address}, align {align}")

    def ask_for(self, address: str, *, near: bool = True) -> None:
        """Have what lies there brought to the nearest cache, or to the one behind it."""
        self.put(f"call void @llvm.prefetch(ptr {address}, i32 0, i32 {3 if near else 2}, i32 1)")

    def add_to(self, address: str, value: str, of: Vectors) -> None:
        """Add a vector to what lies there."""
        old = self.load(of.type, address, of.size)
        self.store(of.type, self.new(f"fadd {of.type} {old}, {value}"), address, of.size)

    def add_carefully(self, address: str, lost: str, value: str, of: Vectors) -> None:
        """Add a vector to what lies there, and what rounding takes from the sum to what lies at ``lost`` (Knuth's two-sum)."""
        old = self.load(of.type, address, of.size)
        total = self.new(f"fadd {of.type} {old}, {value}")
        added = self.new(f"fsub {of.type} {total}, {old}")
        before = self.new(f"fsub {of.type} {total}, {added}")
        rests = [self.new(f"fsub {of.type} {one}, {other}") for one, other in ((old, before), (value, added))]
        self.add_to(lost, self.new(f"fadd {of.type} {rests[0]}, {rests[1]}"), of)
        self.store(of.type, total, address, of.size)

    def spread(self, of: Vectors, address: str) -> str:
        """A vector of the number that lies there, again and again."""
        return self.in_all_places(of, self.load(of.number, address, of.size))

    def in_all_places(self, of: Vectors, number: str) -> str:
        """A vector of one number, again and again."""
        first = self.new(f"insertelement {of.type} poison, {of.number} {number}, i64 0")
        return self.new(f"shufflevector {of.type} {first}, {of.type} poison, <{of.lanes} x i32> zeroinitializer")

    def widened(self, value: str, old: str) -> str:
        """A whole number of fewer bits as one of 64."""
        return value if old == "i64" else self.new(f"sext {old} {value} to i64")

    def convert(self, value: str, old: str, new: str) -> str:
        """A number, or a vector of them, as one of the ``new`` kind: of single or double precision, if they differ."""
        how = "uitofp" if "i8" in old else "sitofp" if "i32" in old else "fpext" if "double" in new else "fptrunc"
        return value if old == new else self.new(f"{how} {old} {value} to {new}")

    def plus_product(self, of: Vectors, a: str, b: str, c: str) -> str:
        """The vector a b + c, rounded once."""
        return self.new(f"call {of.type} @llvm.fma.{of.suffix}({of.type} {a}, {of.type} {b}, {of.type} {c})")

    def plus_products_of_bytes(self, of: Vectors, a: str, b: str, c: str) -> str:
        """The vector c of whole numbers of 32 bits and, for each, the products of four bytes of a with four signed ones of b."""
        return self.new(f"call {of.type} {BYTES}.{32 * of.lanes}({of.type} {c}, {of.type} {a}, {of.type} {b})")

    def loop(
        self, begin: str | int, end: str | int, step: str | int, body: Callable[[str], Any], *, may_be_empty: bool = False
    ) -> None:
        """A loop over i from ``begin`` to before ``end``, which comes after it unless the loop ``may_be_empty``."""
        if may_be_empty:
            some = self.new(f"icmp slt i64 {begin}, {end}")
            self.when(some, lambda: self.loop(begin, end, step, body))
            return

        def nothing_carried(i: str, _: list[str]) -> list[str]:
            body(i)
            return []

        self._loop(begin, end, step, "", [], nothing_carried)

    def sums(
        self,
        begin: str | int,
        end: str | int,
        of: Vectors,
        first: list[str],
        body: Callable[[str, list[str]], list[str]],
        *,
        may_be_empty: bool = False,
    ) -> list[str]:
        """Vectors that a loop over i keeps in registers: the body is given i and the vectors, and gives what they are then."""
        if not may_be_empty:
            return self._loop(begin, end, 1, of.type, first, body)
        some, before, number = self.new(f"icmp slt i64 {begin}, {end}"), self._block, next(self._count)
        self.put(f"br i1 {some}, label %then{number}, label %past{number}")
        self._begin(f"then{number}")
        made = self._loop(begin, end, 1, of.type, first, body)
        after = self._block
        self.put(f"br label %past{number}")
        self._begin(f"past{number}")
        return [self.new(f"phi {of.type} [ {a}, %{before} ], [ {b}, %{after} ]") for a, b in zip(first, made, strict=True)]

    def _loop(
        self,
        begin: str | int,
        end: str | int,
        step: str | int,
        kind: str,
        first: list[str],
        body: Callable[[str, list[str]], list[str]],
    ) -> list[str]:
        number = next(self._count)
        i, before = f"%i{number}", self._block
        carried = [f"%c{number}.{place}" for place in range(len(first))]
        self.put(f"br label %loop{number}")
        self._begin(f"loop{number}")
        here = len(self.lines)
        made = body(i, carried)
        after = self.plus(i, step)
        self.lines[here:here] = [f"  {i} = phi i64 [ {begin}, %{before} ], [ {after}, %{self._block} ]"] + [
            f"  {name} = phi {kind} [ {value}, %{before} ], [ {next_one}, %{self._block} ]"
            for name, value, next_one in zip(carried, first, made, strict=True)
        ]
        more = self.new(f"icmp slt i64 {after}, {end}")
        self.put(f"br i1 {more}, label %loop{number}, label %end{number}")
        self._begin(f"end{number}")
        return made

    def when(self, condition: str, body: Callable[[], None]) -> None:
        """Do something where a condition holds."""
        number = next(self._count)
        self.put(f"br i1 {condition}, label %then{number}, label %past{number}")
        self._begin(f"then{number}")
        body()
        self.put(f"br label %past{number}")
        self._begin(f"past{number}")

    def _begin(self, block: str) -> None:
        self.lines.append(f"{block}:")
        self._block = block


def compiled(code: Code, parameters: Sequence[str]) -> Callable[..., None]:
    """The function with these instructions, which is called with addresses and whole numbers.

    ``parameters`` name them: ``ptr X`` or ``i64 n``.  Other threads go on while it runs.
    """
    here = processor()
    if here is None:
        raise RuntimeError("loops are not compiled on this machine")
    with _one_at_a_time:
        llvm = importlib.import_module("llvmlite.binding")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(cpu=here.name, features=here.features, opt=3)
        module = llvm.parse_assembly(_text(code, parameters))
        module.verify()
        how = llvm.create_pipeline_tuning_options(speed_level=1)
        how.loop_unrolling = how.loop_vectorization = how.slp_vectorization = False  # it is written as it should be
        passes = llvm.create_pass_builder(machine, how)
        passes.getModulePassManager().run(module, passes)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        address = engine.get_function_address("kernel")
    kinds = [ctypes.c_void_p if parameter.startswith("ptr") else ctypes.c_int64 for parameter in parameters]
    function = ctypes.CFUNCTYPE(None, *kinds)(address)

    def call(*arguments: int) -> None:
        function(*arguments)
        _ = engine  # whose memory the machine code lies in

    return call


def _text(code: Code, parameters: Sequence[str]) -> str:
    """The module as LLVM reads it."""
    names = ", ".join(kind + (" noalias" if kind == "ptr" else "") + f" %{name}" for kind, name in map(str.split, parameters))
    body = "\n".join(code.lines)
    kinds = [Vectors(number, size, lanes) for number, size in NUMBERS.values() for lanes in (1, 2, 4, 8, 16)]
    functions = [(of.type, f"@llvm.fma.{of.suffix}") for of in kinds]
    functions += [(f"<{lanes} x i32>", f"{BYTES}.{32 * lanes}") for lanes in (8, 16)]
    declared = "\n".join(f"declare {kind} {name}({kind}, {kind}, {kind})" for kind, name in functions if f"{name}(" in body)
    return f"""{declared}
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch(ptr, i32, i32, i32)
define void @kernel({names}) #0 {{
entry:
{body}
  ret void
}}
attributes #0 = {{ nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" }}
"""


def memory(shape: tuple[int, ...], kind: np.dtype[Any], *, zeros: bool = False) -> NDArray[Any]:
    """A new array that begins with a line of the cache.

    >>> memory((3, 2), np.dtype(np.float32), zeros=True).ctypes.data % LINE
    0
    """
    size = int(np.prod(shape)) * kind.itemsize
    raw = (np.zeros if zeros else np.empty)(size + LINE, np.uint8)
    first = -raw.ctypes.data % LINE
    return raw[first : first + size].view(kind).reshape(shape)
