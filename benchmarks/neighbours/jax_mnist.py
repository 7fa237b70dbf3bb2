"""Seconds per epoch of MNIST-sized training in JAX on the default device. Prints one line of JSON per case.

    python3 benchmarks/neighbours/jax_mnist.py [--cases mlp1024:sgd,mlp:adam,cnn:adam] [--precisions f32,bf16]
                                               [--batches 128,8192] [--forms whole,step,index,loader]

Forms. "whole": an epoch in one compiled scan. "step", "index": one call per step, with the data on the device; the row
numbers of each batch are an array of their own ("step"), or are taken from those of the epoch ("index"). "loader": one
call per step, with a batch of bytes gathered on the host, as a loader does.
"""
import argparse
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

ROWS = 60000


def dense(key, n, m):
    return {"w": jax.random.normal(key, (n, m)) * (2 / n) ** 0.5, "b": jnp.zeros((m,))}


def make(model):
    keys = jax.random.split(jax.random.key(0), 4)
    if model == "cnn":
        return {
            "c0": {"w": jax.random.normal(keys[0], (5, 5, 1, 32)) * 0.28, "b": jnp.zeros((32,))},
            "c1": {"w": jax.random.normal(keys[1], (5, 5, 32, 64)) * 0.05, "b": jnp.zeros((64,))},
            "d0": dense(keys[2], 3136, 128),
            "d1": dense(keys[3], 128, 10),
        }
    sizes = {"mlp": [784, 256, 128, 10], "mlp1024": [784, 1024, 1024, 10]}[model]
    return [dense(k, n, m) for k, n, m in zip(keys, sizes, sizes[1:])]


def pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def conv(p, x):
    return lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + p["b"]


def logits(model, params, x):
    if model == "cnn":
        x = x.reshape(-1, 28, 28, 1)
        x = pool(jax.nn.relu(conv(params["c0"], x)))
        x = pool(jax.nn.relu(conv(params["c1"], x)))
        x = x.reshape(x.shape[0], -1)
        x = jax.nn.relu(x @ params["d0"]["w"] + params["d0"]["b"])
        return x @ params["d1"]["w"] + params["d1"]["b"]
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def trainer(model, optimizer, precision):
    compute = {"f32": jnp.float32, "bf16": jnp.bfloat16}[precision]

    def loss(params, images, labels):
        x = images.astype(jnp.float32) * (1 / (255 * 0.3081)) - 0.1307 / 0.3081
        params = jax.tree.map(lambda p: p.astype(compute), params)
        out = logits(model, params, x.astype(compute)).astype(jnp.float32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(out), labels[:, None].astype(jnp.int32), 1))

    def step(state, images, labels):
        params, m, v, t = state
        value, grads = jax.value_and_grad(loss)(params, images, labels)
        if optimizer == "sgd":
            return (jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), m, v, t), value
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        a, b = 1 - 0.9**t, 1 - 0.999**t
        params = jax.tree.map(lambda p, m, v: p - 1e-3 * (m / a) / (jnp.sqrt(v / b) + 1e-8), params, m, v)
        return (params, m, v, t), value

    return step


def measure(model, optimizer, precision, batch, forms, epochs=5):
    key = jax.random.key(1)
    data = (
        jax.random.randint(key, (ROWS, 784), 0, 256).astype(jnp.uint8),
        jax.random.randint(key, (ROWS,), 0, 10).astype(jnp.uint8),
    )
    params = make(model)
    zeros = jax.tree.map(jnp.zeros_like, params) if optimizer == "adam" else ()
    step = trainer(model, optimizer, precision)

    def chosen(s, d, r):
        return step(s, d[0][r], d[1][r])

    batches = ROWS // batch
    rows = jax.random.permutation(key, ROWS)[: batches * batch].reshape(batches, batch)
    result = {"model": model, "optimizer": optimizer, "precision": precision, "batch": batch}
    for form in forms:
        state = tuple(jax.tree.map(jnp.copy, x) for x in (params, zeros, zeros)) + (jnp.float32(0),)
        given, order = data, rows
        if form == "whole":
            epoch = jax.jit(lambda s, d, r: lax.scan(lambda s, i: chosen(s, d, i), s, r), donate_argnums=0)
        elif form == "loader":
            one = jax.jit(step, donate_argnums=0)
            given, order = tuple(np.asarray(x) for x in data), np.asarray(rows)

            def epoch(s, d, r):
                for i in range(len(r)):
                    s, value = one(s, d[0][r[i]], d[1][r[i]])
                return s, value
        else:
            one = jax.jit(chosen, donate_argnums=0)
            if form == "step":
                order = list(rows)

            def epoch(s, d, r):
                for i in range(len(r)):
                    s, value = one(s, d, r[i])
                return s, value

        times = []
        for _ in range(epochs):
            begin = time.perf_counter()
            state, value = epoch(state, given, order)
            jax.block_until_ready((state, value))
            times.append(time.perf_counter() - begin)
        best = min(times[1:])
        result[form] = round(best, 5)
        result[form + "_examples_per_second"] = round(batches * batch / best)
    print(json.dumps(result), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", default="mlp1024:sgd,mlp:adam,cnn:adam")
    parser.add_argument("--precisions", default="f32,bf16")
    parser.add_argument("--batches", default="128,8192")
    parser.add_argument("--forms", default="whole,step,index,loader")
    args = parser.parse_args()
    for case in args.cases.split(","):
        for precision in args.precisions.split(","):
            for batch in args.batches.split(","):
                forms = args.forms.split(",") if int(batch) < 1024 else ["whole"]
                measure(*case.split(":"), precision, int(batch), forms)


if __name__ == "__main__":
    main()
