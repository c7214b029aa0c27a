#!/usr/bin/env python3
"""Tests parts of scripts/gpu_check without a GPU: gpu_check_test.py FOLDER, with the programs that were built."""
import importlib.machinery
import importlib.util
import os
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

NOT_SUPPORTED = "========= Error: Device not supported. Please refer to the section of supported devices.\n"


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


class SanitizerTest(unittest.TestCase):
    def sanitize(self, script):
        """The step, with a compute-sanitizer of one's own."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            tool = folder / "compute-sanitizer"
            tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            tool.chmod(0o755)
            check = gpu_check.Check("full", folder / "out")
            check.programs = folder
            check.environment["PATH"] = f"{folder}:{os.environ['PATH']}"
            with check.log_file:
                return gpu_check.sanitize(check)

    def test_clean_runs_pass(self):
        self.assertEqual(self.sanitize("exit 0")[0], "passed")

    def test_errors_fail(self):
        state, note = self.sanitize("echo '========= ERROR SUMMARY: 2 errors'; exit 9")
        self.assertEqual(state, "failed")
        self.assertIn("2 errors", note)

    def test_a_device_that_it_does_not_support_is_skipped(self):
        state, note = self.sanitize(f"printf '{NOT_SUPPORTED}'; exit 1")
        self.assertEqual(state, "skipped")
        self.assertIn("Device not supported", note)

    def test_a_program_that_sees_no_gpu_under_it_is_skipped(self):
        state, note = self.sanitize("echo 'skipped: no GPU: unknown error'; exit 77")
        self.assertEqual((state, note.split(": ", 1)[1]), ("skipped", "skipped: no GPU: unknown error"))

    def test_one_error_among_refusals_fails(self):
        script = ("case $2 in racecheck) echo '========= RACECHECK SUMMARY: 1 hazard'; exit 9;; esac\n"
                  f"printf '{NOT_SUPPORTED}'; exit 1")
        self.assertEqual(self.sanitize(script)[0], "failed")

    def test_where_all_pass_what_it_prints_does_not_matter(self):
        self.assertEqual(self.sanitize(f"printf '{NOT_SUPPORTED}'")[0], "passed")


class ErrorsTest(unittest.TestCase):
    def test_the_largest_error_of_a_suite(self):
        cases = [{"name": "A"}, {"largest_error": "3e-07"}, {"largest_error": "4.5e-07"}]
        report = {"testsuites": [{"testsuite": cases}]}
        self.assertEqual(gpu_check.measured_errors(report), {"largest_error": 4.5e-07})
        self.assertEqual(gpu_check.measured_errors({}), {})


if __name__ == "__main__":
    unittest.main()
