#include "core/jinja/renderer.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/jinja/builtins.h"

namespace specdec {
namespace {

using StatementKind = JinjaStatement::Kind;

constexpr int kMaxMacros = 30;               // that call one another
constexpr uint64_t kLongestRange = 100'000;  // as in jinja2's sandbox

JinjaValue range(const JinjaArguments& given) {
  const auto all = bound_arguments(given, {"start", "stop", "step"}, "range");
  if (all[0] == nullptr || !given.named.empty()) {
    throw Error("range() with these arguments is not supported.");
  }
  const int64_t begin = all[1] == nullptr ? 0 : integer_of(*all[0]);
  const int64_t end = integer_of(all[1] == nullptr ? *all[0] : *all[1]);
  const int64_t step = all[2] == nullptr ? 1 : integer_of(*all[2]);
  // Unsigned, since neither the distance nor the size of the step need fit an int64_t.
  const auto from = static_cast<uint64_t>(begin);
  const auto to = static_cast<uint64_t>(end);
  const auto stride = static_cast<uint64_t>(step);
  const uint64_t distance = step > 0 ? to - from : from - to;
  const bool empty = step > 0 ? begin >= end : begin <= end;
  const uint64_t size = step > 0 ? stride : 0 - stride;
  if (step == 0 || (!empty && (distance - 1) / size >= kLongestRange)) {
    throw Error(fmt::format("a range has more than {} numbers, or the step 0.", kLongestRange));
  }
  const uint64_t count = empty ? 0 : (distance - 1) / size + 1;
  given.budget.take(count, JinjaBudget::kValue);
  std::vector<JinjaValue> values;
  for (uint64_t i = 0; i < count; ++i) {
    values.emplace_back(static_cast<int64_t>(from + i * stride));
  }
  return jinja_list(std::move(values), JinjaList::Kind::kView);
}

JinjaValue raise_exception(const JinjaArguments& given) {
  const auto message = bound_arguments(given, {"message"}, "raise_exception");
  throw Error(
      fmt::format("it refuses the chat: \"{}\".",
                  message[0] == nullptr ? "" : shortened(printed(*message[0]).bytes(), 1000)));
}

std::shared_ptr<JinjaScope> inner_scope(const std::shared_ptr<JinjaScope>& around) {
  auto scope = std::make_shared<JinjaScope>();
  scope->around = around;
  return scope;
}

}  // namespace

JinjaRenderer::JinjaRenderer(const JinjaTemplate::Variables& variables,
                             const std::vector<std::string>& unknown)
    : evaluator_(unknown) {
  variables_->names = variables;
  variables_->names.emplace("range", jinja_function("range", range));
  variables_->names.emplace("namespace",
                            jinja_function("namespace", [this](const JinjaArguments& given) {
                              return made_namespace(given);
                            }));
  variables_->names.emplace("raise_exception", jinja_function("raise_exception", raise_exception));
}

JinjaRenderer::~JinjaRenderer() {
  for (const auto& one : namespaces_) {
    const auto attributes = std::exchange(one->attributes, {});
  }
}

JinjaText JinjaRenderer::render(const std::vector<JinjaStatement>& statements) {
  JinjaText out;
  try {
    run_all(statements, inner_scope(variables_), out);
  } catch (const Error& error) {
    throw Error(fmt::format("line {}: {}", evaluator_.line(), error.what()));
  }
  return out;
}

JinjaRenderer::Flow JinjaRenderer::run_all(const std::vector<JinjaStatement>& statements,
                                           const Scope& scope, JinjaText& out) {
  for (const JinjaStatement& one : statements) {
    const Flow flow = run(one, scope, out);
    if (flow != Flow::kGoesOn) {
      return flow;
    }
  }
  return Flow::kGoesOn;
}

JinjaRenderer::Flow JinjaRenderer::run(const JinjaStatement& one, const Scope& scope,
                                       JinjaText& out) {
  evaluator_.step(one.line);
  const JinjaEvaluator::Nesting nesting(evaluator_);
  switch (one.kind) {
    case StatementKind::kText:
      write(JinjaText(one.name), out);
      break;
    case StatementKind::kOutput:
      write(printed(evaluator_.value(one.value, *scope)), out);
      break;
    case StatementKind::kIf:
      return run_all(is_true(evaluator_.value(one.value, *scope)) ? one.body : one.otherwise, scope,
                     out);
    case StatementKind::kFor:
      return loop(one, scope, out);
    case StatementKind::kSet:
      assign(one, evaluator_.value(one.value, *scope), *scope);
      break;
    case StatementKind::kSetBlock: {
      JinjaText block;
      run_all(one.body, inner_scope(scope), block);
      assign(one, block, *scope);
      break;
    }
    case StatementKind::kMacro:
      define_macro(one, scope);
      break;
    case StatementKind::kGroup:
      run_all(one.body, inner_scope(scope), out);
      break;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kGoesOn;
}

/// Leaves those that pass the condition; jinja2 asks only when their turn comes.
void JinjaRenderer::filter(const JinjaStatement& one, const Scope& scope,
                           std::vector<JinjaValue>& items) {
  const int64_t writes = namespace_writes_;
  std::erase_if(items, [&](const JinjaValue& item) {
    const Scope inner = inner_scope(scope);
    assign(one, item, *inner);
    return !is_true(evaluator_.value(one.condition.front(), *inner));
  });
  if (writes != namespace_writes_) {
    throw Error("a loop whose condition sets a namespace is not supported.");
  }
}

/// Renders a loop. As in jinja2, `else` runs unless a turn reached the end of the body.
JinjaRenderer::Flow JinjaRenderer::loop(const JinjaStatement& one, const Scope& scope,
                                        JinjaText& out) {
  std::vector<JinjaValue> all = items_of(evaluator_.value(one.value, *scope), evaluator_.budget());
  const int64_t reads = evaluator_.namespace_reads();
  if (!one.condition.empty()) {
    filter(one, scope, all);
  }
  const bool may_change = reads != evaluator_.namespace_reads();
  const auto items = std::get<std::shared_ptr<const JinjaList>>(jinja_list(std::move(all)));
  const int64_t writes = namespace_writes_;
  bool reached_end = false;
  for (int64_t i = 0; i < std::ssize(items->values); ++i) {
    evaluator_.step(one.line);
    const Scope inner = inner_scope(scope);
    inner->names.emplace("loop", std::make_shared<const JinjaLoop>(JinjaLoop{items, i}));
    assign(one, items->values[static_cast<size_t>(i)], *inner);
    const Flow flow = run_all(one.body, inner, out);
    if (flow != Flow::kGoesOn) {
      require_settable(one.body, *inner);
    }
    if (flow == Flow::kBreak) {
      break;
    }
    reached_end = reached_end || flow == Flow::kGoesOn;
    if (may_change && writes != namespace_writes_) {
      throw Error("a loop whose condition reads a namespace that changes is not supported.");
    }
  }
  return reached_end ? Flow::kGoesOn : run_all(one.otherwise, inner_scope(scope), out);
}

/// Requires that names in statements that a turn does not reach can be set: jinja2 hides them also
/// for the sake of these.
void JinjaRenderer::require_settable(const std::vector<JinjaStatement>& unreached,
                                     const JinjaScope& scope) {
  evaluator_.budget().take(unreached.size(), JinjaBudget::kValue);
  for (const JinjaStatement& one : unreached) {
    if (one.kind == StatementKind::kMacro) {
      scope.require_settable(one.name);
    } else if (one.kind == StatementKind::kSet || one.kind == StatementKind::kSetBlock) {
      for (const std::string& target : one.targets) {
        scope.require_settable(target);
      }
    } else if (one.kind == StatementKind::kIf) {
      require_settable(one.body, scope);
      require_settable(one.otherwise, scope);
    }
  }
}

JinjaValue JinjaRenderer::made_namespace(const JinjaArguments& given) {
  if (!given.values.empty()) {
    throw Error("namespace() with these arguments is not supported.");
  }
  namespaces_.push_back(std::make_shared<JinjaNamespace>());
  namespaces_.back()->attributes.insert(given.named.begin(), given.named.end());
  return namespaces_.back();
}

void JinjaRenderer::assign_one(const std::string& target, const JinjaValue& value,
                               JinjaScope& scope) {
  const size_t dot = target.find('.');
  if (dot == std::string::npos) {
    scope.set(target, value);
    return;
  }
  const std::string name = target.substr(0, dot);
  const JinjaValue* owner = scope.find(name);
  const auto* space =
      owner == nullptr ? nullptr : std::get_if<std::shared_ptr<JinjaNamespace>>(owner);
  if (space == nullptr) {
    throw Error(
        fmt::format("it sets {}, but {} is no namespace.", shortened(target), shortened(name)));
  }
  ++namespace_writes_;
  (*space)->attributes.insert_or_assign(target.substr(dot + 1), value);
}

void JinjaRenderer::assign(const JinjaStatement& one, const JinjaValue& value, JinjaScope& scope) {
  if (!one.unpacks) {
    assign_one(one.targets.front(), value, scope);
    return;
  }
  const std::vector<JinjaValue> values = items_of(value, evaluator_.budget());
  if (values.size() != one.targets.size()) {
    throw Error(
        fmt::format("{} values are unpacked to {} names.", values.size(), one.targets.size()));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    assign_one(one.targets[i], values[i], scope);
  }
}

void JinjaRenderer::write(const JinjaText& text, JinjaText& out) {
  evaluator_.budget().take(text.size(), 2);
  out += text;
}

void JinjaRenderer::define_macro(const JinjaStatement& one, const Scope& scope) {
  // The scope that it sees holds it too: a weak pointer, so that they do not keep one another.
  const std::weak_ptr<JinjaScope> seen = scope;
  scope->set(one.name, jinja_function(one.name, [this, &one, seen](const JinjaArguments& given) {
               const Scope around = seen.lock();
               if (around == nullptr) {
                 throw Error(fmt::format("calling {} outside of its block is not supported.",
                                         shortened(one.name)));
               }
               return call_macro(one, around, given);
             }));
}

JinjaValue JinjaRenderer::call_macro(const JinjaStatement& one, const Scope& scope,
                                     const JinjaArguments& given) {
  if (++macros_ > kMaxMacros) {
    throw Error(fmt::format("more than {} macros call one another.", kMaxMacros));
  }
  const std::vector<std::string_view> names(one.targets.begin(), one.targets.end());
  const auto values = bound_arguments(given, names, one.name);
  const Scope inner = inner_scope(scope);
  const size_t required = names.size() - one.defaults.size();
  for (size_t i = 0; i < names.size(); ++i) {
    JinjaValue value = JinjaUndefined{one.targets[i]};
    if (values[i] != nullptr) {
      value = *values[i];
    } else if (i >= required) {
      value = evaluator_.value(one.defaults[i - required], *inner);
    }
    inner->names.insert_or_assign(one.targets[i], std::move(value));
  }
  JinjaText out;
  run_all(one.body, inner, out);
  --macros_;
  return out;
}

}  // namespace specdec
