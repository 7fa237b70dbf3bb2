"""Loops and choices in JAX. Prints one line of JSON per function: microseconds of a round of a compiled loop.

    python3 benchmarks/neighbours/control_jax.py [--functions iterate,sort,product,choose] [--rounds 1000] [--seconds 0.5]

The cases are those of benchmarks/control.cc.
"""
import argparse
import json
import time

import jax
import jax.numpy as jnp
from jax import lax


def repeat(one_round, rounds, x):
    return lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, one_round(s[1])), (rounds, x))[1]


def sorted_(x):
    return jnp.sort(1 - x)


def multiplied(x):
    return jnp.tanh(x @ x)


def choose(rounds, x):
    def body(x, i):
        x = lax.cond(i % 2 == 0, lambda x: sorted_(x.reshape(-1)).reshape(x.shape), multiplied, x)
        return x, x.sum()

    return lax.scan(body, x, jnp.arange(chosen.rounds))[0]


CASES = {
    "iterate": (lambda n, x: repeat(multiplied, n, x), (64, 64), jnp.float32),
    "sort": (lambda n, x: repeat(sorted_, n, x), (4096,), jnp.float32),
    "product": (lambda n, x: repeat(multiplied, n, x), (2048, 2048), jnp.bfloat16),
    "choose": (choose, (64, 64), jnp.float32),
}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--functions", default=",".join(CASES))
parser.add_argument("--rounds", type=int, default=1000)
parser.add_argument("--seconds", type=float, default=0.5)
chosen = parser.parse_args()
for name in chosen.functions.split(","):
    run, shape, dtype = CASES[name]
    x = (jax.random.normal(jax.random.key(0), shape) / 64).astype(dtype)
    n = jnp.int32(chosen.rounds)
    f = jax.jit(lambda n, x: run(n, x).astype(jnp.float32).sum())

    def timed(calls):
        begin = time.perf_counter()
        for _ in range(calls):
            result = f(n, x)
        jax.block_until_ready(result)
        return time.perf_counter() - begin

    timed(2)
    calls = max(1, int(chosen.seconds / max(timed(1), 1e-6)))
    each = timed(calls) / calls
    print(json.dumps({
        "peer": f"jax {jax.__version__}", "device": jax.default_backend(), "function": name, "rounds": chosen.rounds,
        "us_per_round": round(each / chosen.rounds * 1e6, 3),
    }), flush=True)
