"""What peers.py compares ours with, in PyTorch, and how that is timed on a GPU."""
import contextlib
import gc
import importlib.util
import math
import statistics
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

F = torch.nn.functional
HEADS, SIZE, HIDDEN = 6, 64, 1536
FEATURES = HEADS * SIZE

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION}
DTYPES = {"bf16": torch.bfloat16, "float32": torch.float32, "tf32": torch.float32}


class SdpaLayer(torch.nn.Module):
    """Post-norm, exact gelu, no dropout, as ours."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (torch.nn.Linear(FEATURES, FEATURES) for _ in range(4))
        self.linear1, self.linear2 = torch.nn.Linear(FEATURES, HIDDEN), torch.nn.Linear(HIDDEN, FEATURES)
        self.norm1, self.norm2 = torch.nn.LayerNorm(FEATURES), torch.nn.LayerNorm(FEATURES)

    def forward(self, x):
        B, N, _ = x.shape
        q, k, v = (p(x).view(B, N, HEADS, SIZE).transpose(1, 2) for p in (self.query, self.key, self.value))
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, N, FEATURES)
        x = self.norm1(x + self.out(attended))
        return self.norm2(x + self.linear2(F.gelu(self.linear1(x))))


def authors():
    """Their modules, or why they are not there."""
    try:
        from fast_transformers.attention.clustered_attention import ClusteredAttention
        from fast_transformers.attention.improved_clustered_attention import ImprovedClusteredAttention
        from fast_transformers.masking import FullMask, LengthMask

        return {"clustered": ClusteredAttention, "i-clustered": ImprovedClusteredAttention, "full": FullMask,
                "length": LengthMask}
    except Exception as error:  # missing, or built for another PyTorch
        return str(error)


def authors_attention(kind, length, batch, device="cpu"):
    modules = authors()
    torch.manual_seed(1)
    options = {"clusters": 100, "iterations": 10, "bits": 63, "attention_dropout": 0.0}
    attention = modules[kind](**options, **({"topk": 32} if kind == "i-clustered" else {}))
    shape = (batch, length, HEADS, SIZE)
    q, k, v = (torch.randn(shape, device=device, requires_grad=True) for _ in range(3))
    mask = modules["full"](length, length, device=device)
    lengths = modules["length"](torch.full((batch,), length, device=device))
    gradient = torch.randn(shape, device=device)

    def once():
        for x in (q, k, v):
            x.grad = None
        attention(q, k, v, mask, lengths, lengths).backward(gradient)

    return once


def authors_kmeans(length, batch):
    from fast_transformers.clustering.hamming import cluster

    torch.manual_seed(1)
    codes = torch.randint(0, 2**62, (batch, HEADS, length))
    lengths = torch.full((batch,), length, dtype=torch.int32)
    return lambda: cluster(codes, lengths, clusters=100, iterations=10, bits=63)


def flash_kmeans(length, batch, device):
    from flash_kmeans import batch_kmeans_Euclid

    x = torch.randn(batch * HEADS, length, SIZE, device=device, dtype=torch.bfloat16)
    return lambda: batch_kmeans_Euclid(x, n_clusters=100, max_iters=10, tol=0.0)


def materialized(q, k, v):
    """The paper's baseline: all N x N weights in memory. Scaling q is cheaper than scaling the scores."""
    return torch.softmax((q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1), -1) @ v


def workload(what, peer, length, batch, heads, head_size, precision, both, device):
    """A function that runs one batch: forward, or forward and gradients of all inputs and parameters."""
    if peer.startswith("authors' "):
        return authors_attention(peer.split()[1], length, batch, device)
    if peer == "flash-kmeans":
        return flash_kmeans(length, batch, device)
    torch.manual_seed(1)
    dtype = DTYPES[precision]
    if what == "layer":
        layer = SdpaLayer().to(device, dtype)
        shape, operands, learned, forward = (batch, length, FEATURES), 1, list(layer.parameters()), layer
    else:
        shape, operands, learned = (batch, heads, length, head_size), 3, []
        forward = materialized if peer == "materialized" else F.scaled_dot_product_attention
    inputs = [torch.randn(shape, device=device, dtype=dtype, requires_grad=both) for _ in range(operands)]
    gradient = torch.randn(shape, device=device, dtype=dtype) if both else None

    def once():
        backend = sdpa_kernel(BACKENDS[peer]) if peer in BACKENDS else contextlib.nullcontext()
        with torch.set_grad_enabled(both), backend:
            out = forward(*inputs)
            if both:
                torch.autograd.grad(out, inputs + learned, gradient)

    return once


def seconds_a_call(f, calls, cuda):
    """By CUDA events around the calls."""
    if not cuda:
        start = time.perf_counter()
        for _ in range(calls):
            f()
        return (time.perf_counter() - start) / calls
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(calls):
        f()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e-3 / calls


def time_and_memory(make, cuda, graph):
    """Median seconds a call, peak bytes with inputs and gradients, and how it was timed.

    Short calls are replayed as a CUDA graph, because launching their kernels would take longer than they do."""
    before = torch.cuda.memory_allocated() if cuda else 0
    once = make()
    inputs = torch.cuda.memory_allocated() - before if cuda else 0
    seconds_a_call(once, 1, cuda)  # libraries load, and keep memory of their own
    if cuda:
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    seconds = seconds_a_call(once, 1, cuda)
    peak = torch.cuda.max_memory_allocated() - before + inputs if cuda else None
    result = {"how": "calls", "peak_bytes": peak}
    run, times = once, [seconds]
    if cuda and graph and seconds < 0.02:
        try:
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured, stream=torch.cuda.current_stream()):
                once()
            run, result["how"] = captured.replay, "graph"
        except Exception as error:  # what PyTorch can still do in this process is not known
            return {"no_graph": str(error)[:300]}
    if seconds < 0.5:
        seconds = seconds_a_call(run, math.ceil(0.01 / seconds), cuda)  # and the clock rises
        calls, times = math.ceil(0.002 / seconds), []
        while not times or (len(times) < 20 and sum(times) * calls < 0.3):
            times.append(seconds_a_call(run, calls, cuda))
    return {**result, "seconds": statistics.median(times)}


def what_went_wrong(error):
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError) or "out of memory" in text:
        return "out of memory"
    if any(words in text for words in ("No available kernel", "No viable backend", "No execution plans", "No valid")):
        return "not supported"
    return "failed"


def measure(request, device):
    """time_and_memory of a request: workload's arguments, and whether to try a graph."""
    request = dict(request)
    cuda, graph = device == "cuda", request.pop("graph")
    torch.set_float32_matmul_precision("high" if request["precision"] == "tf32" else "highest")
    try:
        return time_and_memory(lambda: workload(**request, device=device), cuda, graph)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return {"error": what_went_wrong(error), "message": text[:300], "fatal": "CUDA error" in text}


def machine(device):
    """What is here, or why the peers cannot be measured."""
    if device == "cuda":
        if not torch.cuda.is_available():
            return {"error": "PyTorch finds no CUDA device"}
    result = {"torch": torch.__version__, "device": device}
    if device == "cuda":
        result.update(device=torch.cuda.get_device_name(), cuda=torch.version.cuda,
                      cudnn=torch.backends.cudnn.version())
    there = authors()
    result["authors"] = "" if isinstance(there, dict) else there
    result["flash_kmeans"] = "" if importlib.util.find_spec("flash_kmeans") else "No module named 'flash_kmeans'"
    return result


def serve(connection, device):
    """Answers measurements until the other end is closed. In a process of its own, which may crash or be killed."""
    try:
        here = machine(device)
        if device == "cuda" and "error" not in here:
            torch.cuda.set_stream(torch.cuda.Stream())  # the default stream cannot be captured
        connection.send(here)
        while True:
            request = connection.recv()
            answer = measure(request, device)
            gc.collect()  # all memory back, for the next one and for ours
            if device == "cuda" and not answer.get("fatal"):
                torch.cuda.empty_cache()
            connection.send(answer)
    except (EOFError, KeyboardInterrupt):
        pass
