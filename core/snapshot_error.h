#pragma once
#include "core/error.h"

namespace specdec {

/// A snapshot of another model, or of the same with other adapters, formats or device.
class SnapshotModelError final : public Error {
 public:
  using Error::Error;
};

/// A file that is no snapshot, or one in a format that this program does not read.
class SnapshotVersionError final : public Error {
 public:
  using Error::Error;
};

/// A snapshot that is incomplete or whose bytes have changed.
class SnapshotDamagedError final : public Error {
 public:
  using Error::Error;
};

}  // namespace specdec
