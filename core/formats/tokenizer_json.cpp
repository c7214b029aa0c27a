#include "core/formats/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/formats/utf8.h"

namespace specdec {
namespace {

// Keeps the keys in the order in which they are written here.
using Json = nlohmann::ordered_json;

Json added_tokens(const SentencePieceModel& model) {
  Json tokens = Json::array();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    const bool control = piece.type == PieceType::kControl || piece.type == PieceType::kUnknown;
    if (!control && piece.type != PieceType::kUserDefined) {
      continue;
    }
    // User-defined pieces are looked for in the normalised text, where spaces are "▁" as in the
    // pieces: so runs of spaces are found, as SentencePiece does. Where a space is put before
    // texts, it would be put before such pieces too.
    tokens.push_back({{"id", id},
                      {"content", piece.text},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", !control && model.prefix_space == PrefixSpace::kNone},
                      {"special", control}});
  }
  return tokens;
}

// All ways to merge two pieces into each piece, best pieces first. SentencePiece joins any two
// neighbours whose text together is a piece, so every split counts, not only the trained one.
Json merges(const SentencePieceModel& model) {
  std::unordered_map<std::string_view, size_t> ids;
  std::vector<size_t> order;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type == PieceType::kNormal) {
      ids.emplace(model.pieces[id].text, id);
      order.push_back(id);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&model](size_t a, size_t b) {
    return model.pieces[a].score > model.pieces[b].score;
  });
  Json all = Json::array();
  for (const size_t id : order) {
    const std::string_view text = model.pieces[id].text;
    std::vector<std::pair<size_t, size_t>> splits;
    for (size_t at = scan_utf8(text).bytes; at < text.size();
         at += scan_utf8(text.substr(at)).bytes) {
      const auto left = ids.find(text.substr(0, at));
      const auto right = ids.find(text.substr(at));
      if (left != ids.end() && right != ids.end()) {
        splits.emplace_back(left->second, right->second);
      }
    }
    std::sort(splits.begin(), splits.end());
    for (const auto& [left, right] : splits) {
      all.push_back({model.pieces[left].text, model.pieces[right].text});
    }
  }
  return all;
}

Json vocabulary(const SentencePieceModel& model) {
  Json::object_t vocab;  // appended without looking for equal keys, which are known to differ
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    static_cast<std::vector<Json::object_t::value_type>&>(vocab).emplace_back(
        piece.type == PieceType::kUnused ? fmt::format("<unused piece {}>", id) : piece.text, id);
  }
  return vocab;
}

Json post_processor(const SentencePieceModel& model) {
  if (!model.adds_bos || !model.bos) {
    return nullptr;
  }
  const std::string bos = model.pieces[static_cast<size_t>(*model.bos)].text;
  const auto part = [](const char* id, int type) {
    return Json{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  const auto special = [&bos](int type) {
    return Json{{"SpecialToken", {{"id", bos}, {"type_id", type}}}};
  };
  return {
      {"type", "TemplateProcessing"},
      {"single", Json::array({special(0), part("A", 0)})},
      {"pair", Json::array({special(0), part("A", 0), special(1), part("B", 1)})},
      {"special_tokens",
       {{bos, {{"id", bos}, {"ids", Json::array({*model.bos})}, {"tokens", Json::array({bos})}}}}}};
}

/// How spaces become "▁", and where one is put before a text: normalizer and pre_tokenizer.
std::pair<Json, Json> space_rules(PrefixSpace prefix) {
  const Json space = {{"String", " "}};
  const Json replace = {{"type", "Replace"}, {"pattern", space}, {"content", kSpaceMark}};
  switch (prefix) {
    case PrefixSpace::kNone:
      break;
    case PrefixSpace::kAlways: {
      const Json prepend = {{"type", "Prepend"}, {"prepend", kSpaceMark}};
      return {{{"type", "Sequence"}, {"normalizers", Json::array({prepend, replace})}}, nullptr};
    }
    case PrefixSpace::kUnlessSpace:
    case PrefixSpace::kFirstUnlessSpace:
      return {nullptr,
              {{"type", "Metaspace"},
               {"replacement", kSpaceMark},
               {"prepend_scheme", prefix == PrefixSpace::kUnlessSpace ? "always" : "first"},
               {"split", false}}};
  }
  return {replace,
          {{"type", "Split"},
           {"pattern", space},
           {"behavior", "MergedWithPrevious"},
           {"invert", false}}};
}

Json decoders(PrefixSpace prefix) {
  const Json mark = {{"String", kSpaceMark}};
  Json all = Json::array({{{"type", "Replace"}, {"pattern", mark}, {"content", " "}},
                          {{"type", "ByteFallback"}},
                          {{"type", "Fuse"}}});
  if (prefix != PrefixSpace::kNone) {
    all.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return all;
}

}  // namespace

std::string tokenizer_json(const SentencePieceModel& model) {
  Json bpe = {{"type", "BPE"},
              {"dropout", nullptr},
              {"unk_token", model.pieces[static_cast<size_t>(model.unk)].text},
              {"continuing_subword_prefix", nullptr},
              {"end_of_word_suffix", nullptr},
              {"fuse_unk", true},
              {"byte_fallback", true},
              {"ignore_merges", false}};
  bpe["vocab"] = vocabulary(model);
  bpe["merges"] = merges(model);
  Json root = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  root["added_tokens"] = added_tokens(model);
  auto [normalizer, pre_tokenizer] = space_rules(model.prefix_space);
  root["normalizer"] = std::move(normalizer);
  root["pre_tokenizer"] = std::move(pre_tokenizer);
  root["post_processor"] = post_processor(model);
  root["decoder"] = {{"type", "Sequence"}, {"decoders", decoders(model.prefix_space)}};
  root["model"] = std::move(bpe);
  return root.dump() + "\n";
}

std::string tokenizer_config_json(const SentencePieceModel& model) {
  Json root = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"add_bos_token", model.adds_bos && model.bos.has_value()},
               {"add_eos_token", false},
               {"clean_up_tokenization_spaces", false},
               {"model_max_length", 1'000'000'000}};
  const auto name = [&](const char* key, std::optional<Token> id) {
    if (id) {
      root[key] = model.pieces[static_cast<size_t>(*id)].text;
    }
  };
  name("bos_token", model.bos);
  name("eos_token", model.eos);
  name("pad_token", model.pad);
  name("unk_token", model.unk);
  return root.dump(2) + "\n";
}

}  // namespace specdec
