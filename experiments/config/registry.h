#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "experiments/config/config_node.h"
#include "experiments/config/option_table.h"

namespace specdec {

struct RunPlan;

/// What a strategy promises of its output.
enum class Promise {
  kLossless,    ///< greedy: the target's tokens; sampled: the target's distribution
  kUnverified,  ///< nothing: nobody has tried yet; `specdec certify` measures it
  kLossy,       ///< changes the distribution, and says so in name, help and report
  kSearch,  ///< looks for something else than the target's distribution or its greedy tokens (beam
            ///< search)
};
/// "lossless", "unverified", "lossy", "search"
std::string promise_name(Promise promise);
/// Promise of a whole that has parts of these two promises.
Promise weaker(Promise a, Promise b);

/// A promise without a default: an entry that does not say its own does not compile.
class StatedPromise {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): entries say `.promise = Promise::kLossless`
  StatedPromise(Promise promise) : promise_(promise) {}
  operator Promise() const { return promise_; }  // NOLINT(google-explicit-constructor)

 private:
  Promise promise_;
};

/// One way to build an entry on the tiny random checkpoints of `specdec certify` and `specdec list
/// --matrix`, so that it is proved, or refused with a reason, in every combination.
struct Example {
  /// A YAML flow map. `<folder>` stands for a folder that holds the checkpoints `target` and
  /// `draft`. In a strategy `<drafter>` and `<verifier>` stand for every registered one in turn,
  /// `<shape>` for every draft length and tree with its key: {type: speculative, drafter:
  /// <drafter>, verifier: <verifier>, <shape>}. Keep drafts small: 2 or 3 tokens; every random
  /// outcome is enumerated.
  std::string yaml = {};
  /// A strategy, written in the same way, that must give the same outputs; none = what the promise
  /// says.
  std::string equals = {};
};

/// A component of this promise becomes a part of what is being prepared: the whole promises no more
/// than its parts.
void note_promise(const RunPlan& plan, Promise promise);

/// A component that nobody has certified becomes a part of it: "drafter 'bigram'".
void note_uncertified(const RunPlan& plan, const std::string& component);

/// What an entry says of its component that those of other kinds do not; nothing, as a rule.
template <class Component>
struct EntryFacts {};

/// The names of one kind of component that YAML can use. A plain object: no globals, no static
/// registrars. Two phases: `prepare` reads and checks every key and loads nothing, so that all
/// mistakes of a config are reported at once; the Make that it returns builds the component.
template <class Component, class... Args>
class Registry {
 public:
  using Make = std::function<std::unique_ptr<Component>(Args...)>;
  struct Entry {
    std::string help;  ///< what it does, in a sentence without its full stop
    /// Whom it is from: "Leviathan et al., 2023, arXiv:2211.17192".
    std::string source = {};
    std::string page = {};  ///< its page in the docs: "docs/trees.md"
    /// Options of the component, as its OptionTable has them.
    std::vector<OptionHelp> options = {};
    StatedPromise promise;  ///< a strategy with a lossy part is lossy
    /// Reads the node's keys and refuses what cannot work in the planned run (node.fail).
    std::function<Make(const ConfigNode& node, const RunPlan& plan)> prepare;
    /// None = {type: NAME}.
    std::vector<Example> examples = {};
    EntryFacts<Component> facts = {};
    /// Writes what the examples name in `<folder>` beside the checkpoints: a head for `target`.
    std::function<void(const std::filesystem::path& folder, uint64_t seed)> write_example_files =
        {};
    /// True where tests run `certify` over it, as they do over all that comes with specdec. Reports
    /// of a strategy with a part that was never certified say so.
    bool certified = false;
  };

  /// `kind` names the components in messages: "drafter".
  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  /// A name taken twice is a bug.
  void add(std::string type, Entry entry) {
    const bool added = entries_.emplace(type, std::move(entry)).second;
    SPECDEC_CHECK(added, "two {} entries are called '{}'", kind_, type);
  }

  /// node["type"] picks the entry. An unknown type, and keys that the entry did not read, are
  /// mistakes noted in the node's ConfigErrors; the returned Make is empty for an unknown type.
  Make prepare(const ConfigNode& node, const RunPlan& plan) const {
    const auto type = node.require_type(names(), ". See 'specdec list'.", explained_);
    if (type.empty()) {
      return {};
    }
    const Entry& entry = entries_.at(type);
    note_promise(plan, entry.promise);
    if (!entry.certified) {
      note_uncertified(plan, kind_ + " '" + type + "'");
    }
    auto make = entry.prepare(node, plan);
    node.refuse_unknown_keys();
    return make;
  }

  /// What to say of a name that users take for a type, as of one of its options.
  void explain(const std::string& name, const std::string& text) { explained_[name] = text; }
  const std::map<std::string, std::string>& explained() const { return explained_; }

  /// Says of all entries so far that tests certify them.
  void mark_certified() {
    for (auto& [name, entry] : entries_) {
      entry.certified = true;
    }
  }

  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::string& kind() const { return kind_; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, entry] : entries_) {
      names.push_back(name);
    }
    return names;
  }

 private:
  std::string kind_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> explained_;
};

}  // namespace specdec
