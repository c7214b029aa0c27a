#pragma once
#include <nanobind/nanobind.h>

#include <memory>

#include "grammar/engine.h"

namespace specdec::python {

/// A grammar and what compiled it.
struct PythonGrammar {
  std::shared_ptr<GrammarEngine> engine;
  std::shared_ptr<const CompiledGrammar> grammar;
};

/// Binds GrammarMatcher and what reads or writes bitmasks.
void bind_matcher(nanobind::module_& m);

}  // namespace specdec::python
