"""The learning curve of resnet18 in PyTorch on images in IDX files, with the settings of `lockstep train` below. Prints one line of
JSON per epoch.

    lockstep train --model resnet18 --dataset FILES --batch-size 128 --epochs 4 --optimizer nesterov --learning-rate 0.05 \\
        --schedule warmup_cosine --warmup-steps 50 --weight-decay 5e-4 --crop 4 --flip
    python3 benchmarks/neighbours/resnet18_torch.py FILES [--epochs 4] [--device cpu] [--seed 0]

FILES are four files separated by commas: training images, training labels, test images, test labels. With --subset N,M and --write
FOLDER it writes the first N training and M test images to four files there, and trains nothing.
"""
import argparse
import json
import math
import struct
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def read_idx(path):
    with open(path, "rb") as file:
        rank = file.read(4)[3]
        shape = struct.unpack(f">{rank}I", file.read(4 * rank))
        return np.frombuffer(file.read(), np.uint8).reshape(shape)


def write_idx(path, array):
    with open(path, "wb") as file:
        file.write(bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())


class NormedConv(nn.Sequential):
    def __init__(self, size, inputs, outputs, stride):
        conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out")
        super().__init__(conv, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first, self.second = NormedConv(3, inputs, outputs, stride), NormedConv(3, outputs, outputs, 1)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else NormedConv(1, inputs, outputs, stride)

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


def resnet18(channels, classes):
    layers, inputs = [NormedConv(3, channels, 64, 1), nn.ReLU()], 64
    for stage, outputs in enumerate([64, 128, 256, 512]):
        for block in range(2):
            layers.append(Residual(inputs, outputs, 2 if stage > 0 and block == 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def cropped_and_flipped(x, most):
    """Moves each image by up to `most` pixels in both directions, and mirrors half of them."""
    n, _, height, width = x.shape
    padded = F.pad(x, (most, most, most, most))
    rows = torch.randint(2 * most + 1, (n, 1)) + torch.arange(height)
    cols = torch.randint(2 * most + 1, (n, 1)) + torch.arange(width)
    cols = torch.where(torch.rand(n, 1) < 0.5, cols.flip(1), cols)
    return padded[torch.arange(n)[:, None, None], :, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)


def learning_rate(step, total, peak, warmup):
    return peak * step / warmup if step < warmup else 0.5 * peak * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def train(options):
    torch.manual_seed(options.seed)
    arrays = [torch.from_numpy(read_idx(path).copy()) for path in options.files.split(",")]
    images, labels, test_images, test_labels = arrays
    images, test_images = (x.permute(0, 3, 1, 2) if x.ndim == 4 else x[:, None] for x in (images, test_images))
    net = resnet18(images.shape[1], int(labels.max()) + 1).to(options.device, memory_format=torch.channels_last)
    decayed = [p for p in net.parameters() if p.ndim > 1]
    plain = [p for p in net.parameters() if p.ndim == 1]
    optimizer = torch.optim.SGD([{"params": decayed, "weight_decay": options.weight_decay}, {"params": plain}], lr=0.1,
                                momentum=0.9, nesterov=True)
    steps = len(images) // options.batch_size
    step, begin = 0, time.time()
    for epoch in range(options.epochs):
        net.train()
        losses = []
        for rows in torch.randperm(len(images))[: steps * options.batch_size].split(options.batch_size):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, steps * options.epochs, options.learning_rate, options.warmup)
            x = cropped_and_flipped(images[rows].float() / 255, options.crop)
            loss = F.cross_entropy(net(x.to(options.device)), labels[rows].long().to(options.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            step += 1
        net.eval()
        with torch.no_grad():
            logits = torch.cat([net((x.float() / 255).to(options.device)).cpu() for x in test_images.split(500)])
        right = (logits.argmax(1) == test_labels).float().mean().item()
        print(json.dumps({"peer": "torch", "epoch": epoch + 1, "loss": round(sum(losses) / len(losses), 4),
                          "test_loss": round(F.cross_entropy(logits, test_labels.long()).item(), 4), "test_accuracy": round(right, 4),
                          "seconds": round(time.time() - begin, 1)}), flush=True)


def write_subset(options):
    counts = [int(x) for x in options.subset.split(",")]
    names = ["train-images", "train-labels", "test-images", "test-labels"]
    for path, name, count in zip(options.files.split(","), names, (counts[0], counts[0], counts[1], counts[1])):
        write_idx(f"{options.write}/{name}", read_idx(path)[:count])


parser = argparse.ArgumentParser()
parser.add_argument("files")
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--learning-rate", type=float, default=0.05)
parser.add_argument("--warmup", type=int, default=50)
parser.add_argument("--weight-decay", type=float, default=5e-4)
parser.add_argument("--crop", type=int, default=4)
parser.add_argument("--device", default="cpu")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--subset")
parser.add_argument("--write")
parsed = parser.parse_args()
write_subset(parsed) if parsed.subset else train(parsed)
