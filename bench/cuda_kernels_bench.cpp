// The CUDA kernels on a GPU, without LibTorch: products of 1 to 64 rows, with a matrix or with
// their experts', and attention, with weights and caches that come from memory. Writes a JSON
// object a line to standard output.
//
//     cuda_kernels_bench SHAPES            SHAPES: the folder bench/shapes
//     cuda_kernels_bench SHAPES --quick    fewer shapes and rows
//     cuda_kernels_bench SHAPES --smoke    each kernel once, small: what compute-sanitizer runs
//
// Exit code 77: there is no GPU.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cuda/attention_runs.h"
#include "bench/cuda/device.h"
#include "bench/cuda/products.h"
#include "bench/cuda/shapes.h"

namespace specdec::cuda {
namespace {

constexpr int kSkipped = 77;

struct Plan {
  std::vector<std::string> shapes;
  std::vector<int> rows;
  std::vector<int32_t> contexts;
  std::vector<int32_t> nodes;
  std::vector<std::string> formats;  ///< empty: all
};

Plan plan_of(bool quick) {
  if (quick) {
    return {{"gemma3-1b", "gemma3-12b"}, {1, 8, 32}, {1024, 16384}, {1, 8}, {"bfloat16", "Q8_0"}};
  }
  return {{"gemma3-1b", "gemma3-4b", "gemma3-12b", "gemma3-270m"},
          {1, 4, 8, 32, 64},
          {1024, 8192, 16384, 32768},
          {1, 8, 32},
          {}};
}

void print(const nlohmann::json& row) {
  std::printf("%s\n", row.dump().c_str());
  std::fflush(stdout);
}

/// `row` with what a timing means: bytes that must be read, per second and as a share of a copy's
/// rate.
nlohmann::json timed(nlohmann::json row, const Device& device, const Timing& timing, size_t bytes) {
  const double rate = static_cast<double>(bytes) / timing.seconds;
  row["microseconds"] = timing.seconds * 1e6;
  row["spread"] = timing.spread;
  row["bytes"] = bytes;
  row["bytes_per_second"] = rate;
  row["share_of_copy"] = rate / device.copy_bytes_per_second;
  return row;
}

/// Numbers of rows to time: all for the formats that are most used; for the others the least, a
/// draft's and the most.
std::vector<int> widths_of(const Plan& plan, const std::string& format) {
  const bool all = format == "bfloat16" || format == "Q8_0" || format == "Q4_K";
  return all || plan.rows.size() <= 3 ? plan.rows : std::vector<int>{1, 8, plan.rows.back()};
}

void run_product(const Device& device, const Plan& plan, const ModelShape& shape,
                 const MatrixShape& matrix, const ProductKernel& kernel) {
  if (matrix.in % kernel.block_inputs != 0) {
    return;
  }
  const ProductSize size = {matrix.outputs, matrix.in, plan.rows.back()};
  const int copies = cold_copies(device, kernel.bytes(size));
  const PreparedProduct product = kernel.prepare(size, copies);
  double one_row = 0;
  for (const int rows : widths_of(plan, kernel.format)) {
    const Timing timing =
        time_calls(copies, [&](int copy, void* stream) { product.run(copy, rows, stream); });
    one_row = rows == 1 ? timing.seconds : one_row;
    const size_t bytes = product.matrix_bytes +
                         sizeof(float) * static_cast<size_t>(rows) *
                             (static_cast<size_t>(matrix.in) + static_cast<size_t>(matrix.outputs));
    nlohmann::json row = {
        {"bench", "product"},           {"shape", shape.name},       {"matrix", matrix.name},
        {"count", matrix.count},        {"outputs", matrix.outputs}, {"in", matrix.in},
        {"format", kernel.format},      {"kernel", kernel.kernel},   {"rows", rows},
        {"v", timing.seconds / one_row}};
    print(timed(std::move(row), device, timing, bytes));
  }
}

bool takes(const Plan& plan, const std::string& format) {
  return plan.formats.empty() ||
         std::find(plan.formats.begin(), plan.formats.end(), format) != plan.formats.end();
}

void run_products(const Device& device, const Plan& plan, const ModelShape& shape) {
  for (const ProductKernel& kernel : product_kernels()) {
    if (takes(plan, kernel.format)) {
      for (const MatrixShape& matrix : matrices_of(shape)) {
        run_product(device, plan, shape, matrix, kernel);
      }
    }
  }
}

/// A token's experts differ from one call to the next, so their matrices come from memory.
void run_experts(const Device& device, const Plan& plan, const ModelShape& shape,
                 const ExpertKernel& kernel, const MatrixShape& matrix) {
  constexpr int kChoices = 8;
  const ExpertSize size = {matrix.outputs, matrix.in, shape.experts, shape.chosen,
                           plan.rows.back()};
  const PreparedExperts experts = kernel.prepare(size, kChoices);
  double one_row = 0;
  for (const int rows : plan.rows) {
    const Timing timing =
        time_calls(kChoices, [&](int choice, void* stream) { experts.run(choice, rows, stream); });
    one_row = rows == 1 ? timing.seconds : one_row;
    const auto numbers = static_cast<size_t>(rows) *
                         (static_cast<size_t>(matrix.in) +
                          static_cast<size_t>(shape.chosen) * static_cast<size_t>(matrix.outputs));
    nlohmann::json row = {{"bench", "experts"},
                          {"shape", shape.name},
                          {"matrix", matrix.name},
                          {"count", matrix.count},
                          {"outputs", matrix.outputs},
                          {"in", matrix.in},
                          {"experts", size.count},
                          {"chosen", size.chosen},
                          {"format", kernel.format},
                          {"kernel", kernel.kernel},
                          {"rows", rows},
                          {"v", timing.seconds / one_row}};
    print(timed(std::move(row), device, timing,
                experts.matrix_bytes(rows) + sizeof(float) * numbers));
  }
}

void run_experts(const Device& device, const Plan& plan, const ModelShape& shape) {
  for (const ExpertKernel& kernel : expert_kernels()) {
    if (takes(plan, kernel.format)) {
      for (const MatrixShape& matrix : expert_matrices_of(shape)) {
        if (matrix.in % kernel.block_inputs == 0) {
          run_experts(device, plan, shape, kernel, matrix);
        }
      }
    }
  }
}

/// Names of the formats in the order of KvFormat.
constexpr std::array kKvNames = {"float32", "bfloat16", "float16",      "fp8_e4m3", "q8",
                                 "q4",      "q3",       "hierarchical", "kivi2",    "kivi4"};

void run_attention(const Device& device, const ModelShape& shape, const AttentionSize& size) {
  const int copies = cold_copies(device, cache_bytes_of(size));
  const PreparedAttention attention = prepare_attention(size, copies);
  const Timing timing =
      time_calls(copies, [&](int copy, void* stream) { attention.run(copy, stream); });
  nlohmann::json row = {{"bench", "attention"},
                        {"shape", shape.name},
                        {"heads", size.heads},
                        {"kv_heads", size.kv_heads},
                        {"head_dim", size.head_dim},
                        {"context", size.context},
                        {"nodes", size.nodes},
                        {"window", size.window},
                        {"draft", size.tree ? "tree" : "chain"},
                        {"cache", kKvNames[static_cast<size_t>(size.format)]}};
  print(timed(std::move(row), device, timing, attention.cache_bytes));
}

void run_attentions(const Device& device, const Plan& plan, const ModelShape& shape) {
  AttentionSize size = {shape.heads, shape.kv_heads, shape.head_dim,     0, 0,
                        0,           false,          KvFormat::kBFloat16};
  for (const int32_t context : plan.contexts) {
    size.context = context;
    for (const int32_t nodes : plan.nodes) {
      size.nodes = nodes;
      run_attention(device, shape, size);
      if (nodes > 1) {
        size.tree = true;
        run_attention(device, shape, size);
        size.tree = false;
      }
    }
    size.nodes = 1;
    for (size_t format = 0; format < kKvNames.size(); ++format) {
      size.format = static_cast<KvFormat>(format);
      if (size.format != KvFormat::kBFloat16) {
        run_attention(device, shape, size);
      }
    }
    size.format = KvFormat::kBFloat16;
    if (context > shape.window) {
      size.window = shape.window;
      run_attention(device, shape, size);
      size.window = 0;
    }
  }
}

bool all_finite(const DeviceArray& out) {
  const std::vector<float> numbers = out.floats(out.bytes() / sizeof(float));
  return std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); });
}

/// Each kernel once on arrays that are no larger than it may read; whether all results are numbers.
bool smoke() {
  bool good = true;
  const auto report = [&](const std::string& what, const DeviceArray& out) {
    check(cudaDeviceSynchronize(), what.c_str());
    const bool finite = all_finite(out);
    print({{"bench", "smoke"}, {"what", what}, {"finite", finite}});
    good = good && finite;
  };
  for (const ProductKernel& kernel : product_kernels()) {
    for (const int rows : {1, 9}) {
      const PreparedProduct product = kernel.prepare({18, 512, rows}, 1);
      product.run(0, rows, nullptr);
      report(kernel.format + " " + kernel.kernel, product.out);
    }
  }
  for (const ExpertKernel& kernel : expert_kernels()) {
    for (const int tokens : {1, 11}) {
      const PreparedExperts experts = kernel.prepare({18, 512, 5, 2, tokens}, 1);
      experts.run(0, tokens, nullptr);
      report("experts " + kernel.format + " " + kernel.kernel, experts.out);
    }
  }
  for (size_t format = 0; format < kKvNames.size(); ++format) {
    for (const int32_t window : {0, 170}) {
      const PreparedAttention attention =
          prepare_attention({4, 1, 64, 200, 7, window, true, static_cast<KvFormat>(format)}, 1);
      attention.run(0, nullptr);
      report(std::string("attention ") + kKvNames[format], attention.out);
    }
  }
  for (const KvFormat format : {KvFormat::kKivi2, KvFormat::kKivi4}) {
    report(std::string("round_keys ") + kKvNames[static_cast<size_t>(format)],
           round_equal_keys(format));
  }
  return good;
}

int run(const std::string& shapes, const std::string& mode) {
  std::string reason;
  const std::unique_ptr<Device> device = find_device(reason);
  if (device == nullptr) {
    std::printf("skipped: no GPU: %s\n", reason.c_str());
    return kSkipped;
  }
  print({{"bench", "device"},
         {"card", device->name},
         {"processors", device->processors},
         {"memory_bytes", device->memory_bytes},
         {"l2_bytes", device->l2_bytes},
         {"cuda_driver", device->driver},
         {"cuda_runtime", device->runtime},
         {"copy_bytes_per_second", device->copy_bytes_per_second}});
  if (mode == "--smoke") {
    return smoke() ? 0 : 1;
  }
  const Plan plan = plan_of(mode == "--quick");
  for (const std::string& name : plan.shapes) {
    const ModelShape shape = read_shape(shapes, name);
    run_attentions(*device, plan, shape);
    run_products(*device, plan, shape);
  }
  run_experts(*device, plan, read_shape(shapes, "gemma4-26b-a4b"));
  return 0;
}

}  // namespace
}  // namespace specdec::cuda

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[2] : "";
  if (argc < 2 || argc > 3 || (!mode.empty() && mode != "--quick" && mode != "--smoke")) {
    std::fprintf(stderr, "usage: cuda_kernels_bench SHAPES [--quick|--smoke]\n");
    return 2;
  }
  return specdec::cuda::run(argv[1], mode);
}
