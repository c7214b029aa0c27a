#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace specdec {

/// Yes-or-no questions that hang on each other, answered as their least fixed point: a question
/// that is come back to while it is under way counts as "no" there. A "yes" therefore always holds.
/// A "no" that leaned on one under way is kept until that one is known: a "yes" there takes it
/// back, to be asked again; a "no" settles it, unless it leaned on one further out. Questions must
/// be monotone: what is "yes" stays so when another answer turns into "yes".
class FixedPoint {
 public:
  /// The answers to one kind of question, by key: numbers that count from zero. Must not move
  /// while questions are under way.
  class Answers {
   public:
    /// True when the answer is "no", whatever becomes of the questions under way.
    bool never(uint32_t key) const {
      return key < known_.size() && known_[key].state == State::kNo;
    }

   private:
    friend class FixedPoint;
    enum class State : uint8_t { kUnknown, kOpen, kTentative, kNo, kYes };
    struct Answer {
      State state = State::kUnknown;
      bool met = false;    ///< open: another question came back to it
      uint32_t where = 0;  ///< open: its depth, the questions under way around it; tentative: its
                           ///< index in `tentative_`
    };

    Answer& at(uint32_t key) {
      if (key >= known_.size()) {
        known_.resize(std::max<size_t>(key + size_t{1}, 2 * known_.size()));
      }
      return known_[key];
    }

    std::vector<Answer> known_;
  };

  /// The answer as far as it is known: a "no" may be taken back unless `Answers::never` holds. The
  /// question may ask others; when it throws, it counts as not asked.
  template <class Question>
  bool ask(Answers& answers, uint32_t key, Question question);

  /// Runs `work`, which may ask; false when it leaned on answers that may be taken back.
  template <class Work>
  bool settles(Work work) {
    const uint32_t before = std::exchange(lowest_, kNone);
    work();
    const bool settled = lowest_ == kNone;
    lowest_ = std::min(before, lowest_);
    return settled;
  }

  /// Questions under way.
  uint32_t open() const { return open_; }

 private:
  using State = Answers::State;
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  /// Tentative answers from `begin` to the next group, and the outermost open question (by depth)
  /// that one of them leans on.
  struct Group {
    size_t begin = 0;
    uint32_t lowest = kNone;
  };

  bool look_up(Answers::Answer& answer) {
    if (answer.state == State::kOpen) {
      answer.met = true;
      lowest_ = std::min(lowest_, answer.where);
    } else if (answer.state == State::kTentative) {
      const auto next =
          std::partition_point(groups_.begin(), groups_.end(),
                               [&](const Group& group) { return group.begin <= answer.where; });
      lowest_ = std::min(lowest_, std::prev(next)->lowest);
    }
    return answer.state == State::kYes;
  }

  /// Takes the groups from position `begin` on out, and says what they lean on.
  uint32_t ungroup(size_t begin) {
    uint32_t lowest = kNone;
    for (; !groups_.empty() && groups_.back().begin >= begin; groups_.pop_back()) {
      lowest = std::min(lowest, groups_.back().lowest);
    }
    return lowest;
  }

  void take_back(size_t begin) {
    ungroup(begin);
    for (; tentative_.size() > begin; tentative_.pop_back()) {
      tentative_.back().first->at(tentative_.back().second) = {};
    }
  }

  void settle(size_t begin) {
    for (; tentative_.size() > begin; tentative_.pop_back()) {
      tentative_.back().first->at(tentative_.back().second).state = State::kNo;
    }
  }

  uint32_t open_ = 0;
  uint32_t lowest_ = kNone;  ///< depth of the outermost open question that the current one leans on
  std::vector<std::pair<Answers*, uint32_t>> tentative_;
  std::vector<Group> groups_;
};

template <class Question>
bool FixedPoint::ask(Answers& answers, uint32_t key, Question question) {
  if (Answers::Answer& answer = answers.at(key); answer.state != State::kUnknown) {
    return look_up(answer);
  }
  const size_t begin = tentative_.size();
  const uint32_t depth = open_++;
  answers.at(key) = {State::kOpen, false, depth};
  const uint32_t before = std::exchange(lowest_, kNone);
  bool yes = false;
  try {
    yes = question();
  } catch (...) {
    --open_;
    lowest_ = before;
    take_back(begin);
    answers.at(key) = {};
    throw;
  }
  --open_;
  const uint32_t leaned = std::exchange(lowest_, before);
  Answers::Answer& answer = answers.at(key);  // may have moved
  if (yes) {
    answer.state = State::kYes;
    if (answer.met) {
      take_back(begin);
    }
    return true;
  }
  const bool settled = leaned >= depth;
  uint32_t lowest = ungroup(begin);
  if (!settled) {
    lowest = std::min(lowest, leaned);
    lowest_ = std::min(before, leaned);
    answer.where = static_cast<uint32_t>(tentative_.size());
    tentative_.emplace_back(&answers, key);
  }
  answer.state = settled ? State::kNo : State::kTentative;
  if (lowest >= depth) {
    settle(begin);
  } else if (tentative_.size() > begin) {
    groups_.push_back({begin, lowest});
  }
  return false;
}

}  // namespace specdec
