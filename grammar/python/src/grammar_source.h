#pragma once
#include <nanobind/nanobind.h>

namespace specdec::python {

/// Binds GrammarSource and its tags.
void bind_grammar_source(nanobind::module_& m);

}  // namespace specdec::python
