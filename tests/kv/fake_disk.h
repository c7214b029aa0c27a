#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "kv/page_file.h"

namespace specdec {

/// A disk in memory, which fails or changes bits where it is told.
class FakeDisk final : public PageFile {
 public:
  struct State {
    std::vector<std::byte> bytes = std::vector<std::byte>(size_t{1} << 20U);
    bool fails_writes = false;
    bool fails_reads = false;
    bool flips_a_bit = false;
  };
  explicit FakeDisk(State& state) : state_(state) {}

  void read(int64_t offset, std::span<std::byte> memory) override {
    if (state_.fails_reads) {
      throw Error("the disk cannot be read");
    }
    ASSERT_LE(offset + std::ssize(memory), std::ssize(state_.bytes));
    std::copy_n(state_.bytes.begin() + offset, memory.size(), memory.begin());
    if (state_.flips_a_bit) {
      memory[memory.size() / 2] ^= std::byte{1};
    }
  }
  void write(int64_t offset, std::span<const std::byte> memory) override {
    if (state_.fails_writes) {
      throw Error("the disk is full");
    }
    ASSERT_LE(offset + std::ssize(memory), std::ssize(state_.bytes));
    std::copy(memory.begin(), memory.end(), state_.bytes.begin() + offset);
  }

 private:
  State& state_;
};

}  // namespace specdec
