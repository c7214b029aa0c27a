#include "core/row_tiers.h"

namespace specdec {

TierBytes RowTiers::bytes(RowId row) {
  TierBytes bytes;
  for (const PlacedPage& page : pages(row)) {
    int64_t& sum = page.tier == KvTier::kMemory ? bytes.memory
                   : page.tier == KvTier::kHost ? bytes.host
                                                : bytes.disk;
    sum += page.bytes;
  }
  return bytes;
}

}  // namespace specdec
