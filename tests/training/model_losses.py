"""Computes model_losses.json with PyTorch in double precision from the inputs that model_losses_test.cc writes.

    LOCKSTEP_MODEL_LOSS_INPUTS=inputs build/tests/test_training --gtest_filter='ModelLosses.*'
    python3 tests/training/model_losses.py inputs > tests/data_files/model_losses.json
"""
import glob
import json
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

STEPS = 20
torch.set_num_threads(4)


def load(folder):
    arrays = {}
    for path in glob.glob(f"{folder}/step_*/*.safetensors"):
        arrays.update(load_file(path))
    params = {k[7:]: v.double().clone().requires_grad_("norm/mean" not in k and "norm/variance" not in k)
              for k, v in arrays.items() if k.startswith("params/")}
    return params, {k[5:]: v for k, v in arrays.items() if k.startswith("data/")}


def gpt(folder):
    p, data = load(folder)
    heads, layers = 4, 3

    def logits(tokens):
        b, t = tokens.shape
        x = p["token_embedding"][tokens] + p["position_embedding"][:t]
        for i in range(layers):
            q = f"blocks/{i}/"
            h = F.layer_norm(x, x.shape[-1:], p[q + "attention_norm/scale"], p[q + "attention_norm/bias"], 1e-5)
            h = h @ p[q + "attention/qkv/w"] + p[q + "attention/qkv/b"]
            parts = [a.reshape(b, t, heads, -1).transpose(1, 2) for a in h.split(x.shape[-1], -1)]
            scores = parts[0] @ parts[1].transpose(2, 3) / parts[0].shape[-1] ** 0.5
            scores = scores.masked_fill(torch.ones(t, t).tril() == 0, float("-inf"))
            h = (scores.softmax(-1) @ parts[2]).transpose(1, 2).reshape(x.shape)
            x = x + h @ p[q + "attention/projection/w"] + p[q + "attention/projection/b"]
            h = F.layer_norm(x, x.shape[-1:], p[q + "feed_forward_norm/scale"], p[q + "feed_forward_norm/bias"], 1e-5)
            h = F.gelu(h @ p[q + "feed_forward/up/w"] + p[q + "feed_forward/up/b"], approximate="tanh")
            x = x + h @ p[q + "feed_forward/down/w"] + p[q + "feed_forward/down/b"]
        x = F.layer_norm(x, x.shape[-1:], p["norm/scale"], p["norm/bias"], 1e-5)
        return x @ p["token_embedding"].T

    def loss(rows):
        inputs, targets = data["inputs"][rows].long(), data["targets"][rows].long()
        return F.cross_entropy(logits(inputs).flatten(0, 1), targets.flatten())

    plain = [v for k, v in p.items() if k.endswith(("/b", "/bias", "/scale"))]
    decayed = [v for k, v in p.items() if not k.endswith(("/b", "/bias", "/scale"))]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                                  lr=3e-3, betas=(0.9, 0.99), eps=1e-8)
    return run(loss, optimizer, 8, len(data["inputs"]), lambda: None)


def resnet(folder):
    p, data = load(folder)
    state = {"training": True}

    def conv(name, x, stride):
        w = p[name + "/w"].permute(3, 2, 0, 1)
        y = F.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2)
        n = name + "/norm/"
        return F.batch_norm(y, p[n + "mean"], p[n + "variance"], p[n + "scale"], p[n + "bias"], state["training"], 0.1, 1e-5)

    def loss(rows):
        x = F.relu(conv("stem", (data["images"][rows].double() / 255).permute(0, 3, 1, 2), 1))
        for stage in range(4):
            for block in range(2):
                name, stride = f"stages/{stage}/{block}/", 2 if stage > 0 and block == 0 else 1
                y = conv(name + "second", F.relu(conv(name + "first", x, stride)), 1)
                x = F.relu(y + (conv(name + "shortcut", x, stride) if name + "shortcut/w" in p else x))
        return F.cross_entropy(x.mean((2, 3)) @ p["head/w"] + p["head/b"], data["labels"][rows].long())

    trained = [v for v in p.values() if v.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=3e-4, momentum=0.9)
    return run(loss, optimizer, 64, len(data["images"]), lambda: state.update(training=False))


def run(loss, optimizer, batch, count, evaluate):
    out = []
    for i in range(STEPS):
        optimizer.zero_grad()
        value = loss(slice(i * batch, (i + 1) * batch))
        value.backward()
        optimizer.step()
        out.append(value.item())
    evaluate()
    with torch.no_grad():
        out.append(loss(slice(0, count)).item())
    return out


folder = sys.argv[1]
print(json.dumps({"source": f"torch {torch.__version__}", "gpt": gpt(f"{folder}/gpt"), "resnet": resnet(f"{folder}/resnet")}))
