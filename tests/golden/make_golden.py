#!/usr/bin/env python3
"""Writes the golden files beside it with PyTorch, which the product itself never needs:

    python3 tests/golden/make_golden.py

They guard against reading a paper wrong twice, in the code and in its test. tests/golden/golden.h reads them.

Format: lines that begin with # are comments. An entry is a line `name: size size ...` (a scalar has no sizes), followed
by its numbers in row-major order, nine significant digits (which give a float32 back exactly), in lines of any length.
A name's parts are joined by /: case/tensor.

Optimizers (r_adam.txt, adam.txt, sgd.txt). `start/i` and `gradient/i` [20, shape of parameter i] are shared by all
cases; `case/options` and `case/after/i` [20, shape]: parameter i after each of the 20 steps.
Attention (attention.txt). q, dout, out [B, N, H, D or M] and so on, as in autograd/ops.h; `lengths` (of keys) [B],
`allowed` (1: may attend), `causal` and `scale` where the case has them. Computed in double from float32 inputs.
"""
import math
import pathlib

import torch

here = pathlib.Path(__file__).parent
steps = 20


class File:
    def __init__(self, name, what):
        self.path = here / name
        self.lines = [f"# {what}", f"# Made by make_golden.py with PyTorch {torch.__version__}; the format is described there."]

    def add(self, name, values):
        values = torch.as_tensor(values, dtype=torch.float64).detach()
        self.lines.append(f"{name}:" + "".join(f" {size}" for size in values.shape))
        numbers = [f"{value:.9g}" for value in values.flatten().tolist()]
        width = 8
        self.lines += [" ".join(numbers[i : i + width]) for i in range(0, len(numbers), width)]

    def close(self):
        self.path.write_text("\n".join(self.lines) + "\n")
        print(self.path.name, self.path.stat().st_size, "bytes")


def optimizer(name, what, make, option_names, cases):
    """make(parameters, **options) is the PyTorch optimizer."""
    file = File(name, what)
    file.lines.append("# options: " + " ".join(option_names))
    generator = torch.Generator().manual_seed(7)
    shapes = [(2, 3), (2,)]
    start = [torch.randn(shape, generator=generator) for shape in shapes]
    # Of very different sizes, so that it shows where epsilon is added; single zeros; and a parameter that gets none for
    # a while and then a large one.
    gradients = [torch.randn((steps, *shape), generator=generator) for shape in shapes]
    gradients[0][:, 0, 1] *= 1e-8
    gradients[0][:, 1, 0] *= 5
    gradients[0][3:9, 1, 2] = 0
    gradients[1][:10, 1] = 0
    for i in range(len(shapes)):
        file.add(f"start/{i}", start[i])
        file.add(f"gradient/{i}", gradients[i])
    for case, options in cases.items():
        parameters = [torch.nn.Parameter(x.clone()) for x in start]
        torch_optimizer = make(parameters, **options)
        after = [[] for _ in shapes]
        for step in range(steps):
            for i, parameter in enumerate(parameters):
                parameter.grad = gradients[i][step].clone()
            torch_optimizer.step()
            for i, parameter in enumerate(parameters):
                after[i].append(parameter.detach().clone())
        file.add(f"{case}/options", [options[name] for name in option_names])
        for i in range(len(shapes)):
            file.add(f"{case}/after/{i}", torch.stack(after[i]))
    file.close()


def adam_like(kind, **more):
    def make(parameters, lr, beta1, beta2, eps, weight_decay):
        return kind(parameters, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay, foreach=False, **more)

    return make


def adam_options(lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0):
    return dict(lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay)


def r_adam_switch(beta2):
    """The first step whose rho_t is above 5."""
    most = 2 / (1 - beta2) - 1
    rho = [most - 2 * t * beta2**t / (1 - beta2**t) for t in range(1, steps + 1)]
    return next((t + 1 for t in range(steps) if rho[t] > 5), None)


def optimizers():
    names = ["lr", "beta1", "beta2", "eps", "weight_decay"]
    cases = {
        "default": adam_options(0.05),
        "decay": adam_options(0.05, beta2=0.98, weight_decay=0.3),
        "short-memory": adam_options(0.05, beta1=0.8, beta2=0.9, eps=1e-4),
        "late": adam_options(0.02, beta1=0.5, beta2=0.7),
        "never": adam_options(0.02, beta2=0.5, weight_decay=0.1),
    }
    switches = {case: r_adam_switch(options["beta2"]) for case, options in cases.items()}
    print("first rectified step:", switches)
    assert switches["default"] == 6 and switches["late"] > 8 and switches["never"] is None
    optimizer("r_adam.txt", "torch.optim.RAdam, decoupled weight decay. First rectified step: " + str(switches),
              adam_like(torch.optim.RAdam, decoupled_weight_decay=True), names, cases)
    optimizer("adam.txt", "torch.optim.AdamW", adam_like(torch.optim.AdamW), names,
              {"default": adam_options(0.05), "decay": adam_options(0.02, 0.8, 0.95, 1e-4, 0.3)})

    def sgd(parameters, lr, momentum, weight_decay):
        return torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay, foreach=False)

    optimizer("sgd.txt", "torch.optim.SGD", sgd, ["lr", "momentum", "weight_decay"],
              {"plain": dict(lr=0.01, momentum=0.0, weight_decay=0.0),
               "decay": dict(lr=0.05, momentum=0.0, weight_decay=0.3),
               "momentum": dict(lr=0.01, momentum=0.9, weight_decay=0.3)})


def attention():
    file = File("attention.txt", "torch.nn.functional.scaled_dot_product_attention and its gradients")
    generator = torch.Generator().manual_seed(11)

    def case(name, B=1, N=3, S=3, H=1, D=3, M=3, lengths=None, causal=False, allowed=None, scale=None, spread=1.0):
        def draw(*shape):
            return torch.randn(shape, generator=generator).double()

        q, k, v, dout = spread * draw(B, N, H, D), spread * draw(B, S, H, D), draw(B, S, H, M), draw(B, N, H, M)
        q, k = q.float().double(), k.float().double()
        mask = torch.ones(B, H, N, S, dtype=torch.bool)
        if lengths is not None:
            mask &= (torch.arange(S) < torch.tensor(lengths)[:, None])[:, None, None, :]
        if causal:
            mask &= torch.arange(S) <= torch.arange(N)[:, None]
        if allowed is not None:
            allowed = torch.rand(allowed, generator=generator) < 0.6
            allowed[..., 0] = True  # what a query without keys gives is ours to say, not PyTorch's
            mask &= allowed
        assert mask.any(-1).all()
        inputs = [x.requires_grad_() for x in (q, k, v)]
        out = torch.nn.functional.scaled_dot_product_attention(
            *[x.transpose(1, 2) for x in inputs], attn_mask=mask, scale=scale).transpose(1, 2)
        out.backward(dout)
        if lengths is not None:
            file.add(f"{name}/lengths", lengths)
        if allowed is not None:
            file.add(f"{name}/allowed", allowed)
        if causal:
            file.add(f"{name}/causal", 1)
        if scale is not None:
            file.add(f"{name}/scale", scale)
        for part, value in dict(q=q, k=k, v=v, dout=dout, out=out, dq=q.grad, dk=k.grad, dv=v.grad).items():
            file.add(f"{name}/{part}", value)

    case("plain", B=2, N=3, S=3, H=2, D=2, M=2)
    case("cross", N=5, S=3, H=2, D=3, M=2, scale=0.7)
    case("cross-longer", N=2, S=7, D=2, M=3)
    case("one-key", N=2, S=1, D=2, M=2)
    case("lengths", B=3, N=2, S=5, H=1, D=2, M=2, lengths=[5, 1, 3])
    case("causal", N=5, S=5, H=2, D=2, M=2, causal=True)
    case("causal-cross", B=2, N=3, S=5, D=2, M=2, causal=True, lengths=[2, 5])
    case("mask", B=2, N=3, S=4, H=2, D=2, M=2, allowed=(2, 2, 3, 4))
    case("mask-of-keys", B=2, N=2, S=5, H=2, D=2, M=1, allowed=(2, 1, 1, 5), causal=True)
    case("mask-of-heads", N=3, S=4, H=3, D=2, M=1, allowed=(3, 1, 4))
    case("peaked", N=4, S=6, D=4, M=2, spread=6.0)  # scores of some tens
    file.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    optimizers()
    attention()
