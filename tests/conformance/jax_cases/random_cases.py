"""Random numbers: the same bits where JAX's algorithm works element by element, values where it uses float functions."""
import itertools

import jax
import jax.numpy as jnp
from jax import random

from case import DTYPES, Input

SHAPES = [[], [5], [3, 4], [0]]


def key(seed):
    return random.key(seed)


def draw(s, name, call, types=("f32", "f64", "bf16"), shapes=SHAPES, tolerance=16, **attrs):
    for dtype, shape, seed in itertools.product(types, shapes, (0, 42, 1 << 31)):
        s.add("random." + name, [], call, gradient=False, tolerance=tolerance, seed=seed, shape=shape, dtype=dtype, **attrs)


def add(s):
    for name in ("uniform", "normal", "exponential", "laplace", "gumbel", "cauchy", "logistic", "rayleigh", "maxwell",
                 "double_sided_maxwell"):
        f = getattr(random, name)
        if name == "rayleigh":
            call = lambda seed, shape, dtype, f=f: f(key(seed), 1.5, shape, DTYPES[dtype])
        elif name == "double_sided_maxwell":
            call = lambda seed, shape, dtype, f=f: f(key(seed), 0.5, 2.0, shape, DTYPES[dtype])
        else:
            call = lambda seed, shape, dtype, f=f: f(key(seed), tuple(shape), DTYPES[dtype])
        draw(s, name, call, types=("f32", "f64") if name in ("rayleigh", "maxwell", "double_sided_maxwell") else ("f32", "f64", "bf16"))
    draw(s, "truncated_normal", lambda seed, shape, dtype: random.truncated_normal(key(seed), -1.5, 2.0, tuple(shape), DTYPES[dtype]),
         types=("f32", "f64"))
    draw(s, "pareto", lambda seed, shape, dtype: random.pareto(key(seed), 2.5, tuple(shape), DTYPES[dtype]), types=("f32", "f64"))
    draw(s, "weibull_min", lambda seed, shape, dtype: random.weibull_min(key(seed), 2.0, 1.5, tuple(shape), DTYPES[dtype]),
         types=("f32", "f64"))
    draw(s, "bernoulli", lambda seed, shape, dtype: random.bernoulli(key(seed), 0.3, tuple(shape)), types=("bool",))
    draw(s, "rademacher", lambda seed, shape, dtype: random.rademacher(key(seed), tuple(shape), DTYPES[dtype]), types=("i32", "f32"))
    for bounds in ((0, 10), (-5, 100), (3, 4)):
        draw(s, "randint", lambda seed, shape, dtype, low, high: random.randint(key(seed), tuple(shape), low, high, DTYPES[dtype]),
             types=("i32", "u8", "i64", "u32") if bounds[0] >= 0 else ("i32", "i8", "i64"), low=bounds[0], high=bounds[1])
    draw(s, "bits", lambda seed, shape, dtype: random.bits(key(seed), tuple(shape), DTYPES[dtype]), types=("u8", "u16", "u32", "u64"))
    for n in (5, 40):
        draw(s, "permutation", lambda seed, shape, dtype, n: random.permutation(key(seed), jnp.arange(n, dtype=jnp.int32)),
             types=("i32",), shapes=[[]], n=n)
        draw(s, "choice", lambda seed, shape, dtype, n: random.choice(key(seed), jnp.arange(n, dtype=jnp.int32), tuple(shape)),
             types=("i32",), n=n)
        draw(s, "choice without replacement",
             lambda seed, shape, dtype, n: random.choice(key(seed), jnp.arange(n, dtype=jnp.int32), tuple(shape), replace=False),
             types=("i32",), shapes=[[3]], n=n)
    for axis in (-1, 0):
        for seed in (0, 42):
            s.add("random.categorical", [Input("f32", (4, 3))],
                  lambda logits, seed, axis: random.categorical(key(seed), logits, axis=axis).astype(jnp.int32), gradient=False,
                  seed=seed, axis=axis)
    for seed, n in itertools.product((0, 42), (2, 5)):
        s.add("random.split", [], lambda seed, n: random.key_data(random.split(key(seed), n)), gradient=False, seed=seed, n=n)
        s.add("random.fold_in", [], lambda seed, n: random.key_data(random.fold_in(key(seed), n)), gradient=False, seed=seed, n=n)
    for seed in (0, 42):
        s.add("random.choice weights", [Input("f32", (5,), "values([0.1, 0.2, 0.3, 0.3, 0.1])")],
              lambda p, seed: random.choice(key(seed), jnp.arange(5, dtype=jnp.int32), (7,), p=p), gradient=False, seed=seed)
        s.add("random.multivariate_normal", [Input("f32", (3,)), Input("f32", (3, 3), "spd")],
              lambda mean, cov, seed: random.multivariate_normal(key(seed), mean, cov, (4,), method="cholesky"), gradient=False,
              tolerance=64, seed=seed)
        for dtype in ("f32", "f64"):
            for name, parameters in (("gamma", (2.5,)), ("beta", (0.7, 2.0)), ("chisquare", (3.0,)), ("t", (4.0,)), ("poisson", (4.5,))):
                call = {"poisson": lambda seed, shape, dtype: random.poisson(key(seed), 4.5, tuple(shape)).astype(jnp.int32)}.get(
                    name, lambda seed, shape, dtype, f=getattr(random, name), p=parameters: f(key(seed), *p, tuple(shape), DTYPES[dtype]))
                s.add("random." + name, [], call, gradient=False, tolerance=256, seed=seed, shape=[6], dtype=dtype)
            s.add("random.dirichlet", [Input(dtype, (3,), "pos")],
                  lambda alpha, seed: random.dirichlet(key(seed), alpha, (4,), alpha.dtype), gradient=False, tolerance=256, seed=seed)
            s.add("random.ball", [], lambda seed, shape, dtype: random.ball(key(seed), 3, 2, tuple(shape), DTYPES[dtype]), gradient=False,
                  tolerance=256, seed=seed, shape=[2], dtype=dtype)
            s.add("|random.orthogonal|", [], lambda seed, shape, dtype: jnp.abs(random.orthogonal(key(seed), 3, tuple(shape), DTYPES[dtype])),
                  gradient=False, tolerance=256, seed=seed, shape=[2], dtype=dtype)
    for name in ("glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "lecun_normal", "lecun_uniform"):
        draw(s, name, lambda seed, shape, dtype, f=getattr(jax.nn.initializers, name)(): f(key(seed), tuple(shape), DTYPES[dtype]),
             types=("f32", "f64"), shapes=[[4, 6], [3, 3, 2, 5]])
    draw(s, "orthogonal initializer", lambda seed, shape, dtype: jnp.abs(jax.nn.initializers.orthogonal()(key(seed), tuple(shape), DTYPES[dtype])),
         types=("f32", "f64"), shapes=[[4, 4], [6, 3]], tolerance=64)
