#pragma once
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace specdec {

/// A text that a page shows as it is, in content and in quoted attributes; what a page cannot hold
/// (control characters, broken UTF-8) becomes U+FFFD.
std::string escape_html(std::string_view text);
/// A text for a cell of a table in Markdown.
std::string escape_markdown_cell(std::string_view text);
/// A text for one line of a terminal: control characters and broken UTF-8 become '?'; longer ones
/// end with an ellipsis.
std::string one_line(std::string_view text, size_t max_characters);
/// Characters of UTF-8 text, as a terminal counts columns for most scripts.
size_t count_characters(std::string_view text);

/// Lines of at most `width` characters, broken at spaces, and within words that are longer; the
/// spaces of a break are dropped. At least one line.
std::vector<std::string> wrap_text(std::string_view text, size_t width);

using Cells = std::vector<std::string>;
/// A table for a terminal: columns as wide as their widest cell; the first `left` stand left, the
/// others right. Rows have equal numbers of cells.
void write_aligned(std::ostream& out, const std::vector<Cells>& rows, size_t left);

/// "0.621" with `decimals`; "-" for none.
std::string number_text(std::optional<double> number, int decimals);
/// "62.1 %"; "-" for none.
std::string percent_text(std::optional<double> share);

}  // namespace specdec
