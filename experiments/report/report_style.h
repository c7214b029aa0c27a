#pragma once

namespace specdec {

/// The page's style sheet: light and dark, figures in as many columns as fit.
extern const char* const kReportStyle;
/// Sorts a table by the column whose heading is clicked. Needs nothing from outside.
extern const char* const kReportScript;

}  // namespace specdec
