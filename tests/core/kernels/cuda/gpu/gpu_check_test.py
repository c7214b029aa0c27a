#!/usr/bin/env python3
"""Tests parts of scripts/gpu_check without a GPU: gpu_check_test.py FOLDER, with the programs that were built."""
import importlib.machinery
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
PROGRAMS = Path(sys.argv.pop())
LOADER = importlib.machinery.SourceFileLoader("gpu_check", "scripts/gpu_check")
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", LOADER))
LOADER.exec_module(gpu_check)


class ExportsTest(unittest.TestCase):
    def test_the_library_shows_its_c_interface_alone(self):
        self.assertIn("specdec_cuda_tensor_linear", gpu_check.exported(PROGRAMS / gpu_check.KERNELS))
        self.assertEqual(gpu_check.wrong_exports(PROGRAMS), [])

    def test_what_else_is_shown_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            source = folder / "more.cpp"
            source.write_text("template <class T> int launch(T x) { return x; }\n"
                              'extern "C" int specdec_cuda_entry(int x) { return launch(x); }\n', encoding="utf-8")
            library = folder / gpu_check.KERNELS
            command = ["c++", "-shared", "-fPIC", "-O0", str(source), "-o", str(library)]
            subprocess.run(command, check=True)
            shutil.copyfile(library, folder / "program")
            source.unlink()
            self.assertEqual(gpu_check.wrong_exports(folder), [f"{gpu_check.KERNELS}: shows _Z6launchIiEiT_",
                                                               "program: defines specdec_cuda_entry"])


if __name__ == "__main__":
    unittest.main()
