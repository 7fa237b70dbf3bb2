#!/usr/bin/env python3
"""Loads folders that Lockstep has exported with transformers: check_export.py LOGITS_JSON FOLDER...

LOGITS_JSON maps the name of each folder to {"tokens", "logits"}, as computed by Lockstep (test_hf_logits). Exits with
an error unless transformers loads all weights and computes the same logits.
"""
import json
import os
import sys

import torch
import transformers

TOLERANCE = 1e-4


def check(folder, ours):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        # The output layer of a tied model is not stored.
        names = [name for name in info[kind] if name != "lm_head.weight" or not model.config.tie_word_embeddings]
        if names:
            raise SystemExit(f"{folder}: {kind}: {names}")
    with torch.no_grad():
        logits = model.eval()(torch.tensor(ours["tokens"])).logits
    wanted = torch.tensor(ours["logits"])
    difference = ((logits - wanted).abs() / (1 + wanted.abs())).max().item()
    print(f"{folder}: {type(model).__name__}, difference {difference:.2e}")
    if not difference < TOLERANCE:
        raise SystemExit(f"{folder}: the logits differ by {difference}")


def check_tokenizer(folder, cases):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text, ids in cases:
        got = tokenizer.encode(text, add_special_tokens=False)
        if got != ids or tokenizer.decode(ids) != text:
            raise SystemExit(f"{folder}: {text!r} is {got}, not {ids}; decoded {tokenizer.decode(ids)!r}")
    print(f"{folder}: tokenizer, {len(cases)} texts")


def main():
    with open(sys.argv[1]) as file:
        ours = json.load(file)
    for folder in sys.argv[2:]:
        entry = ours[os.path.basename(folder)]
        check(folder, entry)
        if "texts" in entry:
            check_tokenizer(folder, entry["texts"])


main()
