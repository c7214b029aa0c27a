#include "experiments/run/quality_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/formats/strict_json.h"
#include "core/hash.h"
#include "experiments/run/scorer_program.h"

namespace specdec {
namespace {

bool needs_program(const Prompt& prompt) {
  return std::any_of(prompt.answer_keys.begin(), prompt.answer_keys.end(),
                     [](const auto& key) { return key && key->scorer == Scorer::kProgram; });
}

std::filesystem::path read_program(const ConfigNode& node) {
  if (!node.has("scorer_program")) {
    return {};
  }
  auto program = node.require_path("scorer_program");
  const auto mistake = program.empty() ? "" : program_mistake(program);
  if (!mistake.empty()) {
    node.fail("scorer_program", mistake);
  }
  return program;
}

/// "" for what is no program; that mistake is noted elsewhere.
std::string fingerprint_of(const std::filesystem::path& program) {
  if (program.empty() || !program_mistake(program).empty()) {
    return "";
  }
  const std::string bytes = read_file(program);
  return fmt::format("{:016x}", hash_bytes(bytes.size(), bytes.data(), bytes.size()));
}

}  // namespace

QualityConfig read_quality(const ConfigNode& root, const std::vector<Prompt>& prompts) {
  const auto node = root.child("quality", false);
  QualityConfig config;
  config.margin = node.get<double>("margin", config.margin, {0.0, 1.0});
  config.measure_loss = node.get<bool>("measure_loss", config.measure_loss);
  config.scorer_program = read_program(node);
  config.scorer_fingerprint = fingerprint_of(config.scorer_program);
  config.scorer_seconds =
      node.get<double>("scorer_seconds", config.scorer_seconds, {0.01, 86400.0});
  const auto scored = std::find_if(prompts.begin(), prompts.end(), needs_program);
  if (scored != prompts.end() && !node.has("scorer_program")) {
    node.fail("scorer_program",
              fmt::format("is missing: prompt '{}' is scored by a program, and only the config can "
                          "name one to run, such as quality: {{scorer_program: score.py}}",
                          scored->id));
  }
  return config;
}

}  // namespace specdec
