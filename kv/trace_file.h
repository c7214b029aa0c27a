#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "core/stopwatch.h"

namespace specdec {

/// What happens in a cache, event by event, as a file of JSON lines for other tools: one that
/// replays another page policy, a notebook. docs/caches.md lists the events.
///
/// Lines are written at once, so that a program that is killed leaves a file of which all but the
/// last line can be read.
class TraceFile {
 public:
  /// Makes the file, and the folder that it lies in. A trace overwrites nothing: where events.jsonl
  /// exists, it is events.2.jsonl, else events.3.jsonl, ... Throws Error where none can be made.
  explicit TraceFile(const std::filesystem::path& path);

  /// Writes the event `name` with the time since the file was made and `fields`, the rest of its
  /// JSON object. Where the disk takes no more, check() says so: events come from the midst of
  /// forwards and changes of rows, which they must not interrupt.
  void write(const char* name, const std::string& fields);
  /// Throws Error, naming the file, where an event could not be written.
  void check() const;

 private:
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  int error_ = 0;  // of the first event that could not be written; none are written after it
  Stopwatch stopwatch_;
};

}  // namespace specdec
