#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "decoders/analysis/cost_curve.h"
#include "experiments/config/new_folder.h"
#include "experiments/metrics/environment.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/trace_records.h"

namespace specdec {

/// The folder of one run: config.yaml, environment.json, cost_curve.json, generations.jsonl,
/// steps.jsonl, traces.jsonl when drafters are traced, and at the end summary.json, summary.csv,
/// report.html with tables/ and figures/, spec_bench.md and answers/. A run that was
/// interrupted continues by opening its folder again: what was recorded is read back exactly, and a
/// generation of which only a part reached the disk is dropped, to be run again.
///
///     RunFolder folder(path, resolved_config);
///     for (each generation to make) {
///       if (!folder.holds(key)) { folder.append(record); }
///     }
class RunFolder {
 public:
  /// Makes the folder, or opens it to resume. `config_text` is the resolved config: a folder that
  /// holds another is refused, naming the first line that differs. Before any work, throws Error
  /// saying what to do when the folder cannot be made or written, when the disk has less than
  /// `needed_bytes` left, when another process is writing to it, or when its records are damaged
  /// anywhere but at the end. When an exception ends its scope before something was recorded, what
  /// it made is removed.
  RunFolder(std::filesystem::path path, std::string_view config_text,
            int64_t needed_bytes = int64_t{16} << 20U);

  const std::filesystem::path& path() const { return path_; }
  /// True when the folder held this config before.
  bool resumed() const { return resumed_; }
  /// Generations that an earlier run left half written and that were dropped.
  int64_t dropped() const { return dropped_; }
  /// All that is recorded, of earlier runs and this one, in order.
  const std::vector<GenerationRecord>& records() const { return records_; }
  bool holds(const GenerationKey& key) const { return keys_.contains(key); }
  /// A recorded one; InternalError when it is not there.
  const GenerationRecord& record(const GenerationKey& key) const;

  /// Records a generation: its lines in steps.jsonl, then the one in generations.jsonl that makes
  /// them count. When the disk is full it takes back the part that was written and throws Error.
  void append(GenerationRecord record);

  /// Replaces recorded generations, all or none; their steps stay as they are.
  void replace(const std::vector<GenerationRecord>& changed);

  /// Records a trace in traces.jsonl.
  void append(const TraceRecord& record);
  bool holds_trace(const GenerationKey& key) const { return traced_.contains(key); }

  /// What environment.json says; none before the first run.
  std::optional<Environment> recorded_environment() const;
  /// Throws Error when a weights' fingerprint (by name) is not the recorded one: tokens of other
  /// weights do not mix.
  void check_weights(const std::map<std::string, std::string>& weights) const;
  /// Writes environment.json, before anything is measured. Where something was already, it says
  /// "resumed", and keeps another environment under "earlier".
  void write_environment(const Environment& environment);
  /// True where a part of the run was measured when another was there already.
  bool was_resumed() const;
  /// What changed between the environments that this run was measured in: "cpu: A, then B".
  std::vector<std::string> environment_changes() const;
  /// The measured costs that decisions of this run read. Written once, then read back, so that a
  /// resumed run decides as it began.
  void write_cost_curve(std::string_view model, const CostCurve& curve);
  std::optional<CostCurve> read_cost_curve(std::string_view model) const;
  /// Writes a file of the folder whole or not at all, such as summary.json; a folder that its name
  /// holds ("answers/a.jsonl") is made.
  void write(std::string_view file_name, std::string_view text);

 private:
  /// An open file descriptor.
  class File {
   public:
    File() = default;
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    void reset(int descriptor);
    int get() const { return descriptor_; }

   private:
    int descriptor_ = -1;
  };

  void check_config(std::string_view config_text);
  void repair_records();
  void repair_traces();

  NewFolder made_;  // until something is recorded; locked while this object lives
  std::filesystem::path path_;
  bool resumed_ = false;
  int64_t dropped_ = 0;
  std::vector<GenerationRecord> records_;
  std::set<GenerationKey> keys_;
  std::set<GenerationKey> traced_;
  File generations_file_;
  File steps_file_;
  File traces_file_;  // opened by the first trace
};

/// The records of a finished or interrupted run, without opening it for writing. Throws Error.
std::vector<GenerationRecord> load_records(const std::filesystem::path& folder);
/// The traces of a run; none without traces.jsonl.
std::vector<TraceRecord> load_traces(const std::filesystem::path& folder);
/// A run's frozen cost curve of a model ("target"); none when it measured none. It has points.
std::optional<CostCurve> load_cost_curve(const std::filesystem::path& folder,
                                         std::string_view model);

}  // namespace specdec
