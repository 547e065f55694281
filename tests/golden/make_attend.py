#!/usr/bin/env python3
"""Writes the files in attend/ beside it: inputs of the program attend, and what PyTorch, in double and from dense matrices
of weights, makes of them.

    python3 tests/golden/make_attend.py

tests/apps/attend.cpp runs the program on them. Beside what attend reads (q, k, v, labels, grad_out, lengths) a file has
`<variant>/out`, `<variant>/grad_q` and so on. The variants: full, shared-full, oracle-top-3, clustered-4 and
i-clustered-4:topk=3. Gradients are autograd's; labels and top keys are constants to it.
"""
import math
import pathlib

import torch
from safetensors.torch import save_file

here = pathlib.Path(__file__).parent / "attend"
B, H, D, M, clusters, top = 2, 2, 4, 3, 4, 3


def softmax_rows(scores, seen):
    """Over the keys that are seen; rows that see nothing are zero."""
    weights = torch.exp(scores - scores.max(-1, keepdim=True).values) * seen
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total > 0, total, torch.ones_like(total))


def top_of(weights):
    """1 where a weight is among the largest of its row (ties: the lower index), only where it is positive."""
    order = torch.sort(weights.detach(), dim=-1, descending=True, stable=True).indices[..., :top]
    return torch.zeros_like(weights).scatter(-1, order, 1) * (weights.detach() > 0)


def renormalized(scores, chosen, seen):
    return softmax_rows(scores, chosen * seen)


def variants(q, k, v, labels, query_lengths, key_lengths):
    """Outputs [B, N, H, M] by name."""
    N, S = q.shape[1], v.shape[1]
    valid = (torch.arange(N)[None, :] < query_lengths[:, None]).double()[:, None, :, None]
    keys = (torch.arange(S)[None, :] < key_lengths[:, None]).double()[:, None, None, :]
    heads = lambda x: x.transpose(1, 2)  # [B, H, N, D]
    scores = lambda a, b: heads(a) @ heads(b).transpose(2, 3) / math.sqrt(D)
    output = lambda weights: heads((weights * valid) @ heads(v))

    own = scores(q, k)
    result = {"full": output(softmax_rows(own, keys))}
    if N == S:
        result["shared-full"] = output(softmax_rows(scores(q, q), keys))
    full = softmax_rows(own, keys)
    result["oracle-top-3"] = output(renormalized(own, top_of(full), keys))

    member = torch.nn.functional.one_hot(labels.clamp(min=0), clusters).double() * (labels >= 0)[..., None]  # [B, H, N, C]
    counts = member.sum(2)
    centroids = member.transpose(2, 3) @ heads(q) / counts.clamp(min=1)[..., None]
    by_cluster = softmax_rows(centroids @ heads(k).transpose(2, 3) / math.sqrt(D), keys)  # [B, H, C, S]
    result["clustered-4"] = output(member @ by_cluster)

    chosen = top_of(by_cluster)
    mass = (by_cluster * chosen).sum(-1, keepdim=True)
    improved = member @ (by_cluster * (1 - chosen)) + (member @ mass) * renormalized(own, member @ chosen, keys)
    result["i-clustered-4:topk=3"] = output(improved)
    return result


def write(name, N, S, query_lengths=None, key_lengths=None):
    generator = torch.Generator().manual_seed(len(name))
    random = lambda *shape: torch.randn(*shape, generator=generator).double()  # exact in float32
    x = {"q": random(B, N, H, D), "k": random(B, S, H, D), "v": random(B, S, H, M), "grad_out": random(B, N, H, M)}
    labels = torch.randint(0, clusters - 1, (B, H, N), generator=generator)  # the last cluster is empty
    if query_lengths:
        x |= {"query_lengths": torch.tensor(query_lengths), "key_lengths": torch.tensor(key_lengths, dtype=torch.int32)}
        labels = torch.where(torch.arange(N) < torch.tensor(query_lengths)[:, None, None], labels, -1)
    x["labels"] = labels.int()
    for p in ("q", "k", "v"):
        x[p].requires_grad_()
    everything = [torch.full((B,), n) for n in (N, S)]
    outputs = variants(x["q"], x["k"], x["v"], labels, x.get("query_lengths", everything[0]), x.get("key_lengths", everything[1]))
    tensors = {key: value.detach() for key, value in x.items()}
    for variant, out in outputs.items():
        operands = "qv" if variant == "shared-full" else "qkv"
        gradients = torch.autograd.grad(out, [x[p] for p in operands], x["grad_out"], retain_graph=True)
        tensors[f"{variant}/out"] = out.detach()
        tensors |= {f"{variant}/grad_{p}": g for p, g in zip(operands, gradients)}
    save_file({key: value.contiguous() for key, value in tensors.items()}, here / f"{name}.safetensors", {"made": "by make_attend.py"})


write("self", 11, 11)
write("lengths", 11, 11, [9, 4], [9, 4])
write("cross", 6, 13)
write("cross_lengths", 6, 13, [6, 3], [2, 10])
