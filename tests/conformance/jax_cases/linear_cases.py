"""Products, linear algebra, Fourier transforms."""
import itertools

import jax
import jax.numpy as jnp
from jax import lax

from case import COMPLEX, FLOATS, REALS, Input
from math_cases import function


def symmetric(x):
    return (x + jnp.swapaxes(x, -1, -2)) / 2


def add_products(s):
    types = FLOATS + ["i32", "u8", "c64"]
    for dtype, (a, b) in itertools.product(types, [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)),
                                                   ((2, 2, 3), (3, 4)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((1, 1), (1, 1))]):
        for name in ("jnp.dot", "jnp.matmul"):
            s.add(name, [Input(dtype, a), Input(dtype, b, salt=1)], function(name), gradient=dtype in FLOATS, tolerance=8)
    for dtype, (a, b) in itertools.product(types, [((5, 2, 3), (5, 3, 4)), ((5, 1, 2, 3), (4, 3, 2)), ((3,), (5, 3, 2))]):
        s.add("jnp.matmul", [Input(dtype, a), Input(dtype, b, salt=1)], jnp.matmul, gradient=dtype in FLOATS, tolerance=8)
    for dtype in types:
        s.add("jnp.inner", [Input(dtype, (2, 3)), Input(dtype, (4, 3), salt=1)], jnp.inner, gradient=dtype in FLOATS, tolerance=8)
        if dtype != "c64":
            s.add("jnp.vdot", [Input(dtype, (2, 3)), Input(dtype, (2, 3), salt=1)], jnp.vdot, gradient=dtype in FLOATS, tolerance=8)
        for axes in (0, 1, 2):
            s.add("jnp.tensordot", [Input(dtype, (3, 3)), Input(dtype, (3, 3), salt=1)],
                  lambda a, b, axes: jnp.tensordot(a, b, axes), gradient=dtype in FLOATS, tolerance=8, axes=axes)
    for text, a, b in (("ij,jk->ik", (2, 3), (3, 4)), ("bij,bjk->bik", (2, 2, 3), (2, 3, 4)), ("ij,ij->", (2, 3), (2, 3)),
                       ("i,j->ij", (3,), (4,)), ("ij,kj->ki", (2, 3), (4, 3)), ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
                       ("ab,bc->ca", (2, 3), (3, 4)), ("abc,c->ab", (2, 2, 3), (3,)), ("ij,ji->i", (2, 3), (3, 2))):
        for dtype in types:
            s.add("jnp.einsum", [Input(dtype, a), Input(dtype, b, salt=1)], lambda a, b, text: jnp.einsum(text, a, b),
                  gradient=dtype in FLOATS, tolerance=8, text=text)
    for text, shape in (("ij->ji", (2, 3)), ("ij->i", (2, 3)), ("ii->i", (3, 3)), ("ii->", (3, 3)), ("ijk->kj", (2, 3, 4))):
        for dtype in types:
            s.add("jnp.einsum one", [Input(dtype, shape)], lambda a, text: jnp.einsum(text, a), gradient=dtype in FLOATS,
                  tolerance=4, text=text)


MATRICES = [(1, 1), (2, 2), (3, 3), (5, 5), (8, 8), (2, 3, 3), (2, 2, 2, 2)]


def add_linalg(s):
    for dtype, shape in itertools.product(REALS, MATRICES):
        spd, general = Input(dtype, shape, "spd"), Input(dtype, shape, "dominant")
        vector = Input(dtype, shape[:-1] + (2,), salt=1)
        big = 64
        s.add("jnp.linalg.cholesky", [spd], lambda a: jnp.linalg.cholesky(symmetric(a)), tolerance=big)
        s.add("jnp.linalg.inv", [general], jnp.linalg.inv, tolerance=big)
        s.add("jnp.linalg.det", [general], jnp.linalg.det, tolerance=big)
        s.add("jnp.linalg.slogdet", [general], jnp.linalg.slogdet, tolerance=big)
        s.add("jnp.linalg.solve", [general, vector], jnp.linalg.solve, tolerance=big)
        s.add("jnp.linalg.eigvalsh", [spd], lambda a: jnp.linalg.eigvalsh(symmetric(a)), tolerance=big)
        s.add("jnp.linalg.svdvals", [general], jnp.linalg.svdvals, tolerance=big)
        s.add("jnp.linalg.pinv", [general], jnp.linalg.pinv, tolerance=big)
        s.add("jax.scipy.linalg.expm", [general], jax.scipy.linalg.expm, tolerance=64 * big)
        s.add("|qr|", [general], lambda a: tuple(jnp.abs(x) for x in jnp.linalg.qr(a)), tolerance=big)
        s.add("qr rebuilds", [general], lambda a: jnp.matmul(*jnp.linalg.qr(a)), tolerance=big)
        s.add("eigh rebuilds", [spd], lambda a: (lambda w, v: (v * w[..., None, :]) @ jnp.swapaxes(v, -1, -2))(
            *jnp.linalg.eigh(symmetric(a))), tolerance=big)
        s.add("svd rebuilds", [general], lambda a: (lambda u, w, v: (u * w[..., None, :]) @ v)(
            *jnp.linalg.svd(a, full_matrices=False)), tolerance=big)
        for n in (-2, 0, 1, 3):
            s.add("jnp.linalg.matrix_power", [general], lambda a, n: jnp.linalg.matrix_power(a, n), tolerance=4 * big, n=n)
        for lower, trans, unit in itertools.product((False, True), (0, 1), (False, True)):
            s.add("jax.scipy.linalg.solve_triangular", [general, vector],
                  lambda a, b, lower, trans, unit_diagonal: jax.scipy.linalg.solve_triangular(
                      a, b, trans=trans, lower=lower, unit_diagonal=unit_diagonal), tolerance=4 * big, lower=lower, trans=trans,
                  unit_diagonal=unit)
        s.add("jax.scipy.linalg.cho_solve", [spd, vector],
              lambda a, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(symmetric(a)), True), b), tolerance=big)
        s.add("jax.scipy.linalg.lu_solve", [general, vector],
              lambda a, b: jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(a), b), tolerance=big)
        for order in ("fro", "nuc", 1, -1, 2, float("inf")):
            value = "inf" if order == float("inf") else order
            s.add("jnp.linalg.norm", [general], lambda a, ord: jnp.linalg.norm(
                a, jnp.inf if ord == "inf" else ord, axis=(-2, -1)), tolerance=big, ord=value)
    for dtype, shape in itertools.product(REALS, ((4, 3), (2, 5), (2, 4, 2))):
        a = Input(dtype, shape)
        s.add("jnp.linalg.pinv", [a], jnp.linalg.pinv, tolerance=256)
        s.add("jnp.linalg.svdvals", [a], jnp.linalg.svdvals, tolerance=64)
        s.add("qr rebuilds", [a], lambda a: jnp.matmul(*jnp.linalg.qr(a)), tolerance=64, gradient=shape[-2] >= shape[-1])
        if len(shape) == 2:
            s.add("jnp.linalg.lstsq", [a, Input(dtype, (shape[0], 2), salt=1)], lambda a, b: jnp.linalg.lstsq(a, b)[0],
                  tolerance=256, gradient=False)
            s.add("jnp.linalg.matrix_rank", [a], lambda a: jnp.linalg.matrix_rank(a).astype(jnp.int32), gradient=False)
            s.add("jnp.linalg.cond", [a], jnp.linalg.cond, tolerance=256, gradient=False)
    for dtype, order in itertools.product(REALS, (None, 1, 2, 3, 0, "inf", "-inf")):
        s.add("jnp.linalg.norm vector", [Input(dtype, (3, 5))], lambda x, ord: jnp.linalg.norm(
            x, {"inf": jnp.inf, "-inf": -jnp.inf}.get(ord, ord), axis=-1), tolerance=16, gradient=order not in (0,), ord=order)
    for dtype in REALS:
        s.add("jnp.linalg.multi_dot", [Input(dtype, (2, 3)), Input(dtype, (3, 4), salt=1), Input(dtype, (4, 2), salt=2)],
              lambda *xs: jnp.linalg.multi_dot(xs), tolerance=16)
        s.add("jax.scipy.linalg.block_diag", [Input(dtype, (2, 3)), Input(dtype, (1, 2), salt=1)], jax.scipy.linalg.block_diag)


def add_fft(s):
    names = {"c64": "c64", "c128": "c128", "f32": "c64", "f64": "c128"}
    for name in ("fft", "ifft"):
        f = getattr(jnp.fft, name)
        for dtype, shape in itertools.product(names, ((1,), (2,), (5,), (7,), (8,), (9,), (12,), (16,), (31,), (60,), (97,), (3, 6), (2, 3, 4))):
            for norm in ("backward", "ortho", "forward"):
                s.add("jnp.fft." + name, [Input(dtype, shape)], lambda x, norm, f=f: f(x, norm=norm), gradient=False,
                      tolerance=16, norm=norm)
            s.add("jnp.fft." + name + " axis", [Input(dtype, shape)], lambda x, axis, f=f: f(x, axis=axis), gradient=False,
                  tolerance=16, axis=0)
        for dtype, n in itertools.product(names, (4, 9)):
            s.add("jnp.fft." + name + " n", [Input(dtype, (3, 6))], lambda x, n, f=f: f(x, n), gradient=False, tolerance=16, n=n)
    for dtype, shape in itertools.product(REALS, ((1,), (7,), (8,), (3, 6), (2, 3, 5))):
        s.add("jnp.fft.rfft", [Input(dtype, shape)], jnp.fft.rfft, gradient=False, tolerance=16)
        s.add("|rfft|^2", [Input(dtype, shape)], lambda x: jnp.abs(jnp.fft.rfft(x)) ** 2, tolerance=64)
    for dtype, (shape, n) in itertools.product(COMPLEX, (((4,), 6), ((4,), 7), ((3, 5), 8), ((2,), 2))):
        s.add("jnp.fft.irfft", [Input(dtype, shape)], lambda x, n: jnp.fft.irfft(x, n), gradient=False, tolerance=16, n=n)
    for name in ("fft2", "ifft2", "fftn", "ifftn"):
        f = getattr(jnp.fft, name)
        for dtype, shape in itertools.product(names, ((3, 4), (2, 5, 3))):
            s.add("jnp.fft." + name, [Input(dtype, shape)], f, gradient=False, tolerance=16)
    for name in ("rfft2", "rfftn"):
        for dtype, shape in itertools.product(REALS, ((3, 4), (2, 5, 3))):
            s.add("jnp.fft." + name, [Input(dtype, shape)], getattr(jnp.fft, name), gradient=False, tolerance=16)
    for name in ("irfft2", "irfftn"):
        for dtype, shape in itertools.product(COMPLEX, ((3, 4), (2, 5, 3))):
            s.add("jnp.fft." + name, [Input(dtype, shape)], getattr(jnp.fft, name), gradient=False, tolerance=16)
    for name, shape in itertools.product(("fftshift", "ifftshift"), ((7,), (8,), (3, 4))):
        s.add("jnp.fft." + name, [Input("f32", shape)], getattr(jnp.fft, name))
    for n in (1, 4, 7):
        s.add("jnp.fft.fftfreq", [], lambda n, d: jnp.fft.fftfreq(n, d).astype(jnp.float32), gradient=False, n=n, d=0.5)
        s.add("jnp.fft.rfftfreq", [], lambda n, d: jnp.fft.rfftfreq(n, d).astype(jnp.float32), gradient=False, n=n, d=0.5)


def add(s):
    add_products(s)
    add_linalg(s)
    add_fft(s)
