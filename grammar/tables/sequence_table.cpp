#include "grammar/tables/sequence_table.h"

#include <algorithm>

#include "grammar/tables/hash.h"

namespace specdec {
namespace {

uint64_t hash_of_words(std::span<const uint32_t> words) {
  return WordHash().add_all(words).value();
}

}  // namespace

const uint32_t* SequenceTable::find(std::span<const uint32_t> words) const {
  return ids_.find(hash_of_words(words),
                   [&](uint32_t id) { return std::ranges::equal((*this)[id], words); });
}

void SequenceTable::push(std::span<const uint32_t> words) {
  const std::vector<uint32_t> copy(words.begin(), words.end());
  words_.insert(words_.end(), copy.begin(), copy.end());
  starts_.push_back(words_.size());
}

void SequenceTable::note_newest() {
  ids_.add(size() - 1, [&](uint32_t id) { return hash_of_words((*this)[id]); });
}

uint32_t SequenceTable::intern(std::span<const uint32_t> words) {
  if (const uint32_t* known = find(words)) {
    return *known;
  }
  push(words);
  note_newest();
  return size() - 1;
}

uint32_t SequenceTable::append(std::span<const uint32_t> words) {
  const bool is_new = find(words) == nullptr;
  push(words);
  if (is_new) {
    note_newest();
  }
  return size() - 1;
}

}  // namespace specdec
