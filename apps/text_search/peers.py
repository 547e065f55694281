#!/usr/bin/env python3
"""`text-search embed` beside PyTorch: the same model, texts, batches and threads, in turn; needs torch.

    python3 apps/text_search/peers.py --model MODEL --program build/cpu/bin/text-search

Each text has the length exactly, so nothing is padded. Ours reads, tokenizes and writes, too; PyTorch gets tokens. Neither
loads the model within its time. PyTorch's layers call scaled_dot_product_attention. The last lines are i-clustered-25's time a
token beside full attention's, both ours.
"""
import argparse
import json
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile
import time

import torch
import torch.nn.functional as F


def load(folder):
    """config.json, and the tensors of model.safetensors."""
    data = (folder / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    kinds = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}
    weights = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            numbers = torch.frombuffer(bytearray(data[begin:end]), dtype=kinds[entry["dtype"]])
            weights[name] = numbers.reshape(entry["shape"])
    return json.loads((folder / "config.json").read_text()), weights


def embed(config, weights, tokens):
    """The embeddings of tokens [B, N] that nothing pads."""
    heads, epsilon = config["num_attention_heads"], config["layer_norm_eps"]
    linear = lambda x, name: F.linear(x, weights[name + ".weight"], weights[name + ".bias"])
    norm = lambda x, name: F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], epsilon)
    split = lambda x: x.unflatten(-1, (heads, -1)).transpose(1, 2)
    table = lambda kind: weights[f"embeddings.{kind}_embeddings.weight"]
    x = norm(table("word")[tokens] + table("position")[: tokens.shape[1]] + table("token_type")[0], "embeddings.LayerNorm")
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}."
        q, k, v = (split(linear(x, layer + "attention.self." + part)) for part in ("query", "key", "value"))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = norm(x + linear(mixed, layer + "attention.output.dense"), layer + "attention.output.LayerNorm")
        hidden = linear(F.gelu(linear(x, layer + "intermediate.dense")), layer + "output.dense")
        x = norm(x + hidden, layer + "output.LayerNorm")
    return F.normalize(x.mean(1), dim=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--lengths", default="128,512")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config, weights = load(options.model)
    vocabulary = (options.model / "vocab.txt").read_text().split("\n")
    words = [word for word in vocabulary if word.isascii() and word.isalpha() and len(word) > 1]  # a token each
    ids = {word: i for i, word in enumerate(vocabulary)}
    random.seed(1)
    print(f"batch {options.batch}, {options.threads} threads, PyTorch {torch.__version__}; medians of {options.rounds} rounds")
    for length in map(int, options.lengths.split(",")):
        texts = [random.choices(words, k=length - 2) for _ in range(options.batch * options.batches)]
        tokens = torch.tensor([[ids["[CLS]"], *map(ids.get, text), ids["[SEP]"]] for text in texts])
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "texts")
            file.write_text("".join(" ".join(text) + "\n" for text in texts))

            def ours(attention):
                out = pathlib.Path(folder, "out.safetensors")
                words = [options.program, "embed", "--model", options.model, "--text-file", file, "--out", out, "--json", "--quiet"]
                words += ["--batch", options.batch, "--threads", options.threads, "--attention", attention]
                result = json.loads(subprocess.run([*map(str, words)], check=True, capture_output=True).stdout)
                assert result["tokens"] == tokens.numel(), "a word that is not one token"
                data = out.read_bytes()
                (size,) = struct.unpack("<Q", data[:8])
                return result["seconds"], torch.frombuffer(bytearray(data[8 + size :]), dtype=torch.float32)

            def theirs():
                begin = time.perf_counter()
                with torch.inference_mode():
                    rows = torch.cat([embed(config, weights, batch) for batch in tokens.split(options.batch)])
                return time.perf_counter() - begin, rows.flatten()

            times = {"full": [], "PyTorch": [], "i-clustered-25": []}
            for _ in range(options.rounds + 1):
                for name, seconds in times.items():
                    taken, rows = theirs() if name == "PyTorch" else ours(name)
                    seconds.append(taken)
                    if name == "full":
                        reference = rows
                    elif name == "PyTorch":
                        worst = (rows - reference).abs().max().item()
        medians = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}  # the first warms up
        rate = {name: tokens.numel() / seconds for name, seconds in medians.items()}
        print(f"{length} tokens: ours {rate['full']:.0f} tokens/s, PyTorch {rate['PyTorch']:.0f}, "
              f"ratio {rate['full'] / rate['PyTorch']:.2f}; embeddings differ by at most {worst:.1e}")
        print(f"{length} tokens: i-clustered-25 {1e6 / rate['i-clustered-25']:.1f} us a token, full {1e6 / rate['full']:.1f}, "
              f"{medians['full'] / medians['i-clustered-25']:.2f} times as fast")


if __name__ == "__main__":
    main()
