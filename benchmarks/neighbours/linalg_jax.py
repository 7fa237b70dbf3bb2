"""Factorizations in JAX. Prints one line of JSON per function and size: milliseconds of a compiled call.

    python3 benchmarks/neighbours/linalg_jax.py [--sizes 1x1024,1000x32] [--functions cholesky,...] [--seconds 0.5]

The cases are those of benchmarks/linalg.cc.
"""
import argparse
import json
import time

import jax
import jax.numpy as jnp

FUNCTIONS = {
    "cholesky": lambda a: jnp.linalg.cholesky(a).sum(),
    "solve": lambda a: jnp.linalg.solve(a, a).sum(),
    "qr": lambda a: jnp.linalg.qr(a).R.sum(),
    "eigh": lambda a: jnp.linalg.eigh(a).eigenvectors.sum(),
    "svd": lambda a: jnp.linalg.svd(a).S.sum(),
    "gradient": lambda a: jax.grad(lambda x: jnp.linalg.slogdet(x).logabsdet.sum())(a).sum(),
}


def milliseconds(f, seconds):
    def run(calls):
        begin = time.perf_counter()
        for _ in range(calls):
            result = f()
        jax.block_until_ready(result)
        return time.perf_counter() - begin

    run(2)
    calls = max(1, int(seconds / max(run(1), 1e-6)))
    return run(calls) / calls * 1e3


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--sizes", default="1x1024,1000x32")
parser.add_argument("--functions", default=",".join(FUNCTIONS))
parser.add_argument("--seconds", type=float, default=0.5)
chosen = parser.parse_args()
for name in chosen.functions.split(","):
    for size in chosen.sizes.split(","):
        matrices, n = map(int, size.split("x"))
        x = jax.random.normal(jax.random.key(0), (matrices, n, n))
        a = x @ x.swapaxes(1, 2) / n + jnp.eye(n)
        f = jax.jit(FUNCTIONS[name])
        print(json.dumps({
            "peer": f"jax {jax.__version__}", "device": jax.default_backend(), "function": name, "matrices": matrices, "rows": n,
            "ms": round(milliseconds(lambda: f(a), chosen.seconds), 4),
        }), flush=True)
