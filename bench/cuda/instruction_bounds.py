#!/usr/bin/env python3
"""What the instructions of the products on tensor cores allow, as a share of copy bandwidth.

Counts the instructions of each kernel's loop in the kernels' library, by cuobjdump and nvdisasm, and
compares them with what an H200 issues while it reads the loop's weights. Nothing is measured.

  bench/cuda/instruction_bounds.py build/gpu/libspecdec_cuda_kernels.so [--tools FOLDER]
"""
import argparse
import pathlib
import re
import subprocess
import tempfile

COPY = 4.3e12  # bytes a second
CLOCK = 1.7e9
SMS, SCHEDULERS = 132, 4
MMA_CYCLES = 6.4  # of a scheduler: mma.sync has some 63 % of the peak rate (arXiv:2402.13499)
CACHE = 5.5e12  # bytes a second from the second cache to all multiprocessors, a guess
FIRST_CACHE = SMS * 128 * CLOCK  # bytes a second from the multiprocessors' own caches
WARPS = 8  # of a block, or blocks of a cluster
REGISTERS = 65536

# Bytes of a tile of 16 outputs by 64 inputs, multiplications of a step, name in the symbols.
FORMATS = {
    "bfloat16": (2048, 3, "SixteenBitFragmentsILb1E"),
    "float16": (2048, 5, "SixteenBitFragmentsILb0E"),
    "Q8_0, int8": (1088, 3, "HalfScalesINS0_9ByteCodesILi128E"),
    "FP8_128": (1088, 3, "Fp8FragmentsILi1E"),
    "Q6_K": (896, 3, "SignedScalesINS0_11PackedCodesILi6E"),
    "Q5_K": (768, 3, "SuperScalesINS0_11PackedCodesILi5E"),
    "Q4_K": (640, 3, "SuperScalesINS0_11PackedCodesILi4E"),
    "Q4_0": (576, 3, "HalfScalesINS0_11PackedCodesILi4E"),
    "INT4_32": (640, 3, "Int4x32Fragments"),
    "IQ4_NL": (640, 3, "CodebookFragmentsILi32ELi1E"),
    "NF4": (640, 6, "CodebookFragmentsILi32ELi3E"),
}
INPUT_BYTES = {1: 12 * 32, 8: 12 * 256}  # of a tile of rows and 64 inputs: three parts of 16 bits


def kernels(library, tools):
    """Instructions and labels of each kernel of the products, with its registers."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(library).resolve())
        run = lambda *command: subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True).stdout
        usage = run(f"{tools}cuobjdump", "-res-usage", path)
        registers = dict(re.findall(r"Function (\S+):\s+REG:(\d+)", usage))
        run(f"{tools}cuobjdump", "-xelf", "all", path)
        for cubin in sorted(pathlib.Path(folder).glob("*.cubin")):
            if b"tensor_linear_cu" not in cubin.read_bytes():
                continue
            name, lines = None, {}
            for line in run(f"{tools}nvdisasm", "-c", str(cubin)).splitlines():
                if section := re.match(r'\s*\.section\s+\.text\.([^,\s"]+)', line):
                    name = section.group(1)
                    lines[name] = []
                elif name and (found := re.match(
                        r"\s*/\*[0-9a-f]+\*/\s+(.*?)\s*;|^(\.L_x_\d+):", line)):
                    lines[name].append(found.group(1) or found.group(2))
            for name, body in lines.items():
                yield name, int(registers.get(name, 0)), body


def loop(body):
    """Instructions of the longest loop, and mma among them."""
    labels = {line: i for i, line in enumerate(body) if line.startswith(".L_x_")}
    found = (0, 0)
    for i, line in enumerate(body):
        target = re.search(r"\bBRA\b.*?(\.L_x_\d+)", line)
        if target and labels.get(target.group(1), i) < i:
            inner = [x for x in body[labels[target.group(1)]:i + 1] if not x.startswith(".L_x_")]
            multiplications = sum("HMMA" in x for x in inner)
            if multiplications:
                found = max(found, (len(inner), multiplications))
    return found


def row(name, chunk, multiplications, tiles, outputs, found):
    registers, (instructions, mma) = found
    chunks = mma / (4 * multiplications * tiles)  # tiles of outputs and 64 inputs in the loop
    cycles = chunk / COPY * CLOCK * SMS * SCHEDULERS
    blocks = min(REGISTERS // (256 * -(-registers // 8) * 8), 8)
    shares = [cycles / (instructions / chunks), cycles / (4 * multiplications * tiles * MMA_CYCLES)]
    inputs = INPUT_BYTES[8] * tiles / outputs
    shares.append(CACHE / COPY * chunk / (chunk + inputs / WARPS))  # the warps of a block share them
    shares.append(CACHE / COPY * chunk / (chunk + inputs))
    shares.append(FIRST_CACHE / COPY * chunk / (chunk + inputs))
    text = " | ".join(f"{min(1, share):.0%}" for share in shares)
    one_row = CACHE / COPY * chunk / (chunk + INPUT_BYTES[1] / outputs)  # by blocks alone
    text += f" | {min(1, one_row):.0%}" if tiles == 1 else " | -"
    return (f"| {name} | {outputs * 16} x {tiles * 8} | {registers} | {blocks * WARPS} "
            f"| {instructions / chunks:.0f} | {text} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--tools", default="", help="folder of cuobjdump and nvdisasm")
    arguments = parser.parse_args()
    tools = f"{arguments.tools}/" if arguments.tools else ""
    print("| format | outputs x rows of a block | registers | warps an SM | instructions a chunk "
          "| issue | mma | second cache, clusters | second cache, blocks alone | first cache "
          "| second cache, 1 row |\n|---|---|---|---|---|---|---|---|---|---|---|")
    found = {name: (registers, loop(body)) for name, registers, body in kernels(arguments.library, tools)}
    for name, (chunk, multiplications, symbol) in FORMATS.items():
        for outputs, tiles in ((1, 1), (2, 1), (1, 4), (2, 4), (1, 8), (2, 8)):
            for mangled, kernel in found.items():
                if symbol in mangled and f"ELi{outputs}ELi{tiles}EEE" in mangled and kernel[1][0]:
                    print(row(name, chunk, multiplications, tiles, outputs, kernel))


if __name__ == "__main__":
    main()
