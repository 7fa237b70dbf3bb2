#!/usr/bin/env python3
"""Prints the processor time to compile programs that use the library, and a file with nothing but its main header.

    benchmarks/compile_time.py                                   # some examples with g++ -O3
    benchmarks/compile_time.py --against ../other/include vae    # beside other headers, in turns
    benchmarks/compile_time.py --compiler clang++ --precompiled  # with lockstep/lockstep.h as a precompiled header

Seconds are user and system time, the least of all rounds. No build is needed.
"""
import argparse
import os
import pathlib
import resource
import shlex
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = ["newton", "gru", "vae", "moe", "ring_attention", "gpipe", "dp_sgd", "fixed_point", "beam_search",
            "depthwise_cnn", "gaussian_process"]


def seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", default=EXAMPLES, help="names of files in examples/, without .cc")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--flags", default="-std=c++20 -O3")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=os.path.abspath, metavar="INCLUDE", help="a second folder of headers")
    parser.add_argument("--precompiled", action="store_true", help="also with a precompiled header")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        nothing = pathlib.Path(folder) / "include.cc"
        nothing.write_text("#include <lockstep/lockstep.h>\n")
        base = [options.compiler, *shlex.split(options.flags)]
        columns = {"seconds": [f"-I{ROOT}/include"]}
        if options.against:
            columns["against"] = [f"-I{options.against}"]
        if options.precompiled:
            header = pathlib.Path(folder) / "all.h"
            header.write_text(nothing.read_text())
            compiled = f"{header}.pch" if "clang" in options.compiler else f"{header}.gch"
            made = seconds([*base, *columns["seconds"], "-x", "c++-header", str(header), "-o", compiled])
            print(f"precompiled header: {made:.2f} s")
            use = ["-include-pch", compiled] if "clang" in options.compiler else ["-include", str(header)]
            columns["precompiled"] = [*columns["seconds"], *use]
        print(f"{'file':20}" + "".join(f"{name:>13}" for name in columns))
        for name in ["include", *options.examples]:
            source = nothing if name == "include" else ROOT / "examples" / f"{name}.cc"
            best = {}
            for _ in range(options.rounds):
                for column, flags in columns.items():
                    spent = seconds([*base, *flags, "-c", str(source), "-o", f"{folder}/out.o"])
                    best[column] = min(spent, best.get(column, spent))
            print(f"{name:20}" + "".join(f"{best[column]:13.2f}" for column in columns), flush=True)


if __name__ == "__main__":
    main()
