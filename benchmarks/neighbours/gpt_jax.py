"""Milliseconds per training step of a GPT in JAX, with AdamW and without dropout. Prints one line of JSON per case.

    python3 benchmarks/neighbours/gpt_jax.py [--cases char:bf16,gpt2:bf16] [--attention xla,cudnn] [--steps 30]

The configurations are those of benchmarks/gpt.cc: LAYERS, HEADS, WIDTH, TIME, BATCH, VOCABULARY. Other batches and lengths:
gpt2@16x1024:bf16. cuDNN's attention takes 16-bit floats on a GPU; other cases leave it out. JAX_PLATFORMS=cpu: on the CPU.
"""
import argparse
import json
import time

import jax
import jax.numpy as jnp

CONFIGS = {
    "char-small": (4, 4, 128, 64, 12, 65),
    "char": (6, 6, 384, 256, 64, 65),
    "gpt2": (12, 12, 768, 1024, 8, 50304),
}


def config_of(case):
    name, _, shape = case.partition("@")
    layers, heads, width, tokens, batch, vocabulary = CONFIGS[name]
    if shape:
        batch, tokens = (int(x) for x in shape.split("x"))
    return layers, heads, width, tokens, batch, vocabulary


def create(key, layers, width, tokens, vocabulary):
    def table(site, *shape):
        return 0.02 * jax.random.normal(jax.random.fold_in(key, site), shape)

    def linear(site, n, m):
        return {"w": table(site, n, m), "b": jnp.zeros(m)}

    def norm():
        return {"scale": jnp.ones(width), "bias": jnp.zeros(width)}

    def block(site):
        return {
            "norm1": norm(), "qkv": linear(site, width, 3 * width), "projection": linear(site + 1, width, width),
            "norm2": norm(), "up": linear(site + 2, width, 4 * width), "down": linear(site + 3, 4 * width, width),
        }

    return {
        "embedding": table(0, vocabulary, width), "positions": table(1, tokens, width),
        "blocks": [block(4 * (i + 1)) for i in range(layers)], "norm": norm(),
    }


def apply_norm(p, x):
    wide = x.astype(jnp.float32)
    centered = wide - wide.mean(-1, keepdims=True)
    y = centered * jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    return (y * p["scale"] + p["bias"]).astype(x.dtype)


def apply_linear(p, x):
    return x @ p["w"].astype(x.dtype) + p["b"].astype(x.dtype)


def apply_block(p, x, heads, attention):
    batch, tokens, width = x.shape
    qkv = apply_linear(p["qkv"], apply_norm(p["norm1"], x)).reshape(batch, tokens, 3, heads, width // heads)
    y = jax.nn.dot_product_attention(*(qkv[:, :, i] for i in range(3)), is_causal=True, implementation=attention)
    x = x + apply_linear(p["projection"], y.reshape(x.shape))
    return x + apply_linear(p["down"], jax.nn.gelu(apply_linear(p["up"], apply_norm(p["norm2"], x))))


def make_step(heads, compute, attention):
    def loss(params, data):
        x = (params["embedding"][data[:, :-1]] + params["positions"]).astype(compute)
        for block in params["blocks"]:
            x = apply_block(block, x, heads, attention)
        logits = (apply_norm(params["norm"], x) @ params["embedding"].astype(compute).T).astype(jnp.float32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), data[:, 1:, None], -1))

    def step(state, data):
        params, first, second, t = state
        value, grads = jax.value_and_grad(loss)(params, data)
        t = t + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, grads)
        a, b = 1 - 0.9**t, 1 - 0.99**t
        params = jax.tree.map(
            lambda p, m, v: p - 1e-3 * (m / a / (jnp.sqrt(v / b) + 1e-8) + 0.1 * p), params, first, second)
        return (params, first, second, t), value

    return jax.jit(step, donate_argnums=0)


def measure(case, precision, attention, steps):
    layers, heads, width, tokens, batch, vocabulary = config_of(case)
    params = create(jax.random.key(0), layers, width, tokens, vocabulary)
    zeros = [jax.tree.map(jnp.zeros_like, params) for _ in range(2)]
    state = (params, *zeros, jnp.float32(0))
    data = jax.random.randint(jax.random.key(5), (batch, tokens + 1), 0, vocabulary)
    step = make_step(heads, {"f32": jnp.float32, "bf16": jnp.bfloat16}[precision], attention)
    begin = time.perf_counter()
    state, loss = step(state, data)
    first_loss = float(loss)
    first = time.perf_counter() - begin
    state, loss = step(state, data)
    float(loss)
    begin = time.perf_counter()
    for _ in range(steps):
        state, loss = step(state, data)
    last = float(loss)
    seconds = (time.perf_counter() - begin) / steps
    memory = jax.local_devices()[0].memory_stats() or {}
    print(json.dumps({
        "peer": f"jax {jax.__version__} {attention}", "device": jax.default_backend(), "case": case,
        "precision": precision, "first_s": round(first, 3), "step_ms": round(seconds * 1e3, 3),
        "tokens_per_s": round(batch * tokens / seconds),
        "memory_gb": round(memory["peak_bytes_in_use"] / 1e9, 2) if "peak_bytes_in_use" in memory else None,
        "first_loss": round(first_loss, 4), "loss": round(last, 4),
    }), flush=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--cases", default="char:f32,char:bf16,gpt2:bf16")
parser.add_argument("--attention", default="xla,cudnn")
parser.add_argument("--steps", type=int, default=30)
arguments = parser.parse_args()
for each in arguments.cases.split(","):
    for how in arguments.attention.split(","):
        if how == "xla" or (each.endswith(":bf16") and jax.default_backend() == "gpu"):
            measure(*each.split(":"), how, arguments.steps)
