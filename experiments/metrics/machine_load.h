#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace specdec {

/// What else the machine did while a generation ran. A part is none where the system does not tell
/// it. Source: proc(5) of Linux, getrusage(2), and the team of threads itself.
struct MachineLoad {
  double seconds = 0.0;  ///< wall time of the measurement
  /// Load average of the last minute at its end: threads of the whole machine that ran or wanted
  /// to, this program's own among them.
  std::optional<double> average = {};
  /// CPU time, over all CPUs, that the hypervisor gave to other guests while this one had work.
  std::optional<double> stolen_seconds = {};
  /// CPU time, over all CPUs, of everything but this process. From clock ticks of 10 ms, so that of
  /// one short generation may be negative; the sum over a run is right.
  std::optional<double> others_seconds = {};
  /// Time, over its threads, in which this process could have run and had no CPU.
  std::optional<double> waited_seconds = {};
  /// Times that the system took a CPU from this process (involuntary context switches).
  std::optional<int64_t> preemptions = {};
  /// Times that the kernels' team waited long for a thread that had lost its CPU, and then worked
  /// with fewer for 8 to 256 ms (see BackOff).
  std::optional<int64_t> back_offs = {};
};

/// Measures the load from its construction to read().
class LoadMeter {
 public:
  explicit LoadMeter(std::filesystem::path proc = "/proc");
  MachineLoad read() const;

  /// Counters that only grow, and the clock.
  struct Counters {
    double clock = 0.0;
    std::optional<double> busy = {}, stolen = {}, waited = {};  ///< seconds
    double own = 0.0;                                           ///< CPU seconds of this process
    std::optional<int64_t> preemptions = {};
    int64_t back_offs = 0;
  };

 private:
  std::filesystem::path proc_;
  Counters start_;
};

/// Loads of many generations; a sum is over those that have that part.
class LoadTotals {
 public:
  void add(const MachineLoad& load);

  int64_t generations() const { return generations_; }
  /// Mean load average, weighted by time.
  std::optional<double> average() const;
  /// CPUs' worth of time, in the mean: stolen by other guests, used by other processes, and wanted
  /// by this process in vain.
  std::optional<double> stolen() const;
  std::optional<double> others() const;
  std::optional<double> waited() const;
  std::optional<double> preemptions_per_second() const;
  /// Sum; none where no generation counted them.
  std::optional<int64_t> back_offs() const { return back_offs_; }
  /// Generations with at least one.
  int64_t backed_off() const { return backed_off_; }

 private:
  struct Part {
    double sum = 0.0, seconds = 0.0;
    void add(std::optional<double> value, double wall);
    std::optional<double> per_second() const;
  };
  int64_t generations_ = 0;
  std::optional<int64_t> back_offs_;
  int64_t backed_off_ = 0;
  Part average_, stolen_, others_, waited_, preemptions_;
};

/// Why timings of a run are not to be trusted, in words; empty on a quiet machine. Busy is: more
/// than 1 % of a CPU stolen; threads that waited more than 2 % of their time; other processes on
/// more than 10 % of the CPUs; a load average above the number of CPUs and the program's threads;
/// any back-off of the kernels' team, which then ran with fewer threads than the run states.
std::vector<std::string> signs_of_load(const LoadTotals& load, int64_t cpus, int64_t threads);

}  // namespace specdec
