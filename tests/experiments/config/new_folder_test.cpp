#include "experiments/config/new_folder.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

/// Writes into a folder as work does, which is refused or not.
void write_into(const fs::path& path, bool refused, bool kept) {
  struct Refused {};
  try {
    NewFolder folder(path);
    fs::create_directories(path / "part");
    std::ofstream(path / "part" / "file") << "text";
    if (kept) {
      folder.keep();
    }
    if (refused) {
      throw Refused();
    }
  } catch (const Refused&) {
  }
}

TEST(NewFolderTest, RefusedWorkLeavesNothingBehind) {
  const TemporaryFolder temporary;
  write_into(temporary.path() / "a/b", /*refused=*/true, /*kept=*/false);
  EXPECT_TRUE(fs::is_empty(temporary.path()));
  write_into(temporary.path() / "a/b", /*refused=*/false, /*kept=*/false);
  write_into(temporary.path() / "a/c", /*refused=*/true, /*kept=*/true);
  write_into(temporary.path() / "a/d", /*refused=*/true, /*kept=*/false);
  EXPECT_TRUE(fs::exists(temporary.path() / "a/b/part/file"));
  EXPECT_TRUE(fs::exists(temporary.path() / "a/c/part/file"));
  EXPECT_FALSE(fs::exists(temporary.path() / "a/d"));
}

TEST(NewFolderTest, WhatWasThereStays) {
  const TemporaryFolder temporary;
  fs::create_directories(temporary.path() / "empty");
  write_into(temporary.path() / "empty", /*refused=*/true, /*kept=*/false);
  EXPECT_TRUE(fs::is_empty(temporary.path() / "empty"));
  std::ofstream(temporary.path() / "empty" / "other") << "text";
  write_into(temporary.path() / "empty", /*refused=*/true, /*kept=*/false);
  EXPECT_TRUE(fs::exists(temporary.path() / "empty/other"));
  EXPECT_TRUE(fs::exists(temporary.path() / "empty/part/file")) << "work of a run before";
}

}  // namespace
}  // namespace specdec
