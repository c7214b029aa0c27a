#include "experiments/run/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/formats/strict_json.h"
#include "experiments/metrics/record_keys.h"
#include "experiments/metrics/run_records.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.yaml";
constexpr const char* kEnvironment = "environment.json";
constexpr const char* kResumed = "resumed";  // a key of it
constexpr const char* kCostCurve = "cost_curve.json";
constexpr const char* kGenerations = "generations.jsonl";
constexpr const char* kSteps = "steps.jsonl";
constexpr const char* kTraces = "traces.jsonl";

[[noreturn]] void fail(const fs::path& path, const char* what, int code, const char* advice) {
  throw Error(fmt::format("{}: {}: {}. {}", path.string(), what, std::strerror(code), advice));
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      return false;
    }
    bytes.remove_prefix(written < 0 ? 0 : static_cast<size_t>(written));
  }
  return true;
}

void make_folder(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (code || !fs::is_directory(path)) {
    throw Error(fmt::format("{}: cannot make this folder: {}. Name another with --out.",
                            path.string(), code ? code.message() : "there is a file of that name"));
  }
}

/// Some disks report only at the flush that they are full or read-only.
void probe(const fs::path& folder) {
  const fs::path path = folder / fmt::format(".probe-{}", ::getpid());
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const std::string block(size_t{64} << 10U, '\0');
  const bool written = descriptor >= 0 && write_all(descriptor, block) && ::fsync(descriptor) == 0;
  const int code = errno;
  if (descriptor >= 0) {
    ::close(descriptor);
    ::unlink(path.c_str());
  }
  if (!written) {
    fail(folder, "cannot write in this folder", code,
         "Make room, change its permissions, or name another folder with --out.");
  }
}

void check_space(const fs::path& folder, int64_t needed_bytes) {
  std::error_code code;
  const fs::space_info space = fs::space(folder, code);
  if (!code && space.available < static_cast<uintmax_t>(std::max<int64_t>(needed_bytes, 0))) {
    throw Error(fmt::format(
        "{}: only {} MiB are free on this disk, and the run needs {} MiB. Make room, or "
        "name a folder on another disk with --out.",
        folder.string(), space.available >> 20U, needed_bytes >> 20U));
  }
}

int open_to(const fs::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    fail(path, "cannot open", errno, "Change its permissions, or name another folder with --out.");
  }
  return descriptor;
}

off_t file_size(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 ? status.st_size : -1;
}

/// The first line in which two texts differ, "line 3: 'seed: 1', and not 'seed: 2'".
std::string first_difference(std::string_view old_text, std::string_view new_text) {
  for (int64_t line = 1;; ++line) {
    const std::string_view old_line = old_text.substr(0, old_text.find('\n'));
    const std::string_view new_line = new_text.substr(0, new_text.find('\n'));
    if (old_line != new_line || old_text.empty() || new_text.empty()) {
      return fmt::format("line {}: '{}' there, '{}' now", line, old_line, new_line);
    }
    old_text.remove_prefix(std::min(old_line.size() + 1, old_text.size()));
    new_text.remove_prefix(std::min(new_line.size() + 1, new_text.size()));
  }
}

std::string read_if_there(const fs::path& path) {
  return fs::exists(path) ? read_file(path) : std::string();
}

RunRecords read_run_records(const fs::path& folder) {
  const std::string generations = read_if_there(folder / kGenerations);
  const std::string steps = read_if_there(folder / kSteps);
  return parse_run_records({generations, (folder / kGenerations).string()},
                           {steps, (folder / kSteps).string()});
}

nlohmann::json read_object(const fs::path& path) {
  auto object = parse_strict_json(read_file(path), path.string());
  if (!object.is_object()) {
    throw Error(path.string() + ": is not a JSON object; was it edited? Run into a new folder.");
  }
  return object;
}

/// A folder of something else is left as it is.
void check_is_run(const fs::path& folder) {
  std::error_code code;
  if (!fs::is_directory(folder, code) || fs::exists(folder / kConfig) ||
      fs::exists(folder / kGenerations)) {
    return;
  }
  const fs::directory_iterator entry(folder, code);
  if (!code && entry != fs::directory_iterator()) {
    throw Error(fmt::format(
        "{}: this folder holds other files ('{}') and no run, so nothing is written there. Name a "
        "new or empty folder with --out.",
        folder.string(), entry->path().filename().string()));
  }
}

}  // namespace

RunFolder::RunFolder(fs::path path, std::string_view config_text, int64_t needed_bytes)
    : made_(path), path_(std::move(path)) {
  check_is_run(path_);
  make_folder(path_);
  made_.lock();
  probe(path_);
  check_space(path_, needed_bytes);
  check_config(config_text);
  repair_records();
  repair_traces();
  generations_file_.reset(open_to(path_ / kGenerations, O_WRONLY | O_CREAT | O_APPEND));
  steps_file_.reset(open_to(path_ / kSteps, O_WRONLY | O_CREAT | O_APPEND));
}

void RunFolder::check_config(std::string_view config_text) {
  const fs::path config = path_ / kConfig;
  resumed_ = fs::exists(config);
  if (!resumed_) {
    if (fs::exists(path_ / kGenerations)) {
      throw Error(
          fmt::format("{}: holds records but no {}, so they cannot be continued. Name "
                      "another folder with --out.",
                      path_.string(), kConfig));
    }
    write(kConfig, config_text);
    return;
  }
  const std::string old_text = read_file(config);
  if (old_text != config_text) {
    throw Error(
        fmt::format("{}: this folder holds a run of another config ({}). Name another "
                    "folder with --out, or use the same config to resume.",
                    config.string(), first_difference(old_text, config_text)));
  }
}

void RunFolder::repair_records() {
  RunRecords read = read_run_records(path_);
  dropped_ = read.dropped;
  if (read.damaged) {
    // In this order: steps without a generation are dropped again, should this be interrupted.
    write(kGenerations, read.generation_lines);
    write(kSteps, read.step_lines);
  }
  records_ = std::move(read.records);
  for (const GenerationRecord& record : records_) {
    keys_.insert(record.key);
  }
}

const GenerationRecord& RunFolder::record(const GenerationKey& key) const {
  const auto found =
      std::find_if(records_.begin(), records_.end(),
                   [&](const GenerationRecord& record) { return record.key == key; });
  SPECDEC_CHECK(found != records_.end(), "prompt '{}' of strategy '{}' was not recorded",
                key.prompt_id, key.strategy);
  return *found;
}

void RunFolder::repair_traces() {
  const fs::path path = path_ / kTraces;
  if (!fs::exists(path)) {
    return;
  }
  const std::string text = read_file(path);
  const size_t whole = text.rfind('\n') + 1;  // 0 when there is no whole line
  if (whole < text.size()) {
    write(kTraces, std::string_view(text).substr(0, whole));
  }
  for (const TraceRecord& record : read_traces(path)) {
    traced_.insert(record.key);
  }
}

void RunFolder::append(const TraceRecord& record) {
  made_.keep();
  if (traces_file_.get() < 0) {
    traces_file_.reset(open_to(path_ / kTraces, O_WRONLY | O_CREAT | O_APPEND));
  }
  const off_t before = file_size(traces_file_.get());
  if (!write_all(traces_file_.get(), write_trace_line(record))) {
    const int code = errno;
    const bool restored = ::ftruncate(traces_file_.get(), before) == 0;
    fail(path_, restored ? "cannot record a trace" : "cannot record a whole trace", code,
         "All earlier ones are kept. Make room on the disk, then give the same command with --out "
         "naming this folder to continue.");
  }
  traced_.insert(record.key);
}

void RunFolder::append(GenerationRecord record) {
  made_.keep();
  SPECDEC_CHECK(!holds(record.key), "prompt '{}' of strategy '{}' is recorded twice",
                record.key.prompt_id, record.key.strategy);
  const RecordLines lines = write_record_lines(record);
  const off_t steps_before = file_size(steps_file_.get());
  const off_t generations_before = file_size(generations_file_.get());
  if (!write_all(steps_file_.get(), lines.steps) ||
      !write_all(generations_file_.get(), lines.generation)) {
    const int code = errno;
    // Should taking it back fail too, the next opening drops the part.
    const bool restored = ::ftruncate(generations_file_.get(), generations_before) == 0 &&
                          ::ftruncate(steps_file_.get(), steps_before) == 0;
    fail(path_, restored ? "cannot record a generation" : "cannot record a whole generation", code,
         "All earlier ones are kept. Make room on the disk, then give the same command with --out "
         "naming this folder to continue.");
  }
  keys_.insert(record.key);
  records_.push_back(std::move(record));
}

void RunFolder::replace(const std::vector<GenerationRecord>& changed) {
  std::map<GenerationKey, const GenerationRecord*> by_key;
  for (const GenerationRecord& record : changed) {
    by_key[record.key] = &record;
  }
  auto records = records_;
  std::string lines;
  for (GenerationRecord& record : records) {
    if (const auto found = by_key.find(record.key); found != by_key.end()) {
      record = *found->second;
    }
    lines += write_record_lines(record).generation;
  }
  write(kGenerations, lines);
  records_ = std::move(records);
  generations_file_.reset(open_to(path_ / kGenerations, O_WRONLY | O_CREAT | O_APPEND));
}

std::optional<Environment> RunFolder::recorded_environment() const {
  const fs::path file = path_ / kEnvironment;
  if (!fs::exists(file)) {
    return std::nullopt;
  }
  return parse_environment(read_object(file), file.string());
}

void RunFolder::check_weights(const std::map<std::string, std::string>& weights) const {
  const auto recorded = recorded_environment().value_or(Environment{}).weights;
  for (const auto& [name, fingerprint] : weights) {
    const auto before = recorded.find(name);
    if (before != recorded.end() && before->second != fingerprint) {
      throw Error(
          fmt::format("{}: the weights in {} changed since this run began (fingerprint {}, "
                      "then {}); use another --out",
                      path_.string(), name, fingerprint, before->second));
    }
  }
}

void RunFolder::write_environment(const Environment& environment) {
  const fs::path file = path_ / kEnvironment;
  const bool has_measured = !records_.empty() || fs::exists(path_ / kCostCurve);
  auto json = has_measured && fs::exists(file) ? resumed_environment(read_object(file), environment)
                                               : environment_json(environment);
  if (!records_.empty()) {
    json[kResumed] = true;
  }
  write(kEnvironment, json.dump(2) + "\n");
}

bool RunFolder::was_resumed() const {
  const fs::path file = path_ / kEnvironment;
  return fs::exists(file) && read_object(file).contains(kResumed);
}

std::vector<std::string> RunFolder::environment_changes() const {
  const fs::path file = path_ / kEnvironment;
  return fs::exists(file) ? specdec::environment_changes(read_object(file))
                          : std::vector<std::string>();
}

void RunFolder::write_cost_curve(std::string_view model, const CostCurve& curve) {
  auto all = fs::exists(path_ / kCostCurve) ? read_object(path_ / kCostCurve)
                                            : nlohmann::json(nlohmann::json::value_t::object);
  SPECDEC_CHECK(!read_cost_curve(model), "the cost curve of '{}' is frozen", model);
  SPECDEC_CHECK(!curve.points.empty(), "the cost curve of '{}' is empty", model);
  auto points = nlohmann::json::array();
  for (const CostPoint& point : curve.points) {
    points.push_back(
        {{"new_tokens", point.new_tokens}, {"context", point.context}, {"seconds", point.seconds}});
  }
  all[std::string(model)] = std::move(points);
  write(kCostCurve, all.dump(2) + "\n");
}

std::optional<CostCurve> RunFolder::read_cost_curve(std::string_view model) const {
  return load_cost_curve(path_, model);
}

void RunFolder::write(std::string_view file_name, std::string_view text) {
  const fs::path file = path_ / file_name;
  if (file.parent_path() != path_) {
    make_folder(file.parent_path());
  }
  write_file(file, text);
}

RunFolder::File::~File() { reset(-1); }

void RunFolder::File::reset(int descriptor) {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  descriptor_ = descriptor;
}

std::vector<GenerationRecord> load_records(const fs::path& folder) {
  if (!fs::exists(folder / kGenerations)) {
    throw Error(folder.string() + ": holds no " + kGenerations + "; is this a run folder?");
  }
  return read_run_records(folder).records;
}

std::vector<TraceRecord> load_traces(const fs::path& folder) {
  const fs::path path = folder / kTraces;
  return fs::exists(path) ? read_traces(path) : std::vector<TraceRecord>();
}

std::optional<CostCurve> load_cost_curve(const fs::path& folder, std::string_view model) {
  const fs::path path = folder / kCostCurve;
  if (!fs::exists(path)) {
    return std::nullopt;
  }
  const auto all = read_object(path);
  if (!all.contains(std::string(model))) {
    return std::nullopt;
  }
  CostCurve curve;
  try {
    for (const RecordKeys& point : RecordKeys(all).objects(std::string(model).c_str())) {
      curve.points.push_back({.new_tokens = point.count("new_tokens"),
                              .context = point.count("context"),
                              .seconds = point.number("seconds")});
      const CostPoint& read = curve.points.back();
      if (read.new_tokens < 1 || !(read.seconds > 0.0)) {
        throw Error(fmt::format("a forward of {} tokens after {} takes {} s", read.new_tokens,
                                read.context, read.seconds));
      }
    }
  } catch (const Error& error) {
    throw Error(
        fmt::format("{}: {}; was it edited? Run into a new folder.", path.string(), error.what()));
  }
  // Earlier runs wrote an empty one for models that were too short for all contexts.
  return curve.points.empty() ? std::nullopt : std::optional(std::move(curve));
}

}  // namespace specdec
