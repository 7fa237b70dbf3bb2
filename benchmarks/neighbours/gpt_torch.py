"""Milliseconds per training step of a GPT in PyTorch, with AdamW and without dropout. Prints one line of JSON per case.

    python3 benchmarks/neighbours/gpt_torch.py [--cases char:bf16,gpt2:bf16] [--modes eager,compile] [--device cuda] [--threads N]
    python3 benchmarks/neighbours/gpt_torch.py --text FILE --cases char-small:f32 --steps 2000 --device cpu

The configurations are those of benchmarks/gpt.cc: LAYERS, HEADS, WIDTH, TIME, BATCH, VOCABULARY. Other batches and lengths:
gpt2@16x1024:bf16.

With --text the model is trained on the characters of a file, with the settings nanoGPT publishes for it (without biases, exact
gelu), and the line has the loss over all of the last tenth of the text.
"""
import argparse
import contextlib
import json
import math
import time

import torch
from torch import nn
from torch.nn import functional as F

CONFIGS = {
    "char-small": (4, 4, 128, 64, 12, 65),
    "char": (6, 6, 384, 256, 64, 65),
    "gpt2": (12, 12, 768, 1024, 8, 50304),
}


def causal_attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    tokens = q.shape[2]  # PyTorch 1
    scores = (q @ k.transpose(2, 3)) / math.sqrt(q.shape[3])
    return scores.masked_fill(torch.ones(tokens, tokens, device=q.device).tril() == 0, -math.inf).softmax(-1) @ v


class LayerNorm(nn.Module):
    """nn.LayerNorm of PyTorch 1 has no parameter `bias`."""

    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias)


class Block(nn.Module):
    def __init__(self, width, heads, bias, gelu):
        super().__init__()
        self.heads, self.gelu = heads, gelu
        self.norm1, self.norm2 = LayerNorm(width, bias), LayerNorm(width, bias)
        self.qkv, self.projection = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.up, self.down = nn.Linear(width, 4 * width, bias=bias), nn.Linear(4 * width, width, bias=bias)

    def forward(self, x):
        batch, tokens, width = x.shape
        heads = [y.view(batch, tokens, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(width, 2)]
        y = causal_attention(*heads).transpose(1, 2).reshape(x.shape)
        x = x + self.projection(y)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.gelu))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, tokens, vocabulary, bias=True, gelu="tanh"):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.02 * torch.randn(tokens, width))
        self.blocks = nn.ModuleList(Block(width, heads, bias, gelu) for _ in range(layers))
        self.norm = LayerNorm(width, bias)
        nn.init.normal_(self.embedding.weight, std=0.02)
        for name, layer in self.named_modules():
            if isinstance(layer, nn.Linear):
                residual = name.endswith(("projection", "down"))
                nn.init.normal_(layer.weight, std=0.02 / (2 * layers) ** 0.5 if residual else 0.02)
                if bias:
                    nn.init.zeros_(layer.bias)

    def forward(self, tokens, targets):
        x = self.embedding(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.embedding.weight.T
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def adamw(parameters, **options):
    fused = {} if torch.__version__.startswith("1.") else {"fused": True}
    return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.99), **fused, **options)


def config_of(case):
    name, _, shape = case.partition("@")
    layers, heads, width, tokens, batch, vocabulary = CONFIGS[name]
    if shape:
        batch, tokens = (int(x) for x in shape.split("x"))
    return layers, heads, width, tokens, batch, vocabulary


def measure(case, precision, mode, device, steps):
    layers, heads, width, tokens, batch, vocabulary = config_of(case)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = Gpt(layers, heads, width, tokens, vocabulary).to(device)
    optimizer = adamw(model.parameters(), weight_decay=0.1)
    compiled = torch.compile(model) if mode == "compile" else model
    data = torch.randint(0, vocabulary, (batch, tokens + 1), device=device)
    cast = torch.autocast(device, torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()

    def step():
        with cast:
            loss = compiled(data[:, :-1], data[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    first_loss = float(step())
    first = time.perf_counter() - begin
    float(step())
    begin = time.perf_counter()
    for _ in range(steps):
        loss = step()
    last = float(loss)
    seconds = (time.perf_counter() - begin) / steps
    print(json.dumps({
        "peer": f"torch {torch.__version__} {mode}", "device": device, "case": case, "precision": precision,
        "first_s": round(first, 3), "step_ms": round(seconds * 1e3, 3), "tokens_per_s": round(batch * tokens / seconds),
        "memory_gb": round(torch.cuda.max_memory_reserved() / 1e9, 2) if device == "cuda" else None,
        "first_loss": round(first_loss, 4), "loss": round(last, 4),
    }), flush=True)


def train(case, path, steps, device, seed):
    layers, heads, width, tokens, batch, _ = config_of(case)
    torch.manual_seed(seed)
    text = open(path, encoding="utf-8").read()
    symbols = sorted(set(text))
    data = torch.tensor([symbols.index(c) for c in text], device=device)
    cut = len(data) * 9 // 10
    model = Gpt(layers, heads, width, tokens, len(symbols), bias=False, gelu="none").to(device)
    plain = [p for p in model.parameters() if p.dim() < 2]
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimizer = adamw(groups)
    window = torch.arange(tokens, device=device)
    begin = time.perf_counter()
    for i in range(steps):
        decay = 0.5 * (1 + math.cos(math.pi * (i - 100) / (steps - 100)))
        rate = 1e-3 * (i + 1) / 101 if i < 100 else 1e-4 + 9e-4 * decay
        for group in optimizer.param_groups:
            group["lr"] = rate
        at = torch.randint(cut - tokens, (batch, 1), device=device) + window
        model(data[at], data[at + 1]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    seconds = time.perf_counter() - begin
    count = (len(data) - cut - 1) // tokens
    at = cut + torch.arange(count, device=device)[:, None] * tokens + window
    with torch.no_grad():
        losses = [model(data[rows], data[rows + 1]).item() * len(rows) for rows in at.split(256)]
    print(json.dumps({"peer": f"torch {torch.__version__}", "device": device, "case": case, "steps": steps, "seed": seed,
                      "seconds": round(seconds, 1), "validation_loss": round(sum(losses) / count, 4)}), flush=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--cases", default="char:f32,char:bf16,gpt2:bf16")
parser.add_argument("--modes", default="eager,compile")
parser.add_argument("--device", default="cuda")
parser.add_argument("--threads", type=int, default=0)
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--text")
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()
if arguments.threads:
    torch.set_num_threads(arguments.threads)
for each in arguments.cases.split(","):
    if arguments.text:
        train(each.split(":")[0], arguments.text, arguments.steps, arguments.device, arguments.seed)
        continue
    for how in arguments.modes.split(","):
        measure(*each.split(":"), how, arguments.device, arguments.steps)
