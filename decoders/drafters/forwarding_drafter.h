#pragma once
#include <memory>
#include <utility>

#include "decoders/drafter.h"

namespace specdec {

/// Hands every call on to another drafter: a base for drafters that change what one proposes, or
/// when. A step without a proposal of the inner drafter calls its `skip`, which collects features.
class ForwardingDrafter : public Drafter {
 public:
  explicit ForwardingDrafter(std::unique_ptr<Drafter> inner) : inner_(std::move(inner)) {}
  Needs needs() const override { return inner_->needs(); }
  void check(const LanguageModel& target) const override { inner_->check(target); }
  void reset() override { inner_->reset(); }
  void forget() override { inner_->forget(); }
  void skip(const DraftContext& context) override { inner_->skip(context); }
  Draft propose(const DraftContext& context) override { return inner_->propose(context); }
  bool reads_rejected() const override { return inner_->reads_rejected(); }
  bool draws() const override { return inner_->draws(); }

 protected:
  Drafter& inner() { return *inner_; }

 private:
  std::unique_ptr<Drafter> inner_;
};

}  // namespace specdec
