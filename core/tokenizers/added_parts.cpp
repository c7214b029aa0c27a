#include "core/tokenizers/added_parts.h"

#include "core/jinja/text.h"

namespace specdec {
namespace {

/// A text without the white space, as Python has it, of one side.
std::string stripped(const std::string& text, bool left) {
  return JinjaText(text).stripped(nullptr, left, !left).bytes();
}

/// Makes a token part of the text of its neighbour, which becomes the token where it has no text.
void join_to(AddedPart& neighbour, AddedPart& token, bool before,
             const std::function<std::string_view(Token)>& piece) {
  const auto text_of = [&](const AddedPart& part) {
    return part.id ? std::string(piece(*part.id)) : part.text;
  };
  const std::string rest = text_of(neighbour);
  neighbour.id = rest.empty() ? token.id : std::nullopt;
  neighbour.text = rest.empty() ? "" : before ? text_of(token) + rest : rest + text_of(token);
  neighbour.first = neighbour.first || (before && token.first);
  token.id.reset();
  token.text.clear();
}

}  // namespace

void apply_added_flags(std::vector<AddedPart>& parts, const std::function<AddedFlags(Token)>& flags,
                       const std::function<std::string_view(Token)>& piece) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const AddedFlags wanted = parts[i].id ? flags(*parts[i].id) : AddedFlags();
    if (!wanted.any()) {
      continue;
    }
    AddedPart* left = i > 0 ? &parts[i - 1] : nullptr;
    AddedPart* right = i + 1 < parts.size() ? &parts[i + 1] : nullptr;
    const auto text_of = [&](const AddedPart* part) {
      return part == nullptr ? std::string()
             : part->id      ? std::string(piece(*part->id))
                             : part->text;
    };
    const std::string before = text_of(left);
    const std::string behind = text_of(right);
    if (wanted.rstrip && right != nullptr && !right->id) {
      right->text = stripped(right->text, /*left=*/true);
    }
    if (wanted.lstrip && left != nullptr && !left->id) {
      left->text = stripped(left->text, /*left=*/false);
    }
    const bool to_left = !before.empty() && before.back() != ' ';
    if (wanted.single_word && (to_left || (!behind.empty() && behind.front() != ' '))) {
      join_to(to_left ? *left : *right, parts[i], /*before=*/!to_left, piece);
    }
  }
}

}  // namespace specdec
