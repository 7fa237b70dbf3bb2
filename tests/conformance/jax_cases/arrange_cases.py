"""What the other families leave out: more ways to rearrange, select, count and draw."""
import itertools

import jax
import jax.numpy as jnp
from jax import random

from case import DTYPES, FLOATS, REALS, Input
from math_cases import function
from random_cases import draw, key
from shape_cases import is_float, many, one

SOME = ["f32", "f64", "i32", "bf16", "bool", "c64"]
NUMBERS = ["f32", "f64", "i32", "u8"]


def add_rearranging(s):
    for name, shape in itertools.product(("atleast_1d", "atleast_2d", "atleast_3d"), ((), (3,), (2, 3), (2, 3, 4))):
        one(s, "jnp." + name, shape, dtypes=SOME)
    for axis, start in ((0, 2), (2, 0), (-1, 1), (1, 3)):
        one(s, "jnp.rollaxis", (2, 3, 4), lambda x, axis, start: jnp.rollaxis(x, axis, start), dtypes=SOME, axis=axis, start=start)
    for shape in ([7], [2, 2], [3, 0], [4, 5]):
        one(s, "jnp.resize", (2, 3), lambda x, shape: jnp.resize(x, tuple(shape)), dtypes=SOME, shape=shape)
    for k, axis in ((0, 0), (2, 1), (-1, 0), (3, 1)):
        one(s, "jnp.delete", (3, 5), lambda x, k, axis: jnp.delete(x, k, axis), dtypes=SOME, k=k, axis=axis)
        for dtype in SOME:
            s.add("jnp.insert", [Input(dtype, (3, 5)), Input(dtype, (), salt=1)], lambda x, y, k, axis: jnp.insert(x, k, y, axis),
                  gradient=is_float(dtype), k=k, axis=axis)
    one(s, "jnp.hsplit", (2, 6), lambda x, n: jnp.hsplit(x, n), dtypes=SOME, n=3)
    one(s, "jnp.vsplit", (6, 2), lambda x, n: jnp.vsplit(x, n), dtypes=SOME, n=2)
    one(s, "jnp.dsplit", (2, 3, 4), lambda x, n: jnp.dsplit(x, n), dtypes=SOME, n=2)
    many(s, "jnp.broadcast_arrays", [(2, 1), (3,), ()], lambda *xs: jnp.broadcast_arrays(*xs), dtypes=SOME)
    for k in (-1, 0, 2):
        one(s, "jnp.diagflat", (2, 2), lambda x, k: jnp.diagflat(x, k), dtypes=SOME, k=k)
    for shape, dtype in itertools.product(((3, 3), (2, 4), (5, 2)), SOME):
        s.add("jnp.fill_diagonal", [Input(dtype, shape), Input(dtype, (), salt=1)],
              lambda x, y: jnp.fill_diagonal(x, y, inplace=False), gradient=is_float(dtype))
        one(s, "jnp.matrix_transpose", shape, dtypes=[dtype])
    for dtype in SOME:
        s.add("jnp.put_along_axis", [Input(dtype, (3, 5)), Input("i32", (3, 1), "index(5)"), Input(dtype, (3, 1), salt=1)],
              lambda x, i, v, axis: jnp.put_along_axis(x, i, v, axis, inplace=False), gradient=is_float(dtype), axis=1)
    for dtype in SOME[:4]:
        s.add("jax.scipy.linalg.toeplitz", [Input(dtype, (4,)), Input(dtype, (3,), salt=1)], jax.scipy.linalg.toeplitz,
              gradient=is_float(dtype))


def add_selecting(s):
    for dtype in SOME:
        conditions = [Input("bool", (3, 4)), Input("bool", (4,), salt=1)]
        s.add("jnp.select", conditions + [Input(dtype, (3, 4)), Input(dtype, (), salt=1)],
              lambda c, d, x, y: jnp.select([c, d], [x, y]), gradient=is_float(dtype))
        s.add("jnp.choose", [Input("i32", (4,), "index(3)")] + [Input(dtype, (4,), salt=k) for k in range(3)],
              lambda i, *xs: jnp.choose(i, xs, mode="clip"), gradient=is_float(dtype))
    s.add("jnp.ravel_multi_index", [Input("i32", (6,), "index(3)"), Input("i32", (6,), "index(4)", 1)],
          lambda i, j, shape: jnp.ravel_multi_index((i, j), tuple(shape), mode="clip").astype(jnp.int32), gradient=False, shape=[3, 4])
    for shape in ([12], [3, 4], [2, 3, 2]):
        s.add("jnp.unravel_index", [Input("i32", (5,), "index(12)")],
              lambda i, shape: [a.astype(jnp.int32) for a in jnp.unravel_index(i, tuple(shape))], gradient=False, shape=shape)
    for n, k, m in ((3, 0, 3), (4, -1, 2), (2, 1, 5)):
        for name in ("tril_indices", "triu_indices"):
            s.add("jnp." + name, [], lambda n, k, m, f=getattr(jnp, name): [a.astype(jnp.int32) for a in f(n, k, m)],
                  gradient=False, n=n, k=k, m=m)
        s.add("jnp.diag_indices", [], lambda n, d: [a.astype(jnp.int32) for a in jnp.diag_indices(n, d)], gradient=False, n=n, d=2)
        s.add("jnp.indices", [], lambda shape: jnp.indices(tuple(shape), dtype=jnp.int32), gradient=False, shape=[n, m])
    for dtype, size in itertools.product(("bool", "i32", "f32"), (3, 20)):
        for name in ("flatnonzero", "argwhere"):
            s.add("jnp." + name, [Input(dtype, (3, 5), "ties")],
                  lambda x, size, f=getattr(jnp, name): f(x, size=size).astype(jnp.int32), gradient=False, size=size)
    for dtype, size in itertools.product(("i32", "f32", "u8"), (3, 9)):
        for name in ("union1d", "intersect1d", "setdiff1d", "setxor1d"):
            s.add("jnp." + name, [Input(dtype, (6,), "ties"), Input(dtype, (5,), "ties", 1)],
                  lambda a, b, size, f=getattr(jnp, name): f(a, b, size=size), gradient=False, size=size)


def add_numbers(s):
    for name, dtype in itertools.product(("divmod",), NUMBERS):
        s.add("jnp." + name, [Input(dtype, (3, 5)), Input(dtype, (5,), "pos", 1)], function("jnp." + name), gradient=False)
    for name in ("modf", "frexp", "fabs", "degrees", "radians"):
        one(s, "jnp." + name, (3, 5), dtypes=REALS, tolerance=4)
        one(s, "jnp." + name, (9,), dtypes=REALS, domain="special", tolerance=4)
    for name, dtype in itertools.product(("array_equal", "allclose", "array_equiv"), ("f32", "f64", "i32")):
        f = function("jnp." + name)
        s.add("jnp." + name, [Input(dtype, (3, 5)), Input(dtype, (3, 5))], f, gradient=False)
        s.add("jnp." + name, [Input(dtype, (3, 5)), Input(dtype, (3, 5), salt=1)], f, gradient=False)
    for name, dtype in itertools.product(("polyadd", "polysub", "polymul"), REALS):
        for a, b in (((4,), (4,)), ((2,), (5,)), ((1,), (3,))):
            s.add("jnp." + name, [Input(dtype, a), Input(dtype, b, salt=1)], function("jnp." + name), tolerance=4)
    for n in (1, 2):
        one(s, "jnp.polyder", (5,), lambda x, n: jnp.polyder(x, n), dtypes=REALS, n=n)
        one(s, "jnp.polyint", (4,), lambda x, n: jnp.polyint(x, n), dtypes=REALS, tolerance=4, n=n)
    for dtype, axis in itertools.product(REALS, (0, -1)):
        s.add("jnp.vecdot", [Input(dtype, (3, 3)), Input(dtype, (3, 3), salt=1)], lambda x, y, axis: jnp.vecdot(x, y, axis=axis),
              tolerance=4, axis=axis)
        s.add("jnp.nanpercentile", [Input(dtype, (6, 5), "special")], lambda x, q, axis: jnp.nanpercentile(x, q, axis=axis),
              gradient=False, tolerance=4, q=30.0, axis=axis)
    for dtype, domain in itertools.product(FLOATS, ("any", "ties")):
        one(s, "jax.nn.glu", (3, 6), lambda x, axis: jax.nn.glu(x, axis), dtypes=[dtype], domain=domain, tolerance=8, axis=-1)
        for name in ("sparse_plus", "sparse_sigmoid"):
            one(s, "jax.nn." + name, (3, 5), getattr(jax.nn, name), dtypes=[dtype], domain=domain, tolerance=8)
    for dtype, bins in itertools.product(("f32", "f64"), (4, 10)):
        s.add("jnp.histogram_bin_edges", [Input(dtype, (12,))], lambda x, bins: jnp.histogram_bin_edges(x, bins), gradient=False,
              tolerance=4, bins=bins)
    for name, domain in (("gamma", "pos"), ("factorial", "pos"), ("gammasgn", "any")):
        one(s, "scipy.special." + name, (3, 5), getattr(jax.scipy.special, name), dtypes=REALS, domain=domain, tolerance=64)
    for dtype in REALS:
        s.add("scipy.special.beta", [Input(dtype, (3, 5), "pos"), Input(dtype, (5,), "pos", 1)], jax.scipy.special.beta, tolerance=64)


def add_drawing(s):
    def call(f, *parameters):
        return lambda seed, shape, dtype: f(key(seed), *parameters, tuple(shape), DTYPES[dtype])

    for name, parameters in (("lognormal", (0.5,)), ("triangular", (-1.0, 0.5, 2.0)), ("wald", (1.5,)), ("loggamma", (2.5,)),
                             ("f", (3.0, 4.0)), ("generalized_normal", (1.5,))):
        draw(s, name, call(getattr(random, name), *parameters), types=("f32", "f64"), tolerance=64)
    draw(s, "geometric", call(random.geometric, 0.3), types=("i32",))
    draw(s, "binomial", call(random.binomial, 20.0, 0.3), types=("f32",))


def add(s):
    add_rearranging(s)
    add_selecting(s)
    add_numbers(s)
    add_drawing(s)
