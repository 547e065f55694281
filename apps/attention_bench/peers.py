#!/usr/bin/env python3
"""Ours and others' side by side, interleaved in one run.

    pip install torch                                   # in a virtual environment outside the repository
    apps/attention_bench/peers.py --rows cpu --program build/cpu/bin
    apps/attention_bench/peers.py --device cuda --json peers.json

On the CPU: PyTorch's scaled_dot_product_attention in the same transformer layer, and the authors'
pytorch-fast-transformers where it is installed (pip install --no-build-isolation pytorch-fast-transformers, without
nvcc in the PATH: a few minutes). Prints, for each row, both medians and peer / ours: above 1, ours is faster; then what
is measured of ours alone, where less is better. With --beside FOLDER, two builds of ours: the median of the ratios of
--repeat pairs, other / ours, and the middle half of them; with --beside the same folder that is what the machine's noise
makes.

On a GPU: attention by PyTorch's backends (flash, cuDNN, memory-efficient), by an N x N matrix, and ours; the layer
beside cuDNN's. Prints time, rate and memory for each length, then Markdown tables and the lengths from which ours is
faster. A measurement that fails says so and the run goes on. Without PyTorch or a GPU only ours are measured.

--json FILE keeps the numbers.
"""
import argparse
import os


def numbers(text):
    return [int(word) for word in text.split(",")]


def words_of(*choices):
    def words(text):
        unknown = [word for word in text.split(",") if word not in choices]
        if unknown:
            raise argparse.ArgumentTypeError(f"expected {', '.join(choices)}, with a comma between; got {unknown[0]!r}")
        return text.split(",")

    return words


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--program", help="the folder of our programs: build/cpu/bin, or build/cuda/bin")
    parser.add_argument("--tokens", type=int, help="of a row with an aim: 16384, or on a GPU 131072")
    parser.add_argument("--json", metavar="FILE", help="keep the numbers here")
    cpu = parser.add_argument_group("with --device cpu")
    cpu.add_argument("--rows", choices=["cpu"], default="cpu", help="which table")
    cpu.add_argument("--only", default="", help="rows whose name has this in it")
    cpu.add_argument("--threads", type=int, default=os.cpu_count())
    cpu.add_argument("--repeat", type=int, default=5, help="how often each is measured, in turn, at the most")
    cpu.add_argument("--seconds", type=float, default=40, help="of a row, after which no repetition is begun")
    cpu.add_argument("--beside", metavar="FOLDER", help="another build of our programs in the peers' place (prints alone: no --json)")
    cuda = parser.add_argument_group("with --device cuda (lists have commas)")
    cuda.add_argument("--lengths", type=numbers, default=[4096, 1024, 16384, 65536], help="in this order")
    cuda.add_argument("--head-sizes", type=numbers, default=[64, 128])
    cuda.add_argument("--precisions", type=words_of("bf16", "float32", "tf32"), default=["bf16", "float32"])
    cuda.add_argument("--passes", type=words_of("both", "forward"), default=["both", "forward"])
    cuda.add_argument("--batch", type=int, default=4, help="of attention by length")
    cuda.add_argument("--heads", type=int, default=6, help="of attention")
    cuda.add_argument("--layer-lengths", type=numbers, default=[8192, 32768], help="of the layer; 0: no layer")
    cuda.add_argument("--rounds", type=int, default=2, help="how often each is measured, in turn")
    cuda.add_argument("--budget", type=float, default=300, help="seconds in all; what is left then is left out")
    cuda.add_argument("--show", metavar="FILE", help="only print the tables of a run's --json")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        import peers_cpu as peers
    else:
        import peers_cuda as peers
    arguments.program = arguments.program or f"build/{arguments.device}/bin"
    arguments.tokens = arguments.tokens or (16384 if arguments.device == "cpu" else 131072)
    peers.main(arguments)


if __name__ == "__main__":
    main()
