"""Elementwise functions, promotion of types, conversions."""
import itertools

import jax
import jax.image
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.special
from jax import lax

from case import ALL, COMPLEX, DTYPES, FLOATS, HALF, INTEGERS, REALS, SIGNED, Input

UNARY = {
    "jnp.abs": "any", "jnp.negative": "any", "jnp.positive": "any", "jnp.sign": "any", "jnp.floor": "any", "jnp.ceil": "any",
    "jnp.rint": "any", "jnp.trunc": "any", "jnp.exp": "any", "jnp.exp2": "any", "jnp.expm1": "any",
    "jnp.log": "pos", "jnp.log1p": "pos", "jnp.log2": "pos", "jnp.log10": "pos", "jnp.sqrt": "pos", "jnp.cbrt": "any",
    "jnp.square": "any", "jnp.reciprocal": "pos", "jnp.sin": "any", "jnp.cos": "any", "jnp.tan": "unit", "jnp.arcsin": "unit",
    "jnp.arccos": "unit", "jnp.arctan": "any", "jnp.sinh": "any", "jnp.cosh": "any", "jnp.tanh": "any", "jnp.arcsinh": "any",
    "jnp.arccosh": "ge1", "jnp.arctanh": "unit", "jnp.deg2rad": "any", "jnp.rad2deg": "any", "jnp.sinc": "any",
    "jnp.nan_to_num": "any", "jnp.i0": "any", "lax.rsqrt": "pos", "lax.logistic": "any", "lax.erf": "any", "lax.erfc": "any",
    "lax.erf_inv": "unit", "lax.lgamma": "pos", "lax.digamma": "pos", "lax.bessel_i0e": "any", "lax.bessel_i1e": "any",
    "jax.nn.relu": "any", "jax.nn.relu6": "any", "jax.nn.sigmoid": "any", "jax.nn.softplus": "any", "jax.nn.silu": "any",
    "jax.nn.log_sigmoid": "any", "jax.nn.elu": "any", "jax.nn.leaky_relu": "any", "jax.nn.hard_tanh": "any",
    "jax.nn.hard_sigmoid": "any", "jax.nn.hard_silu": "any", "jax.nn.celu": "any", "jax.nn.selu": "any",
    "jax.nn.soft_sign": "any", "jax.nn.mish": "any", "jax.nn.squareplus": "any", "jax.nn.gelu": "any",
    "scipy.special.entr": "pos", "scipy.special.logit": "prob", "scipy.special.expit": "any", "scipy.special.gammaln": "pos",
    "scipy.special.digamma": "pos", "scipy.special.erf": "any", "scipy.special.erfc": "any", "scipy.special.erfinv": "unit",
    "scipy.special.i0": "any", "scipy.special.i0e": "any", "scipy.special.i1": "any", "scipy.special.i1e": "any",
    "scipy.special.ndtr": "any", "scipy.special.ndtri": "prob", "scipy.special.log_ndtr": "any",
}
# What they return for NaN, infinities and zeros of both signs is compared as well.
SPECIAL = [name for name in UNARY if name not in ("jnp.i0", "scipy.special.i0", "scipy.special.i1", "jnp.sinc")]
UNARY_INTEGER = ["jnp.abs", "jnp.negative", "jnp.positive", "jnp.sign", "jnp.square", "jnp.invert", "jnp.bitwise_count",
                 "jnp.sin", "jnp.exp", "jnp.sqrt", "jnp.floor", "jnp.logical_not"]
PREDICATES = ["jnp.isnan", "jnp.isinf", "jnp.isfinite", "jnp.isposinf", "jnp.isneginf", "jnp.signbit", "jnp.logical_not"]
REAL_ONLY = {"scipy.special.ndtr", "scipy.special.ndtri", "scipy.special.log_ndtr"}
LOOSE = {"lax.lgamma": 32, "lax.digamma": 8, "jnp.sinc": 16, "scipy.special.gammaln": 32, "scipy.special.digamma": 8, "jnp.i0": 8,
         "scipy.special.ndtri": 16, "scipy.special.log_ndtr": 16, "lax.erf_inv": 8, "scipy.special.erfinv": 8, "jnp.tan": 4,
         "jax.nn.mish": 4, "scipy.special.i0": 8, "scipy.special.i1": 8, "lax.bessel_i0e": 4, "lax.bessel_i1e": 4}

BINARY = {  # the domains of both operands
    "jnp.add": "any any", "jnp.subtract": "any any", "jnp.multiply": "any any", "jnp.divide": "any pos",
    "jnp.floor_divide": "any pos", "jnp.remainder": "any pos", "jnp.fmod": "any pos", "jnp.power": "pos any",
    "jnp.float_power": "pos any", "jnp.maximum": "any any", "jnp.minimum": "any any", "jnp.fmax": "any any",
    "jnp.fmin": "any any", "jnp.arctan2": "any pos", "jnp.hypot": "any pos", "jnp.logaddexp": "any any",
    "jnp.logaddexp2": "any any", "jnp.copysign": "any any", "jnp.heaviside": "any any", "jnp.equal": "ties ties",
    "jnp.not_equal": "ties ties", "jnp.less": "ties ties", "jnp.less_equal": "ties ties", "jnp.greater": "ties ties",
    "jnp.greater_equal": "ties ties", "jnp.logical_and": "ties ties", "jnp.logical_or": "ties ties",
    "jnp.logical_xor": "ties ties", "scipy.special.xlogy": "pos pos", "scipy.special.xlog1py": "pos pos",
    "scipy.special.betaln": "pos pos", "scipy.special.rel_entr": "pos pos", "scipy.special.kl_div": "pos pos",
}
BINARY_TIES = ["jnp.maximum", "jnp.minimum"]
BINARY_INTEGER = ["jnp.add", "jnp.subtract", "jnp.multiply", "jnp.divide", "jnp.floor_divide", "jnp.remainder", "jnp.maximum",
                  "jnp.minimum", "jnp.equal", "jnp.less", "jnp.greater_equal", "jnp.bitwise_and", "jnp.bitwise_or",
                  "jnp.bitwise_xor", "jnp.logical_and", "jnp.gcd", "jnp.lcm", "jnp.power"]
SHIFTS = ["jnp.left_shift", "jnp.right_shift"]
BINARY_BOOL = ["jnp.add", "jnp.multiply", "jnp.maximum", "jnp.minimum", "jnp.equal", "jnp.less", "jnp.bitwise_and",
               "jnp.bitwise_or", "jnp.bitwise_xor", "jnp.logical_and", "jnp.logical_or", "jnp.logical_xor"]
PAIRS = [((), ()), ((3,), ()), ((2, 3), (3,)), ((2, 1), (1, 3)), ((0, 3), (3,)), ((2, 1, 3), (4, 1)),
         ((1,), (5,)), ((6, 7), (6, 7)), ((2, 3, 4), (3, 1))]
MIXED = [("f32", "bf16"), ("i32", "f32"), ("f16", "bf16"), ("u8", "f16"), ("bool", "f32"), ("f64", "f32"), ("i64", "f32")]


def function(name):
    """The function of this name."""
    at = {"jnp": jnp, "lax": lax, "jax": jax, "scipy": jax.scipy}
    parts = name.split(".")
    found = at[parts[0]]
    for part in parts[1:]:
        found = getattr(found, part)
    return found


def add_unary(s):
    flat = {"jnp.sign", "jnp.floor", "jnp.ceil", "jnp.rint", "jnp.trunc"}
    for name, domain in UNARY.items():
        f, loose = function(name), LOOSE.get(name, 2)
        types = REALS if name in REAL_ONLY else FLOATS
        s.each(name, f, types, domain=domain, tolerance=loose, gradient=name not in flat)
        if name in SPECIAL:
            s.each(name, f, types, shapes=[(9,)], domain="special", gradient=False, tolerance=loose)
    for name in ("jnp.sin", "jnp.cos", "jnp.tan"):
        s.each(name, function(name), REALS, shapes=[(40,)], domain="huge", gradient=False, tolerance=4)
    for name in UNARY_INTEGER:
        s.each(name, function(name), INTEGERS, shapes=[(), (0,), (7,), (3, 5)],
               domain="pos" if name == "jnp.sqrt" else "any", gradient=False)
    for name in ("jnp.abs", "jnp.negative", "jnp.square", "jnp.sign"):
        s.each(name, function(name), INTEGERS, shapes=[(9,)], domain="extreme", gradient=False)
    for name in PREDICATES:
        s.each(name, function(name), FLOATS, shapes=[(9,), ()], domain="special", gradient=False)
    s.each("jax.nn.gelu", lambda x, approximate: jax.nn.gelu(x, approximate=approximate), FLOATS, approximate=False,
           tolerance=4)
    for digits in (0, 1, 2):
        s.each("jnp.round", lambda x, decimals: jnp.round(x, decimals), REALS, gradient=False, decimals=digits)
    s.each("jnp.logical_not", jnp.logical_not, ["bool"], gradient=False)
    s.each("jnp.invert", jnp.invert, ["bool"], gradient=False)


def add_complex(s):
    for name in ("jnp.negative", "jnp.conj", "jnp.real", "jnp.imag", "jnp.abs", "jnp.angle", "jnp.exp", "jnp.log", "jnp.sqrt",
                 "jnp.sin", "jnp.cos", "jnp.tanh", "jnp.square", "jnp.reciprocal"):
        s.each(name, function(name), COMPLEX, gradient=False, tolerance=8)
    for name in ("jnp.add", "jnp.subtract", "jnp.multiply", "jnp.divide", "jnp.equal", "jnp.not_equal"):
        for dtype, (a, b) in itertools.product(COMPLEX, PAIRS):
            s.add(name, [Input(dtype, a), Input(dtype, b, salt=1)], function(name), gradient=False, tolerance=4)


def add_binary(s):
    flat = {"jnp.floor_divide", "jnp.heaviside"}
    for name, domains in BINARY.items():
        f, (left, right) = function(name), domains.split()
        loose = 32 if name == "scipy.special.betaln" else 8  # a difference of large numbers
        for dtype, (a, b) in itertools.product(FLOATS, PAIRS):
            s.add(name, [Input(dtype, a, left), Input(dtype, b, right, salt=1)], f, gradient=name not in flat,
                  tolerance=loose)
        for dtype in REALS:  # every pair of the nine special values
            s.add(name, [Input(dtype, (9, 1), "special"), Input(dtype, (9,), "special")], f, gradient=False,
                  tolerance=loose)
        for (a, b), shape in itertools.product(MIXED, ((3,), (2, 3))):
            s.add(name, [Input(a, shape, "pos"), Input(b, (3,), "pos", 1)], f, gradient=False, tolerance=loose)
    for name, dtype in itertools.product(BINARY_TIES, FLOATS):
        s.add(name, [Input(dtype, (5, 5), "ties"), Input(dtype, (5, 5), "ties", salt=1)], function(name))
    for name, dtype, (a, b) in itertools.product(BINARY_INTEGER, INTEGERS, PAIRS[1:5] + PAIRS[7:8]):
        if name == "jnp.power" and dtype in SIGNED:
            continue
        s.add(name, [Input(dtype, a), Input(dtype, b, "pos", salt=1)], function(name), gradient=False)
    for name, dtype in itertools.product(("jnp.add", "jnp.subtract", "jnp.multiply"), INTEGERS):
        s.add(name, [Input(dtype, (9,), "extreme"), Input(dtype, (9,), "extreme", salt=1)], function(name), gradient=False)
    for name, dtype in itertools.product(SHIFTS, INTEGERS):
        s.add(name, [Input(dtype, (7,)), Input(dtype, (7,), "index(6)", salt=1)], function(name), gradient=False)
    for name, (a, b) in itertools.product(BINARY_BOOL, PAIRS):
        s.add(name, [Input("bool", a), Input("bool", b, salt=1)], function(name), gradient=False)


def add_promotion(s):
    types = ["bool", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "bf16", "f16", "f32", "f64", "c64", "c128"]
    for name, a, b in itertools.product(("jnp.add", "jnp.multiply"), types, types):
        s.add(name, [Input(a, (3,), "pos" if a in INTEGERS else "any"), Input(b, (3,), "pos" if b in INTEGERS else "any", 1)],
              function(name), gradient=False, tolerance=2)
    for dtype, number in itertools.product(types, (2, 2.5, True)):
        s.add("add number", [Input(dtype, (3,), "pos" if dtype in INTEGERS else "any")], lambda x, number: x + number,
              gradient=False, number=number)
        s.add("multiply number", [Input(dtype, (3,), "pos" if dtype in INTEGERS else "any")], lambda x, number: number * x,
              gradient=False, number=number)
    for a, b in itertools.product(types, types):
        if a.startswith("c") and not b.startswith("c"):
            continue
        domain = "pos" if a in FLOATS and b.startswith("u") else "any"
        s.add("astype", [Input(a, (7,), domain)], lambda x, dtype: x.astype(DTYPES[dtype]), gradient=False, dtype=b)


def add_other(s):
    for dtype in ALL:
        for shapes in (((3,), (3,), (3,)), ((2, 1), (3,), ()), ((), (2, 2), (2, 1))):
            c, a, b = shapes
            s.add("jnp.where", [Input("bool", c), Input(dtype, a), Input(dtype, b, salt=1)], jnp.where,
                  gradient=dtype in FLOATS)
    for dtype in FLOATS + ["i32", "u8", "i64"]:
        number = 1 if dtype in INTEGERS else 0.75
        for low, high in ((None, number), (-number if dtype != "u8" else 0, None), (0, number)):
            s.each("jnp.clip", lambda x, min, max: jnp.clip(x, min, max), [dtype], shapes=[(), (7,), (3, 5), (0,)],
                   gradient=dtype in FLOATS, min=low, max=high)
    for dtype in FLOATS + ["i32"]:
        s.add("lax.select_n", [Input("i32", (3, 5), "index(3)")] + [Input(dtype, (3, 5), salt=k) for k in range(3)],
              lambda which, *rest: lax.select_n(which, *rest), gradient=dtype in FLOATS)
    for dtype in REALS:
        s.add("jnp.nextafter", [Input(dtype, (7,)), Input(dtype, (7,), salt=1)], jnp.nextafter, gradient=False)
        s.add("jnp.ldexp", [Input(dtype, (7,)), Input("i32", (7,), salt=1)], jnp.ldexp, gradient=False)
        s.add("jnp.isclose", [Input(dtype, (9, 1), "special"), Input(dtype, (9,), "special")], jnp.isclose, gradient=False)
        s.add("jnp.isclose", [Input(dtype, (9, 1), "special"), Input(dtype, (9,), "special")],
              lambda x, y, equal_nan: jnp.isclose(x, y, equal_nan=equal_nan), gradient=False, equal_nan=True)
        for order in (1, 2, 3):
            s.add("scipy.special.multigammaln", [Input(dtype, (4,), "ge1")],
                  lambda x, d: jax.scipy.special.multigammaln(x, d), tolerance=16, d=order)
        s.add("scipy.special.gammainc", [Input(dtype, (7,), "pos"), Input(dtype, (7,), "pos", 1)],
              jax.scipy.special.gammainc, gradient=False, tolerance=32)
        s.add("scipy.special.gammaincc", [Input(dtype, (7,), "pos"), Input(dtype, (7,), "pos", 1)],
              jax.scipy.special.gammaincc, gradient=False, tolerance=32)
        s.add("scipy.special.polygamma", [Input("i32", (3,), "values([1, 2, 3])"), Input(dtype, (3,), "pos")],
              jax.scipy.special.polygamma, gradient=False, tolerance=64)
        s.add("scipy.special.zeta", [Input(dtype, (5,), "ge1"), Input(dtype, (5,), "pos")], jax.scipy.special.zeta,
              gradient=False, tolerance=64)


def add(s):
    add_unary(s)
    add_complex(s)
    add_binary(s)
    add_promotion(s)
    add_other(s)
