"""Writes the conformance suite: what JAX computes for thousands of small calls.

    python3 tests/conformance/jax_cases/generate.py OUT.jsonl.gz [WORKERS [SECONDS [FAMILY...]]]

Needs JAX. After SECONDS, what is left is left out. Calls with 64-bit types run with jax_enable_x64, the others without,
as most users have it. The first line counts the cases. Then each line is an array of the pool or a case. With families,
such as random_cases, their cases are added to OUT, or replace those of the same functions there.
"""
import base64
import collections
import gzip
import json
import os
import subprocess
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

FAMILIES = ("math_cases", "reduce_cases", "shape_cases", "linear_cases", "window_cases", "random_cases", "arrange_cases")


def collect(families):
    from importlib import import_module

    from case import Suite
    suite = Suite()
    for family in families:
        import_module(family).add(suite)
    return suite.cases


def encode(array):
    import numpy as np

    from case import NAMES
    array = np.asarray(array)  # tobytes() is row-major whatever the strides
    return {"d": NAMES[array.dtype], "s": list(array.shape), "x": base64.b64encode(array.tobytes()).decode()}


def weights(shape):
    """What the results are multiplied by before they are summed for the gradient: exact in every type."""
    import numpy as np
    n = int(np.prod(shape))
    return ((np.arange(n) * 7 % 11 - 5) / 4).reshape(shape)


def results_of(case, arrays):
    import jax
    out = case.call(*arrays, **case.attrs)
    return [out] if isinstance(out, jax.Array) else list(jax.tree.leaves(out))


def gradients_of(case, arrays, results):
    import jax
    import jax.numpy as jnp
    chosen = [k for k, a in enumerate(arrays) if jnp.issubdtype(a.dtype, jnp.floating)]
    if not chosen or not case.gradient or not any(jnp.issubdtype(out.dtype, jnp.floating) for out in results):
        return None

    def total(*floats):
        whole = list(arrays)
        for k, a in zip(chosen, floats):
            whole[k] = a
        sums = [jnp.sum(out.astype(jnp.promote_types(out.dtype, jnp.float32)) * weights(out.shape).astype(
            "float64" if out.dtype == jnp.float64 else "float32")) for out in results_of(case, whole)
                if jnp.issubdtype(out.dtype, jnp.floating)]
        return sum(sums[1:], sums[0])
    return jax.grad(total, argnums=tuple(range(len(chosen))))(*[arrays[k] for k in chosen])


def is_wide(case):
    from case import WIDE
    return bool(WIDE & ({i.dtype for i in case.inputs} | {case.attrs.get("dtype")}))


def compute(case):
    import jax
    import jax.numpy as jnp
    arrays = [jnp.asarray(i.make()) for i in case.inputs]
    results = results_of(case, arrays)
    line = {"f": case.name, "a": case.attrs, "in": [i.key() for i in case.inputs], "tol": case.tolerance,
            "out": [encode(out) for out in results]}
    gradient = gradients_of(case, arrays, results)
    if gradient is not None:
        line["grad"] = [encode(g) for g in gradient]
    return line


def work(part, parts, path, deadline, families):
    """The cases `part`, `part` + `parts`, ... in blocks, so that one process compiles what belongs together."""
    import jax
    cases = collect(families)
    block = 20
    with open(path, "w") as out:
        for wide in (False, True):
            jax.config.update("jax_enable_x64", wide)
            for number, case in enumerate(cases):
                if number // block % parts != part or is_wide(case) != wide:
                    continue
                if time.time() > deadline:
                    break
                try:
                    out.write(json.dumps([number, compute(case)]) + "\n")
                except Exception as error:  # reported by the parent
                    message = str(error).strip().split("\n")[0][:200]
                    out.write(json.dumps([number, {"f": case.name, "a": case.attrs, "in": [i.key() for i in case.inputs],
                                                   "error": f"{type(error).__name__}: {message}"}]) + "\n")
            jax.clear_caches()


def recorded(path, without):
    """The arrays and cases in a file, except those of the functions `without`."""
    with gzip.open(path, "rt") as file:
        lines = [json.loads(line) for line in file][1:]
    pool = {line["array"]: {k: line[k] for k in "dsx"} for line in lines if "array" in line}
    return pool, [line for line in lines if "f" in line and line["f"] not in without]


def main(target, workers, seconds, families):
    began = time.time()
    paths = [f"{target}.{k}" for k in range(workers)]
    environment = dict(os.environ, XLA_FLAGS="--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0", OMP_NUM_THREADS="1")
    running = [subprocess.Popen([sys.executable, __file__, "--part", str(k), str(workers), paths[k],
                                 str(began + seconds), *families], env=environment)
               for k in range(workers)]
    codes = [process.wait() for process in running]
    lines = []
    for path in paths:
        with open(path) as f:
            lines += [json.loads(line) for line in f if line.endswith("\n")]
        os.remove(path)
    lines.sort(key=lambda line: line[0])
    whole = collect(families)
    good = [line for _, line in lines if "error" not in line]
    pool = {}
    if families != FAMILIES:
        pool, others = recorded(target, {case.name for case in whole})
        good = others + good
    for case in whole:
        for i in case.inputs:
            if i.key() not in pool:
                pool[i.key()] = encode(i.make())
    used = {key for line in good for key in line["in"]}
    with open(target, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=9, mtime=0, filename="") as out:
        def write(value):
            out.write((json.dumps(value, separators=(",", ":")) + "\n").encode())
        write({"cases": len(good)})
        for key in sorted(used):
            write({"array": key, **pool[key]})
        for line in good:
            write(line)
    errors = collections.Counter((line["f"], line["error"]) for _, line in lines if "error" in line)
    for (name, error), count in errors.most_common():
        print(f"{count:5} {name}: {error}")
    print(f"{len(lines) - sum(errors.values())} of {len(whole)} cases recorded, {len(good)} in all, {len({line['f'] for line in good})} functions, {sum(errors.values())} failed, "
          f"worker exit codes {codes}, {time.time() - began:.0f} s, {os.path.getsize(target)} bytes")


if __name__ == "__main__":
    if sys.argv[1] == "--part":
        work(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], float(sys.argv[5]), sys.argv[6:])
    else:
        options = sys.argv[2:4] + [os.cpu_count(), 3600][len(sys.argv[2:4]):]
        main(sys.argv[1], int(options[0]), float(options[1]), tuple(sys.argv[4:]) or FAMILIES)
