"""Rearranging, creating and indexing arrays."""
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from case import ALL, DTYPES, FLOATS, REALS, Input
from math_cases import function

TYPES = ["bool", "i32", "u8", "i64", "f32", "f64", "bf16", "c64", "i16", "f16", "u32", "i8"]


def is_float(dtype):
    return dtype in FLOATS


def one(s, name, of, call=None, dtypes=TYPES, domain="any", **attrs):
    """The function of one array of the shape `of`, for every type."""
    f = call or function(name)
    for dtype in dtypes:
        s.add(name, [Input(dtype, of, domain)], f, gradient=is_float(dtype), **attrs)


def many(s, name, shapes, call, dtypes=TYPES, **attrs):
    for dtype in dtypes:
        s.add(name, [Input(dtype, shape, salt=k) for k, shape in enumerate(shapes)], call, gradient=is_float(dtype), **attrs)


def add_rearranging(s):
    for shape, new in (((6,), [2, 3]), ((2, 3, 4), [4, -1]), ((2, 0, 3), [0, 5]), ((), [1, 1]), ((1,), [])):
        one(s, "jnp.reshape", shape, lambda x, shape: jnp.reshape(x, shape), shape=new)
    for shape, order in (((3, 5), None), ((2, 3, 4), None), ((2, 3, 4), [1, 2, 0]), ((2, 0, 3), [2, 0, 1]), ((7,), None)):
        one(s, "jnp.transpose", shape, lambda x, axes: jnp.transpose(x, axes), axes=order)
    for a, b in ((0, 2), (-1, 1)):
        one(s, "jnp.swapaxes", (2, 3, 4), lambda x, a, b: jnp.swapaxes(x, a, b), a=a, b=b)
        one(s, "jnp.moveaxis", (2, 3, 4), lambda x, a, b: jnp.moveaxis(x, a, b), a=a, b=b)
    for a in (0, 1, -1):
        one(s, "jnp.expand_dims", (3, 5), lambda x, axis: jnp.expand_dims(x, axis), axis=a)
    one(s, "jnp.squeeze", (1, 3, 1), lambda x, axis: jnp.squeeze(x, axis), axis=None)
    one(s, "jnp.squeeze", (1, 3, 1), lambda x, axis: jnp.squeeze(x, axis), axis=-1)
    one(s, "jnp.ravel", (2, 3, 4))
    one(s, "jnp.ravel", ())
    for shape, new in (((3,), [2, 3]), ((), [2, 2]), ((2, 1), [4, 2, 3]), ((1,), [0])):
        one(s, "jnp.broadcast_to", shape, lambda x, shape: jnp.broadcast_to(x, shape), shape=new)
    for a in (0, 1, -1):
        many(s, "jnp.concatenate", [(2, 3), (2, 3), (2, 3)], lambda *xs, axis: jnp.concatenate(xs, axis), axis=a)
        many(s, "jnp.stack", [(2, 3), (2, 3)], lambda *xs, axis: jnp.stack(xs, axis), axis=a)
    many(s, "jnp.concatenate", [(2, 3), (0, 3)], lambda *xs, axis: jnp.concatenate(xs, axis), axis=0)
    for name in ("jnp.hstack", "jnp.vstack", "jnp.dstack", "jnp.column_stack"):
        many(s, name, [(3, 2), (3, 2)], lambda *xs, f=function(name): f(xs))
        many(s, name, [(3,), (3,)], lambda *xs, f=function(name): f(xs))
    one(s, "jnp.split", (6, 2), lambda x, n, axis: jnp.split(x, n, axis), n=3, axis=0)
    one(s, "jnp.array_split", (7, 2), lambda x, n, axis: jnp.array_split(x, n, axis), n=3, axis=0)
    for reps in ([2], [2, 3], [2, 1, 2]):
        one(s, "jnp.tile", (3, 2), lambda x, reps: jnp.tile(x, reps), reps=reps)
    for repeats, a in ((2, 0), (3, -1), (2, None), (0, 0)):
        one(s, "jnp.repeat", (3, 2), lambda x, repeats, axis: jnp.repeat(x, repeats, axis), repeats=repeats, axis=a)
    for a in (None, 0, -1, [0, 1]):
        one(s, "jnp.flip", (3, 5), lambda x, axis: jnp.flip(x, tuple(axis) if isinstance(axis, list) else axis), axis=a)
    one(s, "jnp.fliplr", (3, 5))
    one(s, "jnp.flipud", (3, 5))
    for k in (0, 1, 2, 3, -1):
        one(s, "jnp.rot90", (3, 5), lambda x, k: jnp.rot90(x, k), k=k)
    for shift, a in ((2, None), (-1, 0), (7, -1)):
        one(s, "jnp.roll", (3, 5), lambda x, shift, axis: jnp.roll(x, shift, axis), shift=shift, axis=a)
    for k in (-2, 0, 1):
        for name in ("jnp.tril", "jnp.triu", "jnp.diagonal", "jnp.trace", "jnp.diag"):
            if name == "jnp.trace":
                one(s, name, (3, 5), lambda x, k: jnp.trace(x, k), dtypes=["i32", "f32", "f64"], k=k)
            else:
                one(s, name, (3, 5), lambda x, k, f=function(name): f(x, k), k=k)
        one(s, "jnp.diag", (4,), lambda x, k: jnp.diag(x, k), k=k)
    modes = ("constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "minimum", "mean")
    for mode, width in itertools.product(modes, ([[1, 2]], [[0, 3]], [[4, 0]])):
        one(s, "jnp.pad", (5,), lambda x, width, mode: jnp.pad(x, width, mode=mode), dtypes=["f32", "f64", "i32"],
            width=width, mode=mode)
    for mode in modes[:5]:
        one(s, "jnp.pad", (3, 4), lambda x, width, mode: jnp.pad(x, width, mode=mode), dtypes=["f32", "i32", "bool", "bf16"],
            width=[[1, 1], [2, 0]], mode=mode)
    for config in ([[1, 1, 0], [0, 0, 0]], [[0, 2, 1], [-1, 0, 0]], [[-1, -1, 0], [3, 0, 2]]):
        for dtype in TYPES:
            s.add("lax.pad", [Input(dtype, (3, 4)), Input(dtype, ())], lambda x, v, config: lax.pad(x, v, [tuple(c) for c in config]),
                  gradient=is_float(dtype), config=config)
    many(s, "jnp.kron", [(2, 3), (3, 2)], jnp.kron, dtypes=["i32", "f32", "f64"])
    many(s, "jnp.outer", [(4,), (3,)], jnp.outer, dtypes=["i32", "f32", "f64", "bf16"])
    many(s, "jnp.cross", [(4, 3), (4, 3)], jnp.cross, dtypes=["i32", "f32", "f64"])
    for indexing in ("xy", "ij"):
        many(s, "jnp.meshgrid", [(3,), (4,)], lambda *xs, indexing: jnp.meshgrid(*xs, indexing=indexing), indexing=indexing)
    for mode in ("full", "same", "valid"):
        for name, lengths in itertools.product(("jnp.convolve", "jnp.correlate"), ([7, 3], [3, 7], [4, 4], [5, 1])):
            many(s, name, [(lengths[0],), (lengths[1],)], lambda a, b, mode, f=function(name): f(a, b, mode=mode),
                 dtypes=["f32", "f64", "i32"], mode=mode, tolerance=4)
    one(s, "jnp.gradient", (5,), dtypes=REALS)
    one(s, "jnp.vander", (4,), lambda x, n, increasing: jnp.vander(x, n, increasing), dtypes=REALS + ["i32"], n=3,
        increasing=False)
    one(s, "jnp.vander", (4,), lambda x, n, increasing: jnp.vander(x, n, increasing), dtypes=REALS + ["i32"], n=4,
        increasing=True)
    one(s, "jnp.unwrap", (9,), dtypes=REALS)
    one(s, "jnp.ediff1d", (7,), dtypes=REALS + ["i32"])
    many(s, "jnp.polyval", [(4,), (3, 5)], jnp.polyval, dtypes=REALS, tolerance=4)
    many(s, "jnp.append", [(3, 2), (1, 2)], lambda a, b, axis: jnp.append(a, b, axis), axis=0)


def add_creating(s):
    for args in ((0, 5, 1), (2, 11, 3), (5, 0, -2), (3, 3, 1)):
        s.add("jnp.arange", [], lambda start, stop, step: jnp.arange(start, stop, step, dtype=jnp.int32), gradient=False,
              start=args[0], stop=args[1], step=args[2])
    for n, dtype, endpoint in itertools.product((0, 1, 5, 11), ("f32", "f64"), (True, False)):
        s.add("jnp.linspace", [], lambda start, stop, n, endpoint, dtype: jnp.linspace(start, stop, n, endpoint=endpoint,
              dtype=DTYPES[dtype]), gradient=False, start=-1.5, stop=2.0, n=n, endpoint=endpoint, dtype=dtype, tolerance=2)
    for n, dtype in itertools.product((1, 5), ("f32", "f64")):
        s.add("jnp.logspace", [], lambda start, stop, n, dtype: jnp.logspace(start, stop, n, dtype=DTYPES[dtype]),
              gradient=False, start=-1.0, stop=2.0, n=n, dtype=dtype, tolerance=16)
        s.add("jnp.geomspace", [], lambda start, stop, n, dtype: jnp.geomspace(start, stop, n, dtype=DTYPES[dtype]),
              gradient=False, start=0.5, stop=8.0, n=n, dtype=dtype, tolerance=16)
    for n, m, k, dtype in itertools.product((3,), (3, 5), (-1, 0, 2), ("f32", "i32", "bool")):
        s.add("jnp.eye", [], lambda n, m, k, dtype: jnp.eye(n, m, k, dtype=DTYPES[dtype]), gradient=False, n=n, m=m, k=k,
              dtype=dtype)
        s.add("jnp.tri", [], lambda n, m, k, dtype: jnp.tri(n, m, k, dtype=DTYPES[dtype]), gradient=False, n=n, m=m, k=k,
              dtype=dtype)
    for classes, a in itertools.product((3, 5), (-1, 0)):
        s.add("jax.nn.one_hot", [Input("i32", (4,), "any")],
              lambda x, n, axis: jax.nn.one_hot(x, n, axis=axis, dtype=jnp.float32), gradient=False, n=classes, axis=a)


# As NumPy writes it; the name is what the C++ side looks up.
INDEX = {
    "x[0]": lambda x: x[0], "x[-1]": lambda x: x[-1], "x[:, 1]": lambda x: x[:, 1], "x[..., -1]": lambda x: x[..., -1],
    "x[:, -1, 0]": lambda x: x[:, -1, 0], "x[1:]": lambda x: x[1:], "x[:-1]": lambda x: x[:-1], "x[..., ::2]": lambda x: x[..., ::2],
    "x[..., ::-1]": lambda x: x[..., ::-1], "x[..., 3:0:-2]": lambda x: x[..., 3:0:-2], "x[None]": lambda x: x[None],
    "x[:, None, 1:3]": lambda x: x[:, None, 1:3], "x[5:2]": lambda x: x[5:2], "x[-100:100]": lambda x: x[-100:100],
    "x[1, ..., 0]": lambda x: x[1, ..., 0], "x[0, 1, 2]": lambda x: x[0, 1, 2],
}
ADVANCED = {
    "x[i]": lambda x, i, j: x[i], "x[:, i]": lambda x, i, j: x[:, i], "x[i, j]": lambda x, i, j: x[i, j],
    "x[i, :, j]": lambda x, i, j: x[i, :, j], "x[:, i, j]": lambda x, i, j: x[:, i, j], "x[i, 1:]": lambda x, i, j: x[i, 1:],
    "x[i[:, None], j]": lambda x, i, j: x[i[:, None], j], "x[0, i]": lambda x, i, j: x[0, i],
    "x[i, None, j]": lambda x, i, j: x[i, None, j],
}


def add_indexing(s):
    for (text, f), dtype in itertools.product(INDEX.items(), TYPES):
        s.add("index " + text, [Input(dtype, (2, 3, 4))], f, gradient=is_float(dtype))
    for (text, f), dtype in itertools.product(ADVANCED.items(), TYPES):
        for low in ("index(2)", "any"):  # inside, and also negative and outside
            s.add("index " + text, [Input(dtype, (3, 3, 4)), Input("i32", (5,), low), Input("i32", (5,), low, 1)], f,
                  gradient=is_float(dtype))
    for how in ("set", "add", "multiply", "min", "max"):
        for dtype in TYPES[1:7] + ["i16", "f16", "u32"]:
            def update(x, i, v, how=how):
                return getattr(x.at[i], how)(v)
            unique = "values([3, 0, 2])"
            s.add(f"x.at[i].{how}", [Input(dtype, (5, 2)), Input("i32", (3,), unique), Input(dtype, (3, 2), salt=1)], update,
                  gradient=is_float(dtype) and how in ("set", "add"))
            if how != "set":
                s.add(f"x.at[i].{how}", [Input(dtype, (5, 2)), Input("i32", (6,), "index(5)"), Input(dtype, (6, 2), salt=1)],
                      update, gradient=is_float(dtype) and how == "add")
            s.add(f"x.at[i].{how}", [Input(dtype, (5, 2)), Input("i32", (4,), "values([7, -1, 1, -9])"),
                                     Input(dtype, (4, 2), salt=1)], update, gradient=False)
            s.add(f"x.at[1:4, 0].{how}", [Input(dtype, (5, 2)), Input(dtype, (), salt=1)],
                  lambda x, v, how=how: getattr(x.at[1:4, 0], how)(v), gradient=is_float(dtype) and how in ("set", "add"))
    for mode, dtype in itertools.product(("clip", "fill"), TYPES[:7]):
        s.add("x.at[i].get", [Input(dtype, (5, 2)), Input("i32", (4,), "values([7, -1, 1, -9])")],
              lambda x, i, mode: x.at[i].get(mode=mode), gradient=False, mode=mode)
    for dtype in TYPES:
        s.add("jnp.take_along_axis", [Input(dtype, (3, 5)), Input("i32", (3, 2), "index(5)")],
              lambda x, i, axis: jnp.take_along_axis(x, i, axis), gradient=is_float(dtype), axis=1)
        s.add("jnp.take", [Input(dtype, (3, 5)), Input("i32", (2, 2), "index(3)")], lambda x, i, axis: jnp.take(x, i, axis),
              gradient=is_float(dtype), axis=0)
        s.add("lax.dynamic_slice", [Input(dtype, (3, 5)), Input("i32", (), "values([7])"), Input("i32", (), "values([-2])")],
              lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 2)), gradient=is_float(dtype))
        s.add("lax.dynamic_update_slice", [Input(dtype, (3, 5)), Input(dtype, (2, 2), salt=1), Input("i32", (), "values([9])")],
              lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i)), gradient=is_float(dtype))
    for dtype, size in itertools.product(("i32", "f32", "u8"), (3, 8)):
        s.add("jnp.unique", [Input(dtype, (12,), "ties")], lambda x, size: jnp.unique(x, size=size), gradient=False, size=size)
    for dtype, size in itertools.product(("bool", "i32", "f32"), (3, 20)):
        s.add("jnp.nonzero", [Input(dtype, (3, 5), "ties")],
              lambda x, size: tuple(a.astype(jnp.int32) for a in jnp.nonzero(x, size=size)), gradient=False, size=size)
        s.add("jnp.isin", [Input(dtype, (3, 5), "ties"), Input(dtype, (3,), "ties", 1)], jnp.isin, gradient=False)


def add(s):
    add_rearranging(s)
    add_creating(s)
    add_indexing(s)
