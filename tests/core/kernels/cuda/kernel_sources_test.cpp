// What the kernels' sources have to look like.
#include <gmock/gmock.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace specdec::cuda {
namespace {

using testing::ElementsAre;
using testing::Pair;

/// Names of kernels with their first statements.
using Beginnings = std::vector<std::pair<std::string, std::string>>;

Beginnings beginnings_of(const std::string& source) {
  static const std::regex kernel(
      R"(__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\([^{]*\{\s*([^;]*;))");
  Beginnings all;
  for (std::sregex_iterator i(source.begin(), source.end(), kernel), end; i != end; ++i) {
    all.emplace_back((*i)[1], (*i)[2]);
  }
  return all;
}

TEST(KernelSourcesTest, FindsFirstStatements) {
  EXPECT_THAT(
      beginnings_of("__global__ void __launch_bounds__(kThreads) first_kernel(Task task) {\n"
                    "  await_earlier_kernels();\n  const int a = 1;\n}\n"
                    "template <class T>\n"
                    "__global__ void __launch_bounds__(kThreads, 2)\n"
                    "    second_kernel(Task<T, 2> task) {\n"
                    "  const int b = task.b;\n  await_earlier_kernels();\n}\n"
                    "__global__ void third_kernel(Task task) {\n"
                    "  if (task.c) {\n    await_earlier_kernels();\n  }\n}\n"),
      ElementsAre(Pair("first_kernel", "await_earlier_kernels();"),
                  Pair("second_kernel", "const int b = task.b;"),
                  Pair("third_kernel", "if (task.c) {\n    await_earlier_kernels();")));
}

// The emulation sees what a kernel of a graph reads before it waits. Most kernels are in graphs of
// models, but not all: that they wait first is checked here.
TEST(KernelSourcesTest, KernelsWaitForEarlierOnesFirst) {
  std::vector<std::string> early;
  int64_t kernels = 0;
  int64_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("core/kernels/cuda")) {
    if (entry.path().extension() != ".cu" && entry.path().extension() != ".cuh") {
      continue;
    }
    std::ifstream file(entry.path());
    const std::string source(std::istreambuf_iterator<char>(file), {});
    for (size_t i = source.find("__global__"); i != std::string::npos;
         i = source.find("__global__", i + 1)) {
      ++kernels;
    }
    for (const auto& [name, statement] : beginnings_of(source)) {
      ++found;
      if (statement != "await_earlier_kernels();") {
        early.push_back(name);
      }
    }
  }
  EXPECT_GT(found, 40);
  EXPECT_EQ(found, kernels);
  // It reads its first weights, which no kernel writes.
  EXPECT_THAT(early, ElementsAre("tensor_kernel"));
}

}  // namespace
}  // namespace specdec::cuda
