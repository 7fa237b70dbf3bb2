"""Convolutions, windows, image resizing."""
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from case import FLOATS, REALS, Input

NUMBERS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}


def convolve(x, w, strides, padding, lhs_dilation, rhs_dilation, groups):
    if not isinstance(padding, str):
        padding = [tuple(p) for p in padding]
    return lax.conv_general_dilated(x, w, strides, padding, lhs_dilation, rhs_dilation, NUMBERS[x.ndim - 2],
                                    feature_group_count=groups)


def add_convolutions(s):
    rng = np.random.RandomState(7)
    for rank, count in ((1, 150), (2, 280), (3, 80)):
        for _ in range(count):
            groups = int(rng.choice([1, 1, 2, 3]))
            inputs, outputs = int(rng.randint(1, 4)), int(rng.randint(1, 4))
            kernel = [int(k) for k in rng.randint(1, 4, rank)]
            strides = [int(k) for k in rng.choice([1, 1, 2, 3], rank)]
            lhs = [int(k) for k in rng.choice([1, 1, 2], rank)]
            rhs = [int(k) for k in rng.choice([1, 1, 2, 3], rank)]
            pick = rng.randint(0, 4)
            pads = [[int(a) for a in rng.randint(-1, 3, 2)] for _ in range(rank)]
            padding = ["SAME", "VALID", pads, pads][pick]
            if padding in ("SAME", "VALID"):
                lhs = [1] * rank
            extents = [int(e) for e in rng.randint(4, 9 if rank < 3 else 6, rank)]
            spans = [(e - 1) * d + 1 for e, d in zip(extents, lhs)]
            if padding != "SAME":
                margins = pads if padding != "VALID" else [[0, 0]] * rank
                if any(sp + sum(p) < (k - 1) * r + 1 for sp, p, k, r in zip(spans, margins, kernel, rhs)):
                    continue
            batch = int(rng.choice([1, 2, 2, 0]))
            for dtype in (["f32", "f64", "bf16"] if rank < 3 else ["f32", "f64"]):
                s.add("lax.conv_general_dilated",
                      [Input(dtype, (batch, *extents, groups * inputs)), Input(dtype, (*kernel, inputs, groups * outputs), salt=1)],
                      convolve, tolerance=16, strides=strides, padding=padding, lhs_dilation=lhs, rhs_dilation=rhs, groups=groups)
    for rank, stride, size, padding, dtype in itertools.product((1, 2), (1, 2, 3), (1, 2, 3), ("SAME", "VALID"), REALS):
        extents, kernel = (5, 4)[:rank], (size,) * rank
        s.add("lax.conv_transpose", [Input(dtype, (2, *extents, 2)), Input(dtype, (*kernel, 2, 3), salt=1)],
              lambda x, w, strides, padding: lax.conv_transpose(x, w, strides, padding, dimension_numbers=NUMBERS[x.ndim - 2]),
              tolerance=16, strides=[stride] * rank, padding=padding)


def add_windows(s):
    combine = {"add": (lax.add, 0), "max": (lax.max, -jnp.inf), "min": (lax.min, jnp.inf), "mul": (lax.mul, 1)}
    for how, dtype in itertools.product(combine, ("f32", "f64", "bf16", "i32")):
        f, start = combine[how]
        for shape, window, strides, padding in (
                ((7,), [3], [1], "VALID"), ((7,), [3], [2], "SAME"), ((5, 6), [2, 3], [2, 1], "VALID"),
                ((5, 6), [2, 3], [1, 2], "SAME"), ((5, 6), [1, 4], [1, 1], [[0, 0], [2, 1]]), ((3, 4, 5), [2, 2, 2], [1, 2, 1], "VALID")):
            def call(x, window, strides, padding, f=f, start=start, how=how):
                if x.dtype == jnp.int32 and how in ("max", "min"):
                    start = np.iinfo(np.int32).min if how == "max" else np.iinfo(np.int32).max
                if not isinstance(padding, str):
                    padding = [tuple(p) for p in padding]
                return lax.reduce_window(x, np.array(start, x.dtype), f, window, strides, padding)
            s.add("lax.reduce_window " + how, [Input(dtype, shape)], call,
                  gradient=dtype in FLOATS and how in ("add", "max", "min"), tolerance=8, window=window, strides=strides,
                  padding=padding)


def add_resize(s):
    for method, shape, dtype in itertools.product(("nearest", "linear", "cubic"), ([3, 8], [7, 2], [5, 5]), REALS):
        for antialias in (True, False):
            s.add("jax.image.resize", [Input(dtype, (5, 4))],
                  lambda x, shape, method, antialias: jax.image.resize(x, shape, method, antialias=antialias), tolerance=16,
                  shape=shape, method=method, antialias=antialias)


def add(s):
    add_convolutions(s)
    add_windows(s)
    add_resize(s)
