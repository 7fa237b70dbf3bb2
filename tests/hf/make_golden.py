#!/usr/bin/env python3
"""Makes tiny random GPT-2 and Llama models with transformers: make_golden.py OUTPUT_DIR

Each case is a folder OUTPUT_DIR/NAME as save_pretrained() writes it, with golden.json beside the weights: tokens
[batch, length] and the logits of them, computed in float32. tests/hf/run.sh compares them with Lockstep's.
"""
import json
import os
import sys

import torch
import transformers


def cases():
    sizes = dict(vocab_size=97, n_positions=32, n_embd=48, n_layer=2, n_head=4)
    yield "gpt2", transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    yield "gpt2_exact_gelu", transformers.GPT2LMHeadModel(
        transformers.GPT2Config(activation_function="gelu", n_inner=80, **sizes)
    )
    # Saved without the output layer: names have no prefix.
    yield "gpt2_base", transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    llama = dict(
        vocab_size=97,
        hidden_size=48,
        intermediate_size=112,
        num_hidden_layers=2,
        num_attention_heads=6,
        max_position_embeddings=64,
    )
    yield "llama", transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **llama))
    yield "llama_tied", transformers.LlamaForCausalLM(
        transformers.LlamaConfig(num_key_value_heads=6, tie_word_embeddings=True, rms_norm_eps=1e-5, **llama)
    )
    yield "llama_biases", transformers.LlamaForCausalLM(
        transformers.LlamaConfig(num_key_value_heads=3, attention_bias=True, mlp_bias=True, head_dim=16, **llama)
    )
    yield "mistral", transformers.MistralForCausalLM(
        transformers.MistralConfig(num_key_value_heads=2, sliding_window=None, **llama)
    )


def randomize(model):
    """Makes every parameter count: initial biases are 0 and initial scales are 1."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(noise * (0.1 if parameter.dim() > 1 else 0.3))


def main():
    out = sys.argv[1]
    torch.manual_seed(0)
    for name, model in cases():
        randomize(model)
        model = model.float().eval()
        tokens = torch.randint(0, 97, (2, 20), generator=torch.Generator().manual_seed(3))
        with torch.no_grad():
            logits = model(tokens).logits
        folder = os.path.join(out, name)
        saved = model.transformer if name == "gpt2_base" else model
        # Small shards, so that some cases have an index.
        shard = "40KB" if name in ("llama", "gpt2_base") else "5GB"
        saved.save_pretrained(folder, safe_serialization=True, max_shard_size=shard)
        with open(os.path.join(folder, "golden.json"), "w") as file:
            json.dump({"tokens": tokens.tolist(), "logits": logits.tolist()}, file)
        print(name, sorted(os.listdir(folder)))


main()
