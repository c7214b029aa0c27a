#include "grammar/tables/sequence_table.h"

#include <algorithm>

namespace specdec {

size_t SequenceTable::Hash::operator()(uint32_t id) const {
  uint64_t hash = 0x9E3779B97F4A7C15;
  for (const uint32_t word : (*table)[id]) {
    hash = (hash ^ word) * 0xFF51AFD7ED558CCD;
    hash ^= hash >> 32;
  }
  return hash;
}

bool SequenceTable::Same::operator()(uint32_t a, uint32_t b) const {
  return std::ranges::equal((*table)[a], (*table)[b]);
}

void SequenceTable::push(std::span<const uint32_t> words) {
  const std::vector<uint32_t> copy(words.begin(), words.end());
  words_.insert(words_.end(), copy.begin(), copy.end());
  starts_.push_back(words_.size());
}

uint32_t SequenceTable::intern(std::span<const uint32_t> words) {
  push(words);
  const auto [place, is_new] = ids_.insert(size() - 1);
  if (!is_new) {
    starts_.pop_back();
    words_.resize(starts_.back());
  }
  return *place;
}

uint32_t SequenceTable::append(std::span<const uint32_t> words) {
  push(words);
  ids_.insert(size() - 1);
  return size() - 1;
}

}  // namespace specdec
