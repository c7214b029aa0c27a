#include "experiments/metrics/machine_load.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <system_error>
#include <utility>

#include "core/kernels/team.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

constexpr double kMaxStolen = 0.01;    // CPUs
constexpr double kMaxWaited = 0.02;    // of a thread's time
constexpr double kMaxOthers = 0.10;    // of all CPUs
constexpr double kSpareThreads = 0.5;  // of the load average: the program's own bookkeeping

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// The first line of stat: "cpu", then ticks as user, nice, system, idle, iowait, irq, softirq,
/// steal, and guest times, which user and nice hold already.
void read_cpu_times(const fs::path& proc, LoadMeter::Counters& counters) {
  std::ifstream file(proc / "stat");
  std::string name;
  double ticks[8] = {};
  file >> name;
  for (double& each : ticks) {
    file >> each;
  }
  // Sandboxes that show a stat of zeros count nothing.
  if (!file || name != "cpu" || std::all_of(ticks, ticks + 8, [](double t) { return t == 0.0; })) {
    return;
  }
  const auto per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  counters.busy = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / per_second;
  counters.stolen = ticks[7] / per_second;
}

/// Seconds that the process's threads have waited for a CPU. schedstat says of each thread:
/// nanoseconds on a CPU, nanoseconds waiting for one, time slices.
std::optional<double> read_waited(const fs::path& proc) {
  std::error_code code;
  double waited = 0.0;
  bool found = false;
  for (const auto& task : fs::directory_iterator(proc / "self" / "task", code)) {
    std::ifstream file(task.path() / "schedstat");
    double ran = 0.0;
    double wait = 0.0;
    if (file >> ran >> wait) {
      waited += 1e-9 * wait;
      found = true;
    }
  }
  return found ? std::optional(waited) : std::nullopt;
}

LoadMeter::Counters read_counters(const fs::path& proc) {
  LoadMeter::Counters counters{.clock = clock_seconds()};
  read_cpu_times(proc, counters);
  counters.waited = read_waited(proc);
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    counters.own = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
    counters.preemptions = usage.ru_nivcsw;
  }
  counters.back_offs = Team::of_process().late_jobs();
  return counters;
}

std::optional<double> growth(std::optional<double> before, std::optional<double> after) {
  // A thread that ended takes its waiting time with it.
  return before && after ? std::optional(std::max(0.0, *after - *before)) : std::nullopt;
}

}  // namespace

LoadMeter::LoadMeter(fs::path proc) : proc_(std::move(proc)), start_(read_counters(proc_)) {}

MachineLoad LoadMeter::read() const {
  const Counters now = read_counters(proc_);
  MachineLoad load{.seconds = now.clock - start_.clock,
                   .stolen_seconds = growth(start_.stolen, now.stolen),
                   .waited_seconds = growth(start_.waited, now.waited),
                   .back_offs = now.back_offs - start_.back_offs};
  if (start_.busy && now.busy) {
    load.others_seconds = (*now.busy - *start_.busy) - (now.own - start_.own);
  }
  if (start_.preemptions && now.preemptions) {
    load.preemptions = *now.preemptions - *start_.preemptions;
  }
  std::ifstream file(proc_ / "loadavg");
  double average = 0.0;
  if (file >> average) {
    load.average = average;
  }
  return load;
}

void LoadTotals::Part::add(std::optional<double> value, double wall) {
  if (value) {
    sum += *value;
    seconds += wall;
  }
}

std::optional<double> LoadTotals::Part::per_second() const {
  return seconds > 0.0 ? std::optional(sum / seconds) : std::nullopt;
}

void LoadTotals::add(const MachineLoad& load) {
  ++generations_;
  average_.add(load.average ? std::optional(*load.average * load.seconds) : std::nullopt,
               load.seconds);
  stolen_.add(load.stolen_seconds, load.seconds);
  others_.add(load.others_seconds, load.seconds);
  waited_.add(load.waited_seconds, load.seconds);
  preemptions_.add(
      load.preemptions ? std::optional(static_cast<double>(*load.preemptions)) : std::nullopt,
      load.seconds);
  if (load.back_offs) {
    back_offs_ = back_offs_.value_or(0) + *load.back_offs;
    backed_off_ += *load.back_offs > 0 ? 1 : 0;
  }
}

std::optional<double> LoadTotals::average() const { return average_.per_second(); }
std::optional<double> LoadTotals::stolen() const { return stolen_.per_second(); }
std::optional<double> LoadTotals::others() const { return others_.per_second(); }
std::optional<double> LoadTotals::waited() const { return waited_.per_second(); }
std::optional<double> LoadTotals::preemptions_per_second() const {
  return preemptions_.per_second();
}

std::vector<std::string> signs_of_load(const LoadTotals& load, int64_t cpus, int64_t threads) {
  const auto cpu_count = static_cast<double>(std::max<int64_t>(1, cpus));
  const auto thread_count = static_cast<double>(std::max<int64_t>(1, threads));
  std::vector<std::string> signs;
  if (load.stolen().value_or(0.0) > kMaxStolen) {
    signs.push_back(
        fmt::format("the hypervisor took {:.1f} % of a CPU away", 100.0 * *load.stolen()));
  }
  if (load.waited().value_or(0.0) / thread_count > kMaxWaited) {
    signs.push_back(fmt::format("this program's threads waited {:.1f} % of the time for a CPU",
                                100.0 * *load.waited() / thread_count));
  }
  if (load.others().value_or(0.0) > kMaxOthers * cpu_count) {
    signs.push_back(fmt::format("other processes used {:.2f} of {} CPUs", *load.others(), cpus));
  }
  if (load.average().value_or(0.0) > std::max(cpu_count, thread_count) + kSpareThreads) {
    signs.push_back(fmt::format("the load average was {:.1f} on {} CPUs", *load.average(), cpus));
  }
  if (load.backed_off() > 0) {
    signs.push_back(
        fmt::format("threads that lost their CPU kept the others waiting {} times, in {} of {} "
                    "generations, and kernels then ran with fewer threads for a while",
                    load.back_offs().value_or(0), load.backed_off(), load.generations()));
  }
  return signs;
}

}  // namespace specdec
