#pragma once
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "core/draft.h"
#include "decoders/target_probs.h"

namespace specdec {

/// Tokens of a recorded row at most, beside the rest.
inline constexpr int64_t kMaxRowTokens = 15;

/// The distributions of one drafted place: the target's and the drafter's over the tokens that
/// either rates highest, and of all others together (the rest, which is the last entry).
struct ReplayRow {
  std::string point;     ///< of the sweep; "" when there is none
  std::string strategy;  ///< whose drafter it is
  /// The drafted tokens were drawn from q. Else they were chosen without a distribution, and q
  /// falls by half from each to the next, in their order.
  bool drawn = true;
  std::vector<double> p;  ///< sums to one
  std::vector<double> q;  ///< the same
};

/// Makes the row of a node that has children. `target`: the target's processed distributions.
ReplayRow lump_row(const Draft& draft, TargetProbs& target, int64_t node);

/// Makes the row of fewer entries: the first ones are kept, and the others join the rest.
ReplayRow lump_row(const ReplayRow& row, int64_t entries);

/// One JSON object, with a line for each row; probabilities have six digits.
void write_rows_json(std::ostream& out, const std::vector<ReplayRow>& rows);
/// Throws ConfigError for a file that is none of write_rows_json's.
std::vector<ReplayRow> read_rows_json(const std::filesystem::path& file);

}  // namespace specdec
