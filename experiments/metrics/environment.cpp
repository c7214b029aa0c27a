#include "experiments/metrics/environment.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <torch/headeronly/version.h>

#include <CLI/Version.hpp>
#include <chrono>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

namespace specdec {
namespace {

constexpr const char* kUnknown = "unknown";

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

}  // namespace

Environment read_environment() {
  Environment environment;
  environment.commit = built_from_commit();
  environment.date = utc_now();
  environment.host_system = host_system();
  environment.cpu = cpu_model();
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
          {"gpu", environment.gpu},
          {"compiler", environment.compiler},
          {"build_type", environment.build_type},
          {"libraries", environment.libraries},
          {"device", environment.device},
          {"dtype", environment.dtype},
          {"weights", environment.weights}};
}

Environment parse_environment(const nlohmann::json& json) {
  Environment environment;
  const auto read = [&json](const char* key, auto& value) {
    try {
      json.at(key).get_to(value);
    } catch (const nlohmann::json::exception&) {  // an older or edited file
    }
  };
  read("commit", environment.commit);
  read("date", environment.date);
  read("host_system", environment.host_system);
  read("cpu", environment.cpu);
  read("cores", environment.cores);
  read("threads", environment.threads);
  read("thread_reason", environment.thread_reason);
  read("gpu", environment.gpu);
  read("compiler", environment.compiler);
  read("build_type", environment.build_type);
  read("libraries", environment.libraries);
  read("device", environment.device);
  read("dtype", environment.dtype);
  read("weights", environment.weights);
  return environment;
}

}  // namespace specdec
