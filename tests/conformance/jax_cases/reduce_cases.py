"""Reductions, cumulative functions, sorting, statistics."""
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from case import ALL, COMPLEX, FLOATS, INTEGERS, REALS, Input
from math_cases import function

AXES = {  # by shape: the axes that are reduced
    (): [None], (1,): [None, 0], (7,): [None, -1], (0,): [None, 0], (3, 5): [None, 0, 1, [0, 1]],
    (2, 0, 3): [None, 1, [0, 2]], (2, 3, 4): [None, 0, -1, [0, 2], [1, 2]], (33,): [None], (4, 1): [0, 1],
}
EMPTY_OK = {"jnp.sum", "jnp.prod", "jnp.any", "jnp.all", "jnp.nansum", "jnp.nanprod", "jnp.count_nonzero"}


def axis(value):
    return tuple(value) if isinstance(value, list) else value


def reduction(name):
    f = function(name)
    return lambda x, axis, keepdims=False: f(x, axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims)


def reduces_nothing(shape, axes):
    """Whether no element is reduced to each result."""
    dims = range(len(shape)) if axes is None else [axes] if isinstance(axes, int) else axes
    return any(shape[d] == 0 for d in dims)


def add_axes(s, name, dtypes, domain="any", gradient=True, tolerance=2.0, empty=False, **more):
    f = reduction(name)
    for dtype, (shape, choices) in itertools.product(dtypes, AXES.items()):
        for axes, keepdims in itertools.product(choices, (False, True)):
            if keepdims and axes is None and shape == ():
                continue
            if reduces_nothing(shape, axes) and not empty:
                continue
            attrs = dict(more, axis=axes)
            if keepdims:
                attrs["keepdims"] = True
            s.add(name, [Input(dtype, shape, domain)], f, gradient, tolerance, **attrs)


def add_reductions(s):
    for name in ("jnp.sum", "jnp.prod"):
        add_axes(s, name, FLOATS, empty=True, tolerance=4)
        add_axes(s, name, ["bool"] + INTEGERS, gradient=False, empty=True)
    add_axes(s, "jnp.sum", COMPLEX, gradient=False, empty=True, tolerance=4)
    add_axes(s, "jnp.mean", FLOATS, tolerance=4)
    add_axes(s, "jnp.mean", ["bool", "u8", "i32", "i64"], gradient=False)
    for name in ("jnp.max", "jnp.min"):
        add_axes(s, name, FLOATS)
        add_axes(s, name, ["f32"], domain="ties")
        add_axes(s, name, INTEGERS, gradient=False)
    for name in ("jnp.any", "jnp.all"):
        add_axes(s, name, ["bool", "i32", "f32"], domain="ties", gradient=False, empty=True)
    for name in ("jnp.var", "jnp.std"):
        add_axes(s, name, FLOATS, gradient=name == "jnp.var", tolerance=8)
    for shape in ((7,), (3, 5)):
        for name, dtype in itertools.product(("jnp.var", "jnp.std"), REALS):
            f = function(name)
            s.add(name, [Input(dtype, shape)], lambda x, axis, ddof, f=f: f(x, axis=axis, ddof=ddof), tolerance=8, axis=-1,
                  ddof=1)
    add_axes(s, "jnp.ptp", FLOATS)
    add_axes(s, "jnp.count_nonzero", ["bool", "i32", "f32"], domain="ties", gradient=False, empty=True)
    for name in ("jnp.nansum", "jnp.nanprod", "jnp.nanmean", "jnp.nanvar", "jnp.nanstd", "jnp.nanmax", "jnp.nanmin"):
        add_axes(s, name, FLOATS, gradient=False, empty=name in EMPTY_OK, tolerance=8)
        for dtype, shape in itertools.product(REALS, ((9,), (3, 6))):
            for axes in (None, 0):
                s.add(name, [Input(dtype, shape, "special")], reduction(name), gradient=False, tolerance=8, axis=axes)
    for name in ("jnp.sum", "jnp.max", "jnp.min", "jnp.mean", "jnp.prod"):
        for dtype in REALS:
            s.add(name, [Input(dtype, (9,), "special")], reduction(name), gradient=False, axis=None)
    add_axes(s, "scipy.special.logsumexp", FLOATS, tolerance=4)
    for name in ("jax.nn.softmax", "jax.nn.log_softmax"):
        for dtype, shape, a in itertools.product(FLOATS, ((7,), (3, 5), (2, 3, 4), (1,), (2, 0)), (-1, 0)):
            s.add(name, [Input(dtype, shape)], lambda x, axis, f=function(name): f(x, axis=axis), tolerance=4, axis=a)
    for dtype, shape, a in itertools.product(REALS, ((7, 2), (3, 5), (2, 3, 4)), (-1, 0)):
        s.add("jax.nn.standardize", [Input(dtype, shape)], lambda x, axis: jax.nn.standardize(x, axis=axis), tolerance=2048,
              axis=a)


def add_arg(s):
    for name in ("jnp.argmax", "jnp.argmin"):
        f = function(name)
        for dtype, (shape, axes) in itertools.product(FLOATS + ["i32", "u8", "bool"],
                                                      {(): [None], (7,): [None, 0], (3, 5): [None, 0, -1],
                                                       (2, 3, 4): [1, -1], (1,): [0]}.items()):
            for a in axes:
                s.add(name, [Input(dtype, shape, "ties")], lambda x, axis, f=f: f(x, axis=axis).astype(jnp.int32),
                      gradient=False, axis=a)
        s.add(name, [Input("f32", (9,), "special")], lambda x, axis, f=f: f(x, axis=axis).astype(jnp.int32), gradient=False,
              axis=0)
    for name, dtype in itertools.product(("jnp.nanargmax", "jnp.nanargmin"), REALS):
        f = function(name)
        s.add(name, [Input(dtype, (9,), "special")], lambda x, axis, f=f: f(x, axis=axis).astype(jnp.int32), gradient=False,
              axis=0)


def add_cumulative(s):
    shapes = {(7,): [0], (3, 5): [0, 1], (2, 0, 3): [1], (2, 3, 4): [0, 1, -1], (1,): [0], (33, 2): [0]}
    for name in ("jnp.cumsum", "jnp.cumprod"):
        f = function(name)
        for dtype, (shape, axes) in itertools.product(["bool"] + INTEGERS + FLOATS, shapes.items()):
            for a in axes:
                s.add(name, [Input(dtype, shape)], lambda x, axis, f=f: f(x, axis=axis), gradient=dtype in FLOATS,
                      tolerance=8, axis=a)
    for name in ("lax.cumsum", "lax.cumprod", "lax.cummax", "lax.cummin", "lax.cumlogsumexp"):
        f = function(name)
        for dtype, (shape, axes) in itertools.product(FLOATS, shapes.items()):
            for a, reverse in itertools.product(axes, (False, True)):
                s.add(name, [Input(dtype, shape)], lambda x, axis, reverse, f=f: f(x, axis=axis % x.ndim, reverse=reverse),
                      tolerance=8, axis=a, reverse=reverse)
    for dtype in REALS:
        for name in ("lax.cummax", "lax.cummin"):
            s.add(name, [Input(dtype, (9,), "special")], lambda x, axis, reverse, f=function(name): f(x, axis, reverse),
                  gradient=False, axis=0, reverse=False)
        for name in ("jnp.nancumsum", "jnp.nancumprod"):
            s.add(name, [Input(dtype, (9,), "special")], lambda x, axis, f=function(name): f(x, axis=axis), gradient=False,
                  axis=0)
    for n, dtype in itertools.product((1, 2), REALS):
        s.add("jnp.diff", [Input(dtype, (3, 5))], lambda x, n, axis: jnp.diff(x, n, axis), n=n, axis=-1)
        s.add("jnp.diff", [Input(dtype, (3, 5))], lambda x, n, axis: jnp.diff(x, n, axis), n=n, axis=0)


def add_sorting(s):
    shapes = {(7,): [0], (3, 5): [0, -1], (2, 0, 3): [1], (2, 3, 4): [1, -1], (1,): [0], (40,): [0], (5, 1): [0, 1]}
    for dtype, (shape, axes) in itertools.product(ALL, shapes.items()):
        for a, descending in itertools.product(axes, (False, True)):
            for domain in ("any", "ties"):
                s.add("jnp.sort", [Input(dtype, shape, domain)],
                      lambda x, axis, descending: jnp.sort(x, axis=axis, descending=descending),
                      gradient=dtype in FLOATS and domain == "any", axis=a, descending=descending)
                s.add("jnp.argsort", [Input(dtype, shape, domain)],
                      lambda x, axis, descending: jnp.argsort(x, axis=axis, descending=descending).astype(jnp.int32),
                      gradient=False, axis=a, descending=descending)
    for dtype, k in itertools.product(FLOATS + ["i32", "u8"], (1, 3, 5)):
        for domain in ("any", "ties"):
            s.add("lax.top_k", [Input(dtype, (3, 5), domain)], lambda x, k: lax.top_k(x, k),
                  gradient=dtype in FLOATS and domain == "any", k=k)
    for dtype in REALS:
        s.add("lax.top_k", [Input(dtype, (9,), "special")], lambda x, k: lax.top_k(x, k), gradient=False, k=6)
        for descending in (False, True):
            s.add("jnp.sort", [Input(dtype, (9,), "special")],
                  lambda x, axis, descending: jnp.sort(x, axis=axis, descending=descending), gradient=False, axis=0,
                  descending=descending)
            s.add("jnp.argsort", [Input(dtype, (9,), "special")],
                  lambda x, axis, descending: jnp.argsort(x, axis=axis, descending=descending).astype(jnp.int32),
                  gradient=False, axis=0, descending=descending)
        s.add("jnp.lexsort", [Input(dtype, (9,), "ties"), Input(dtype, (9,), "ties", 1)],
              lambda a, b: jnp.lexsort((a, b)).astype(jnp.int32), gradient=False)
        for k in (0, 3, 6):
            s.add("jnp.partition at k", [Input(dtype, (7,))], lambda x, k: jnp.partition(x, k)[k], gradient=False, k=k)
        for side in ("left", "right"):
            s.add("jnp.searchsorted", [Input(dtype, (6,), "values([-2, -1, 0, 0, 1, 3])"), Input(dtype, (3, 5), "ties")],
                  lambda a, v, side: jnp.searchsorted(a, v, side=side).astype(jnp.int32), gradient=False, side=side)


def add_statistics(s):
    methods = ("linear", "lower", "higher", "nearest", "midpoint")
    for dtype, shape, a in itertools.product(REALS, ((7,), (3, 5), (6, 2)), (None, 0, -1)):
        for keepdims in (False, True):
            s.add("jnp.median", [Input(dtype, shape)], reduction("jnp.median"), axis=a, keepdims=keepdims)
        for method, q in itertools.product(methods, (0.0, 0.3, 1.0)):
            s.add("jnp.quantile", [Input(dtype, shape)],
                  lambda x, q, axis, method: jnp.quantile(x, q, axis=axis, method=method), gradient=method == "linear",
                  tolerance=4, q=q, axis=a, method=method)
        s.add("jnp.percentile", [Input(dtype, shape)], lambda x, q, axis: jnp.percentile(x, q, axis=axis), tolerance=4,
              q=37.5, axis=a)
        s.add("jnp.average", [Input(dtype, shape), Input(dtype, shape, "pos", 1)],
              lambda x, w, axis: jnp.average(x, axis=axis, weights=w), tolerance=8, axis=a)
    for dtype in REALS:
        s.add("jnp.nanmedian", [Input(dtype, (9,), "values([3, nan, 1, 2, nan, 7, 5, 4, nan])")],
              lambda x, axis: jnp.nanmedian(x, axis=axis), gradient=False, axis=0)
        s.add("jnp.nanquantile", [Input(dtype, (9,), "values([3, nan, 1, 2, nan, 7, 5, 4, nan])")],
              lambda x, q, axis: jnp.nanquantile(x, q, axis=axis), gradient=False, q=0.3, axis=0)
        s.add("jnp.cov", [Input(dtype, (3, 5))], jnp.cov, tolerance=8)
        s.add("jnp.corrcoef", [Input(dtype, (3, 5))], jnp.corrcoef, tolerance=16)
        s.add("jnp.interp", [Input(dtype, (3, 5)), Input(dtype, (4,), "values([-2, -0.5, 0.5, 2])"), Input(dtype, (4,))],
              jnp.interp, gradient=False, tolerance=4)
        for bins in (1, 4, 10):
            s.add("jnp.histogram", [Input(dtype, (20,))],
                  lambda x, bins: tuple(a.astype(x.dtype) for a in jnp.histogram(x, bins)), gradient=False, tolerance=4,
                  bins=bins)
        s.add("jnp.trapezoid", [Input(dtype, (3, 5))], lambda y, dx: jnp.trapezoid(y, dx=dx), tolerance=4, dx=0.5)
        s.add("jnp.digitize", [Input(dtype, (7,)), Input(dtype, (4,), "values([-2, -0.5, 0.5, 2])")],
              lambda x, bins: jnp.digitize(x, bins).astype(jnp.int32), gradient=False)
    for length in (5, 10):
        s.add("jnp.bincount", [Input("i32", (12,), "index(8)")],
              lambda x, length: jnp.bincount(x, length=length).astype(jnp.int32), gradient=False, length=length)
        s.add("jnp.bincount weights", [Input("i32", (12,), "index(8)"), Input("f32", (12,))],
              lambda x, w, length: jnp.bincount(x, w, length=length), gradient=False, length=length, tolerance=4)
    for name in ("sum", "prod", "max", "min"):
        f = getattr(jax.ops, "segment_" + name)
        for dtype, count in itertools.product(REALS + ["i32", "bf16"], (4, 8)):
            s.add("jax.ops.segment_" + name, [Input(dtype, (9, 2)), Input("i32", (9,), "index(6)")],
                  lambda x, ids, num_segments, f=f: f(x, ids, num_segments),
                  gradient=dtype in FLOATS and name != "prod", tolerance=4,
                  num_segments=count)


def add(s):
    add_reductions(s)
    add_arg(s)
    add_cumulative(s)
    add_sorting(s)
    add_statistics(s)
