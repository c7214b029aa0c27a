#include "experiments/terminal/plain_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "core/formats/utf8.h"

namespace specdec {
namespace {

constexpr const char* kReplacement = "\xef\xbf\xbd";

/// Calls `visit(character)` for each character, with an empty one for what is none.
template <class Visit>
void visit_characters(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const Utf8Scan scan = scan_utf8(text);
    visit(scan.valid ? text.substr(0, scan.bytes) : std::string_view());
    text.remove_prefix(scan.bytes);
  }
}

bool is_control(std::string_view character) {
  const auto byte = static_cast<unsigned char>(character[0]);
  return byte < 0x20 || byte == 0x7f;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  visit_characters(text, [&](std::string_view character) {
    const bool blank = character == "\n" || character == "\t";
    if (character.empty() || (is_control(character) && !blank)) {
      escaped += kReplacement;
    } else if (character == "&") {
      escaped += "&amp;";
    } else if (character == "<") {
      escaped += "&lt;";
    } else if (character == ">") {
      escaped += "&gt;";
    } else if (character == "\"") {
      escaped += "&quot;";
    } else if (character == "'") {
      escaped += "&#39;";
    } else {
      escaped += character;
    }
  });
  return escaped;
}

std::string escape_markdown_cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    escaped += c == '|' ? "\\|" : std::string(1, c);
  }
  return escaped;
}

std::string one_line(std::string_view text, size_t max_characters) {
  const size_t characters = count_characters(text);
  const size_t kept = characters > max_characters ? max_characters - 1 : characters;
  std::string line;
  size_t count = 0;
  visit_characters(text, [&](std::string_view character) {
    if (count++ < kept) {
      line += character.empty() || is_control(character) ? "?" : character;
    }
  });
  return kept < characters ? line + "…" : line;
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  visit_characters(text, [&](std::string_view) { ++count; });
  return count;
}

std::vector<std::string> wrap_text(std::string_view text, size_t width) {
  std::vector<std::string> lines = {""};
  size_t used = 0;
  size_t space = std::string::npos;  // the last one of the line
  visit_characters(text, [&](std::string_view character) {
    if (used == width && character == " ") {
      lines.emplace_back();
      used = 0;
      space = std::string::npos;
      return;
    }
    if (used == width) {
      std::string rest;
      if (space != std::string::npos) {
        rest = lines.back().substr(space + 1);
        lines.back().resize(space);
      }
      used = count_characters(rest);
      lines.push_back(std::move(rest));
      space = std::string::npos;
    }
    if (character == " " && used > 0) {
      space = lines.back().size();
    }
    lines.back() += character;
    ++used;
  });
  return lines;
}

void write_aligned(std::ostream& out, const std::vector<Cells>& rows, size_t left) {
  std::vector<size_t> widths(rows.front().size());
  for (const Cells& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], count_characters(row[i]));
    }
  }
  for (const Cells& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - count_characters(row[i]), ' ');
      line += i == 0 ? "" : "  ";
      line += i < left ? row[i] + padding : padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << "\n";
  }
}

std::string number_text(std::optional<double> number, int decimals) {
  return number && std::isfinite(*number) ? fmt::format("{:.{}f}", *number, decimals) : "-";
}

std::string percent_text(std::optional<double> share) {
  return share ? number_text(100.0 * *share, 1) + " %" : "-";
}

}  // namespace specdec
