#!/usr/bin/env python3
"""Writes the files in speech/ beside it.

    python3 tests/golden/make_speech.py DATA

DATA is what speech prepare makes of the corpus. Needs the packages kaldi-native-fbank, safetensors and numpy, and the
program flac.

tone.wav          0.2 s of a rising tone, with noise and an offset
piped.flac        the same as FLAC, without the number of samples, as programs write it into a pipe
tone.safetensors  its log-mel features with 40 and 80 filterbanks, as kaldi-native-fbank computes them
short.data        the beginnings of three sentences of DATA, as prepared data: 1.5 s each. Training has all three, dev the
                  second and the third, test the third. (The corpus is festvox-ru, Copyright 2005 Nickolay V. Shmyrev,
                  all rights reserved, BSD-like license: its file copyright in Debian.)
tests/apps/speech.cpp and tests/apps/speech.txt read them.
"""
import json
import pathlib
import subprocess
import sys
import wave

import kaldi_native_fbank
import numpy
from safetensors import safe_open
from safetensors.numpy import save_file

here = pathlib.Path(__file__).parent / "speech"
RATE, SENTENCES, FRAMES = 16000, ["ru_0001", "ru_0002", "ru_0004"], 150


def tone():
    seconds = numpy.arange(RATE // 5) / RATE
    x = 6000 * numpy.sin(2 * numpy.pi * (200 + 15000 * seconds) * seconds) + 900
    return (x + numpy.random.default_rng(1).normal(0, 40, x.shape)).round().astype("<i2")


def features(samples, filterbanks):
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = RATE
    options.frame_opts.dither = 0
    options.frame_opts.window_type = "hamming"
    options.frame_opts.preemph_coeff = 0.97
    options.mel_opts.num_bins = filterbanks
    options.use_energy = False
    fbank = kaldi_native_fbank.OnlineFbank(options)
    fbank.accept_waveform(RATE, samples.astype(float).tolist())
    fbank.input_finished()
    return numpy.stack([fbank.get_frame(i) for i in range(fbank.num_frames_ready)])


def beginnings(data):
    """The tensors and the metadata of short.data."""
    with safe_open(data, "numpy") as file:
        front_end = json.loads(file.metadata()["front_end"])
        tensors = {}
        for name in SENTENCES:
            alignment = file.get_tensor(name + "/alignment")[:FRAMES]
            runs = alignment[numpy.flatnonzero(numpy.diff(alignment, prepend=-1))]
            tensors[name + "/features"] = file.get_tensor(name + "/features")[:FRAMES]
            tensors[name + "/labels"] = runs[runs > 0]
            tensors[name + "/alignment"] = alignment
    parts = {"train": SENTENCES, "dev": SENTENCES[1:], "test": SENTENCES[2:]}
    return tensors, {"front_end": json.dumps(front_end), "parts": json.dumps(parts)}


def main():
    samples = tone()
    with wave.open(str(here / "tone.wav"), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    command = ["flac", "--silent", "--no-padding", "--blocksize=1152", "--stdout", str(here / "tone.wav")]
    flac = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    (here / "piped.flac").write_bytes(flac[:21] + bytes([flac[21] & 0xf0]) + bytes(20) + flac[42:])
    save_file({f"features{n}": features(samples, n) for n in (40, 80)}, here / "tone.safetensors")
    tensors, metadata = beginnings(sys.argv[1])
    save_file(tensors, here / "short.data", metadata)


if __name__ == "__main__":
    main()
