"""The rate of causal attention alone in JAX. Prints one line of JSON per length, head width and pass.

    python3 benchmarks/neighbours/attention_jax.py [--lengths 1024,...,65536] [--head-widths 64,128] [--attention cudnn]

The cases and their counts of operations are those of benchmarks/attention.cc. --attention xla has a matrix of scores, whose
memory grows with the square of the length.
"""
import argparse
import json
import sys
import time

import jax
import jax.numpy as jnp


def seconds_per_call(f, seconds):
    def run(calls):
        begin = time.perf_counter()
        for _ in range(calls):
            result = f()
        jax.block_until_ready(result)
        return time.perf_counter() - begin

    run(2)
    calls = max(1, int(seconds / max(run(1), 1e-6)))
    return run(calls) / calls


def measure(length, width, attention, arguments):
    shape = (max(arguments.tokens // length, 1), length, max(arguments.width // width, 1), width)
    q, k, v, dy = (jax.random.normal(jax.random.key(i), shape, jnp.bfloat16) for i in range(4))
    operations = 2.0 * shape[0] * shape[2] * length * length * width

    def attend(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=attention)

    forward = jax.jit(attend)
    both = jax.jit(lambda q, k, v, dy: jax.vjp(attend, q, k, v)[1](dy))
    passes = (("forward", lambda: forward(q, k, v), operations), ("backward", lambda: both(q, k, v, dy), 3.5 * operations))
    for name, f, work in passes:
        seconds = seconds_per_call(f, arguments.seconds)
        print(json.dumps({
            "peer": f"jax {jax.__version__} {attention}", "device": jax.default_backend(), "length": length,
            "head_width": width, "precision": "bf16", "pass": name, "ms": round(seconds * 1e3, 4),
            "tflops": round(work / seconds * 1e-12, 2),
        }), flush=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--lengths", default="1024,2048,4096,8192,16384,32768,65536")
parser.add_argument("--head-widths", default="64,128")
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--tokens", type=int, default=65536)
parser.add_argument("--attention", default="cudnn")
parser.add_argument("--seconds", type=float, default=0.5)
chosen = parser.parse_args()
for head_width in chosen.head_widths.split(","):
    for each in chosen.lengths.split(","):
        for which in chosen.attention.split(","):
            try:
                measure(int(each), int(head_width), which, chosen)
            except (RuntimeError, ValueError) as error:
                print(f"attention_jax: length {each}, head width {head_width}, {which}: {error}", file=sys.stderr)
