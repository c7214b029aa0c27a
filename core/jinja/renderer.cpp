#include "core/jinja/renderer.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/jinja/builtins.h"

namespace specdec {
namespace {

using StatementKind = JinjaStatement::Kind;

constexpr int kMostMacros = 30;             // that call one another
constexpr int64_t kLongestRange = 100'000;  // as in jinja2's sandbox

JinjaValue jinja_function(std::string_view name,
                          std::function<JinjaValue(const JinjaArguments& given)> call) {
  return std::make_shared<JinjaFunction>(
      JinjaFunction{.name = std::string(name), .call = std::move(call)});
}

JinjaValue range(const JinjaArguments& given) {
  const auto all = bound_arguments(given, {"start", "stop", "step"}, "range");
  if (all[0] == nullptr || !given.named.empty()) {
    throw Error("range() with these arguments is not supported.");
  }
  const int64_t begin = all[1] == nullptr ? 0 : integer_of(*all[0]);
  const int64_t end = integer_of(all[1] == nullptr ? *all[0] : *all[1]);
  const int64_t step = all[2] == nullptr ? 1 : integer_of(*all[2]);
  if (step == 0 || (end - begin) / step > kLongestRange) {
    throw Error("a range is too long, or has the step 0.");
  }
  std::vector<JinjaValue> values;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    values.emplace_back(i);
  }
  return jinja_list(std::move(values), JinjaList::Kind::kView);
}

JinjaValue made_namespace(const JinjaArguments& given) {
  if (!given.values.empty()) {
    throw Error("namespace() with these arguments is not supported.");
  }
  auto result = std::make_shared<JinjaNamespace>();
  result->attributes.insert(given.named.begin(), given.named.end());
  return result;
}

JinjaValue raise_exception(const JinjaArguments& given) {
  const auto message = bound_arguments(given, {"message"}, "raise_exception");
  throw Error(fmt::format("it refuses the chat: \"{}\".",
                          message[0] == nullptr ? "" : printed(*message[0]).bytes()));
}

void assign_one(const std::string& target, const JinjaValue& value, JinjaScope& scope) {
  const size_t dot = target.find('.');
  if (dot == std::string::npos) {
    scope.names.insert_or_assign(target, value);
    return;
  }
  const JinjaValue* owner = scope.find(target.substr(0, dot));
  const auto* space =
      owner == nullptr ? nullptr : std::get_if<std::shared_ptr<JinjaNamespace>>(owner);
  if (space == nullptr) {
    throw Error(fmt::format("it sets {}, but {} is no namespace.", target, target.substr(0, dot)));
  }
  (*space)->attributes.insert_or_assign(target.substr(dot + 1), value);
}

void assign(const JinjaStatement& one, const JinjaValue& value, JinjaScope& scope) {
  if (!one.unpacks) {
    assign_one(one.targets.front(), value, scope);
    return;
  }
  const std::vector<JinjaValue> values = items_of(value);
  if (values.size() != one.targets.size()) {
    throw Error(
        fmt::format("{} values are unpacked to {} names.", values.size(), one.targets.size()));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    assign_one(one.targets[i], values[i], scope);
  }
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
  variables_->names.emplace("namespace", jinja_function("namespace", made_namespace));
  variables_->names.emplace("raise_exception", jinja_function("raise_exception", raise_exception));
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
  switch (one.kind) {
    case StatementKind::kText:
      out += JinjaText(one.name);
      break;
    case StatementKind::kOutput:
      out += printed(evaluator_.value(one.value, *scope));
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
      const Flow flow = run_all(one.body, inner_scope(scope), block);
      assign(one, block, *scope);
      return flow;
    }
    case StatementKind::kMacro:
      define_macro(one, scope);
      break;
    case StatementKind::kGroup:
      return run_all(one.body, inner_scope(scope), out);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kGoesOn;
}

std::vector<JinjaValue> JinjaRenderer::looped_over(const JinjaStatement& one, const Scope& scope) {
  std::vector<JinjaValue> items = items_of(evaluator_.value(one.value, *scope));
  if (!one.condition.empty()) {
    std::erase_if(items, [&](const JinjaValue& item) {
      const Scope inner = inner_scope(scope);
      assign(one, item, *inner);
      return !is_true(evaluator_.value(one.condition.front(), *inner));
    });
  }
  return items;
}

JinjaRenderer::Flow JinjaRenderer::loop(const JinjaStatement& one, const Scope& scope,
                                        JinjaText& out) {
  const auto items = std::make_shared<const std::vector<JinjaValue>>(looped_over(one, scope));
  if (items->empty()) {
    return run_all(one.otherwise, inner_scope(scope), out);
  }
  for (int64_t i = 0; i < std::ssize(*items); ++i) {
    evaluator_.step(one.line);
    const Scope inner = inner_scope(scope);
    inner->names.emplace("loop", std::make_shared<const JinjaLoop>(JinjaLoop{items, i}));
    assign(one, (*items)[static_cast<size_t>(i)], *inner);
    if (run_all(one.body, inner, out) == Flow::kBreak) {
      break;
    }
  }
  return Flow::kGoesOn;
}

void JinjaRenderer::define_macro(const JinjaStatement& one, const Scope& scope) {
  // The scope that it sees holds it too: a weak pointer, so that they do not keep one another.
  const std::weak_ptr<JinjaScope> seen = scope;
  scope->names.insert_or_assign(
      one.name, jinja_function(one.name, [this, &one, seen](const JinjaArguments& given) {
        const Scope around = seen.lock();
        if (around == nullptr) {
          throw Error(fmt::format("calling {} outside of its block is not supported.", one.name));
        }
        return call_macro(one, around, given);
      }));
}

JinjaValue JinjaRenderer::call_macro(const JinjaStatement& one, const Scope& scope,
                                     const JinjaArguments& given) {
  if (++macros_ > kMostMacros) {
    throw Error(fmt::format("more than {} macros call one another.", kMostMacros));
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
