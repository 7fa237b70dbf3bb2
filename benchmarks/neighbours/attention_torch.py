"""The rate of causal attention alone in PyTorch, on a GPU. Prints one line of JSON per length, head width and pass.

    python3 benchmarks/neighbours/attention_torch.py [--lengths 1024,...,65536] [--head-widths 64,128] [--backends cudnn,flash]

The cases and their counts of operations are those of benchmarks/attention.cc.
"""
import argparse
import json
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def seconds_per_call(f, seconds):
    def run(calls):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            f()
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    run(2)
    calls = max(1, int(seconds / max(run(1), 1e-6)))
    return run(calls) / calls


def measure(length, width, backend, arguments):
    shape = (max(arguments.tokens // length, 1), length, max(arguments.width // width, 1), width)
    # Memory as in a model, [batch, tokens, heads, features]; the function takes the heads before the tokens.
    q, k, v, dy = (torch.randn(shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(4))
    operands = [x.requires_grad_() for x in (q, k, v)]
    operations = 2.0 * shape[0] * shape[2] * length * length * width

    def forward():
        with torch.no_grad():
            scaled_dot_product_attention(*operands, is_causal=True)

    def both():
        torch.autograd.grad(scaled_dot_product_attention(*operands, is_causal=True), operands, dy)

    with sdpa_kernel(BACKENDS[backend]):
        for name, f, work in (("forward", forward, operations), ("backward", both, 3.5 * operations)):
            seconds = seconds_per_call(f, arguments.seconds)
            print(json.dumps({
                "peer": f"torch {torch.__version__} {backend}", "device": "cuda", "length": length, "head_width": width,
                "precision": "bf16", "pass": name, "ms": round(seconds * 1e3, 4), "tflops": round(work / seconds * 1e-12, 2),
            }), flush=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--lengths", default="1024,2048,4096,8192,16384,32768,65536")
parser.add_argument("--head-widths", default="64,128")
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--tokens", type=int, default=65536)
parser.add_argument("--backends", default="cudnn,flash")
parser.add_argument("--seconds", type=float, default=0.5)
chosen = parser.parse_args()
for head_width in chosen.head_widths.split(","):
    for each in chosen.lengths.split(","):
        for which in chosen.backends.split(","):
            try:
                measure(int(each), int(head_width), which, chosen)
            except RuntimeError as error:
                print(f"attention_torch: length {each}, head width {head_width}, {which}: {error}", file=sys.stderr)
