"""Seconds per epoch of MNIST-sized training in PyTorch on a GPU: a step captured as a CUDA graph ("graph") and eager steps
("eager"). Prints one line of JSON per case.

    python3 benchmarks/neighbours/torch_mnist.py [--cases mlp1024:sgd,mlp:adam,cnn:adam] [--precisions f32,bf16] [--batches 128,8192]
"""
import argparse
import contextlib
import json
import time

import torch
from torch import nn

ROWS = 60000


def make(model):
    if model == "cnn":
        return nn.Sequential(
            nn.Unflatten(1, (1, 28, 28)),
            nn.Conv2d(1, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(3136, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        ).to(memory_format=torch.channels_last)
    sizes = {"mlp": [784, 256, 128, 10], "mlp1024": [784, 1024, 1024, 10]}[model]
    layers = []
    for n, m in zip(sizes, sizes[1:]):
        layers += [nn.Linear(n, m), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def measure(model, optimizer, precision, batch, forms, epochs=5):
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    images = torch.randint(0, 256, (ROWS, 784), dtype=torch.uint8, device="cuda")
    labels = torch.randint(0, 10, (ROWS,), device="cuda")
    batches = ROWS // batch
    rows = torch.randperm(ROWS, device="cuda")[: batches * batch].reshape(batches, batch)
    result = {"model": model, "optimizer": optimizer, "precision": precision, "batch": batch}
    for form in forms:
        net = make(model).cuda()
        if optimizer == "sgd":
            update = torch.optim.SGD(net.parameters(), lr=0.01, foreach=True)
        else:
            update = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True, capturable=True)
        index = rows[0].clone()

        def step():
            update.zero_grad(set_to_none=True)
            x = images[index].float() * (1 / (255 * 0.3081)) - 0.1307 / 0.3081
            cast = torch.autocast("cuda", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
            with cast:
                out = net(x)
            loss = nn.functional.cross_entropy(out.float(), labels[index])
            loss.backward()
            update.step()

        run = step
        if form == "graph":
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            run = graph.replay
        times = []
        for _ in range(epochs):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for i in range(batches):
                index.copy_(rows[i])
                run()
            torch.cuda.synchronize()
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
    args = parser.parse_args()
    for case in args.cases.split(","):
        for precision in args.precisions.split(","):
            for batch in args.batches.split(","):
                forms = ["graph", "eager"] if int(batch) < 1024 else ["graph"]
                measure(*case.split(":"), precision, int(batch), forms)


if __name__ == "__main__":
    main()
