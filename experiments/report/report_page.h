#pragma once
#include <iosfwd>
#include <string>

#include "experiments/report/report.h"

namespace specdec {

/// What a page begins and ends with: style sheet, and the script that sorts its tables.
std::string page_head(const std::string& title);
std::string page_end();

/// The section with example texts, accepted and rejected tokens coloured; nothing without examples.
void write_examples(std::ostream& out, const Report& report);

}  // namespace specdec
