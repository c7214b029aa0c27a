#include "experiments/metrics/environment.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/utsname.h>
#include <torch/headeronly/version.h>

#include <CLI/Version.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/kernels/simd.h"
#include "experiments/metrics/record_keys.h"

namespace specdec {
namespace {

constexpr const char* kUnknown = "unknown";
constexpr const char* kEarlier = "earlier";

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  if (::gmtime_r(&now, &parts) == nullptr) {
    return kUnknown;
  }
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string host_system() {
  utsname names{};
  if (::uname(&names) != 0) {
    return kUnknown;
  }
  return fmt::format("{} {} {}", names.sysname, names.release, names.machine);
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return kUnknown;
}

int64_t usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 0;
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
  return kUnknown;
#endif
}

/// The environments that a run was measured in, oldest first.
nlohmann::json environments_of(nlohmann::json recorded) {
  auto all = nlohmann::json::array();
  const auto earlier = recorded.find(kEarlier);
  if (earlier != recorded.end()) {
    if (earlier->is_array()) {
      all = *earlier;
    }
    recorded.erase(earlier);
  }
  all.push_back(std::move(recorded));
  return all;
}

/// "libraries.fmt" for "/libraries/fmt".
std::string dotted(std::string pointer) {
  pointer.erase(0, 1);
  std::replace(pointer.begin(), pointer.end(), '/', '.');
  return pointer;
}

/// Reads what is there: older versions wrote less.
class EnvironmentReader {
 public:
  explicit EnvironmentReader(const nlohmann::json& json) : keys_(json) {}

  Environment read() const {
    Environment found;
    for (const auto& [key, text] : {std::pair("commit", &found.commit),
                                    {"date", &found.date},
                                    {"host_system", &found.host_system},
                                    {"cpu", &found.cpu},
                                    {"thread_reason", &found.thread_reason},
                                    {"machine_profile", &found.machine_profile},
                                    {"gpu", &found.gpu},
                                    {"compiler", &found.compiler},
                                    {"build_type", &found.build_type},
                                    {"device", &found.device},
                                    {"model", &found.model},
                                    {"dtype", &found.dtype}}) {
      *text = keys_.text(key, *text);
    }
    found.cores = keys_.count("cores", found.cores);
    found.threads = keys_.count("threads", found.threads);
    found.prefill_threads = keys_.count("prefill_threads", found.prefill_threads);
    found.libraries = texts_by_name("libraries");
    found.weights = texts_by_name("weights");
    if (keys_.has("warnings")) {
      found.warnings = keys_.texts("warnings");
    }
    return found;
  }

 private:
  std::map<std::string, std::string> texts_by_name(const char* key) const {
    std::map<std::string, std::string> texts;
    if (keys_.has(key)) {
      const RecordKeys object = keys_.object(key);
      for (const auto& entry : keys_.at(key).items()) {
        texts[entry.key()] = object.text(entry.key().c_str());
      }
    }
    return texts;
  }

  RecordKeys keys_;
};

}  // namespace

Environment read_environment() {
  Environment environment;
  environment.commit = built_from_commit();
  environment.date = utc_now();
  environment.host_system = host_system();
  environment.cpu = fmt::format("{} ({})", cpu_model(), simd_level_name(simd_level()));
  environment.cores = usable_cores();
  environment.threads = at::get_num_threads();
  environment.compiler = compiler();
  environment.build_type = build_type();
  environment.libraries = library_versions();
  environment.libraries["libtorch"] = TORCH_VERSION;
  environment.libraries["CLI11"] = CLI11_VERSION;
  environment.libraries["fmt"] =
      fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100);
  environment.libraries["nlohmann_json"] =
      fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                  NLOHMANN_JSON_VERSION_PATCH);
  return environment;
}

nlohmann::json environment_json(const Environment& environment) {
  return {{"commit", environment.commit},
          {"date", environment.date},
          {"host_system", environment.host_system},
          {"cpu", environment.cpu},
          {"cores", environment.cores},
          {"threads", environment.threads},
          {"thread_reason", environment.thread_reason},
          {"prefill_threads", environment.prefill_threads},
          {"machine_profile", environment.machine_profile},
          {"gpu", environment.gpu},
          {"compiler", environment.compiler},
          {"build_type", environment.build_type},
          {"libraries", environment.libraries},
          {"device", environment.device},
          {"model", environment.model},
          {"dtype", environment.dtype},
          {"weights", environment.weights},
          {"warnings", environment.warnings}};
}

Environment parse_environment(const nlohmann::json& json, const std::string& where) {
  try {
    return EnvironmentReader(json).read();
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}; was it edited? Remove it, or run into a new folder.", where,
                            error.what()));
  }
}

nlohmann::json resumed_environment(nlohmann::json recorded, const Environment& now) {
  auto all = environments_of(recorded);
  auto next = environment_json(now);
  next[kEarlier] = nlohmann::json::array({all.back()});
  if (environment_changes(next).empty()) {
    return recorded;
  }
  next[kEarlier] = std::move(all);
  return next;
}

std::vector<std::string> environment_changes(const nlohmann::json& recorded) {
  std::map<std::string, std::vector<std::string>> values;
  for (const auto& environment : environments_of(recorded)) {
    const auto flat = environment.flatten();
    for (const auto& [key, value] : flat.items()) {
      auto& seen = values[dotted(key)];
      const auto text = value.is_string() ? value.get<std::string>() : value.dump();
      if (seen.empty() || seen.back() != text) {
        seen.push_back(text);
      }
    }
  }
  values.erase("date");
  values.erase("resumed");
  std::vector<std::string> changes;
  for (const auto& [key, seen] : values) {
    if (seen.size() > 1) {
      changes.push_back(fmt::format("{}: {}", key, fmt::join(seen, ", then ")));
    }
  }
  return changes;
}

}  // namespace specdec
