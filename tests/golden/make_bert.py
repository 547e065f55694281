#!/usr/bin/env python3
"""Writes a small BERT with random weights as such models are published (bert/), and what PyTorch computes with it and with
all-MiniLM-L6-v2 (bert.txt; make_golden.py describes the format):

    python3 tests/golden/make_bert.py FOLDER      # that of all-MiniLM-L6-v2; needs torch, transformers, safetensors

`case/tokens` [B, N] and `case/lengths` [B]; `case/embeddings` [B, features]: the means over the lengths, of unit length,
computed in double. Tokens behind a length are 0.
"""
import json
import math
import pathlib
import sys

import safetensors.torch
import torch
import transformers

from make_golden import File, here

folder = here / "bert"
config = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": 160,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "pad_token_id": 0,
}


def vocabulary():
    """Special tokens, punctuation, letters alone and as what follows, and a few words."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = "the of and a to in is for that it with as on by this be are from at key query cluster attention model".split()
    pieces = "##s ##ing ##ed ##er ##ion ##ly ##ers ##al".split()
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *".,:;()-_/'\"=<>", *letters, *("##" + c for c in letters), *words, *pieces]
    tokens = list(dict.fromkeys(tokens))
    return tokens + [f"[unused{i}]" for i in range(config["vocab_size"] - len(tokens))]


def make_model():
    torch.manual_seed(22)
    model = transformers.BertModel(transformers.BertConfig(**config), add_pooling_layer=False)
    state = {}
    for name, value in model.state_dict().items():
        if not value.is_floating_point():
            continue
        scale = 0.5 if "embeddings" in name else 1 / math.sqrt(value.shape[-1])
        random = torch.randn(value.shape) * scale
        state[name] = (1 + 0.2 * random if name.endswith("LayerNorm.weight") else random).half()
    folder.mkdir(exist_ok=True)
    safetensors.torch.save_file(state, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "vocab.txt").write_text("".join(token + "\n" for token in vocabulary()))


def add_case(file, name, folder, lengths, stride):
    size = json.loads((folder / "config.json").read_text())
    state = {key: value.double() for key, value in safetensors.torch.load_file(folder / "model.safetensors").items()}
    settings = transformers.BertConfig(**size, attn_implementation="eager")
    model = transformers.BertModel(settings, add_pooling_layer=False).double().eval()
    missing, _ = model.load_state_dict(state, strict=False)
    assert not [key for key in missing if "position_ids" not in key and "token_type_ids" not in key], missing
    tokens = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in enumerate(lengths):
        tokens[row, :length] = (torch.arange(length) * stride + 31 * row + 7) % size["vocab_size"]
    lengths = torch.tensor(lengths)
    mask = torch.arange(tokens.shape[1])[None] < lengths[:, None]
    with torch.no_grad():
        hidden = model(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
    mean = (hidden * mask[..., None]).sum(1) / lengths[:, None]
    file.add(f"{name}/tokens", tokens)
    file.add(f"{name}/lengths", lengths)
    file.add(f"{name}/embeddings", mean / mean.norm(dim=1, keepdim=True))


if __name__ == "__main__":
    make_model()
    file = File("bert.txt", "BERT's embeddings of sentences: a small model (bert/) and all-MiniLM-L6-v2.")
    add_case(file, "small", folder, [1, 2, 5, 64, 129, 512], 37)
    add_case(file, "alone", folder, [33], 37)
    add_case(file, "minilm", pathlib.Path(sys.argv[1]), [1, 2, 17, 128, 512], 7919)
    file.close()
