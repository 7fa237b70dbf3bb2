"""What a case of the conformance suite is, and the arrays that cases take.

A case is one call of a JAX function: its name, arrays, attributes, results, and the gradient of a weighted sum of the
results. Arrays come from a pool by type, shape and domain, so that thousands of cases share a few hundred arrays.
"""
import dataclasses
import itertools
import zlib
from typing import Any, Callable

import ml_dtypes
import numpy as np

DTYPES = {
    "bool": np.bool_, "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32,
    "i64": np.int64, "u64": np.uint64, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "c64": np.complex64, "c128": np.complex128,
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
WIDE = {"i64", "u64", "f64", "c128"}  # need jax_enable_x64

HALF = ["bf16", "f16"]
FLOATS = ["f32", "f64", "bf16", "f16"]
REALS = ["f32", "f64"]
COMPLEX = ["c64", "c128"]
SIGNED = ["i8", "i16", "i32", "i64"]
UNSIGNED = ["u8", "u16", "u32", "u64"]
INTEGERS = SIGNED + UNSIGNED
ALL = ["bool"] + INTEGERS + FLOATS

SHAPES = [(), (1,), (0,), (7,), (33,), (3, 5), (1, 1), (2, 0, 3), (2, 3, 4), (2, 1, 3, 2)]


@dataclasses.dataclass(frozen=True)
class Input:
    """An array of the pool.

    Domains of floats: any, pos, unit (-1 to 1), ge1, ties (few different values), special (NaN, infinities, zeros), and
    spd (symmetric positive definite matrices). Domains of integers: any (small), pos (1 to 9), extreme, and index(n),
    which is 0 to n - 1.
    """
    dtype: str
    shape: tuple
    domain: str = "any"
    salt: int = 0

    def key(self):
        return f"{self.dtype}{list(self.shape)}{self.domain}{self.salt}"

    def make(self):
        rng = np.random.RandomState(zlib.crc32(self.key().encode()))
        dtype = DTYPES[self.dtype]
        if self.domain.startswith("index("):
            return np.asarray(rng.randint(0, int(self.domain[6:-1]), self.shape)).astype(dtype)
        if self.domain.startswith("values("):
            return np.array(eval(self.domain[6:], {"inf": np.inf, "nan": np.nan})).reshape(self.shape).astype(dtype)
        if self.dtype == "bool":
            return np.asarray(rng.randint(0, 2, self.shape)).astype(bool)
        if self.dtype in INTEGERS:
            return np.asarray(self._integers(rng)).astype(dtype)
        if self.dtype in COMPLEX:
            return np.asarray(self._floats(rng) + 1j * self._floats(rng)).astype(dtype)
        return np.asarray(self._floats(rng)).astype(dtype)

    def _integers(self, rng):
        info = np.iinfo(DTYPES[self.dtype])
        if self.domain == "extreme":
            choices = [info.min, info.max, info.min + 1, info.max - 1, 0, 1, info.max // 2]
            picks = rng.randint(0, len(choices), self.shape)
            return np.array(choices, dtype=object)[picks]
        low = 1 if self.domain == "pos" else max(info.min, -7)
        return rng.randint(low, 10, self.shape)

    def _floats(self, rng):
        if self.domain == "special":
            choices = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0])
            size = int(np.prod(self.shape))
            return np.resize(choices, size).reshape(self.shape)
        if self.domain == "ties":
            return rng.randint(-2, 3, self.shape).astype(np.float64)
        if self.domain == "unit":
            return np.round(rng.uniform(-0.95, 0.95, self.shape), 3)
        if self.domain == "prob":
            return np.round(rng.uniform(0.05, 0.95, self.shape), 3)
        if self.domain == "pos":
            return np.round(rng.uniform(0.2, 4.0, self.shape), 3)
        if self.domain == "ge1":
            return np.round(rng.uniform(1.1, 4.0, self.shape), 3)
        if self.domain == "huge":
            return rng.normal(size=self.shape) * 10.0 ** rng.randint(3, 30, self.shape)
        if self.domain == "spd":
            a = rng.normal(size=self.shape)
            n = self.shape[-1]
            return np.round(a @ np.swapaxes(a, -1, -2) + n * np.eye(n), 3)
        if self.domain == "dominant":  # well-conditioned, not symmetric
            a = rng.normal(size=self.shape)
            return np.round(a + 3 * np.eye(*self.shape[-2:]), 3)
        return np.round(rng.normal(size=self.shape) * 1.5, 3)


@dataclasses.dataclass
class Case:
    name: str  # of the JAX function
    inputs: list
    attrs: dict
    call: Callable
    gradient: bool
    tolerance: float  # in units of the type's tolerance


class Suite:
    """Collects cases."""

    def __init__(self):
        self.cases = []

    def add(self, name: str, inputs: list, call: Callable, gradient=True, tolerance=1.0, **attrs: Any):
        """A call of call(*inputs, **attrs)."""
        self.cases.append(Case(name, list(inputs), attrs, call, gradient, tolerance))

    def each(self, name, call, dtypes, shapes=SHAPES, domain="any", gradient=True, tolerance=1.0, **attrs):
        """One array, each type and shape."""
        for dtype, shape in itertools.product(dtypes, shapes):
            self.add(name, [Input(dtype, shape, domain)], call, gradient, tolerance, **attrs)
