// Writes what byte_level_json.cpp reads.
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/tokenizers/byte_level_json.h"
#include "core/tokenizers/pre_tokenizer.h"

namespace specdec {
namespace {

// Keeps the keys in the order in which they are written here.
using OrderedJson = nlohmann::ordered_json;

OrderedJson byte_level_step(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

OrderedJson pre_tokenizer_json(const std::vector<std::string>& patterns) {
  OrderedJson steps = OrderedJson::array();
  bool ends_with_gpt2 = false;
  for (size_t i = 0; i < patterns.size(); ++i) {
    ends_with_gpt2 = i + 1 == patterns.size() && patterns[i] == kGpt2Pattern;
    if (patterns[i] == R"(\p{N})") {
      steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    } else if (!ends_with_gpt2) {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", patterns[i]}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
  }
  steps.push_back(byte_level_step(ends_with_gpt2));
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

OrderedJson byte_level_added_tokens(const ByteLevelModel& model) {
  std::map<size_t, const AddedToken*> added;
  for (const AddedToken& token : model.added) {
    added.emplace(static_cast<size_t>(token.id), &token);
  }
  OrderedJson tokens = OrderedJson::array();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    const auto found = added.find(id);
    if (piece.type != PieceType::kNormal || found != added.end()) {
      tokens.push_back({{"id", id},
                        {"content", piece.text},
                        {"single_word", false},
                        {"lstrip", false},
                        {"rstrip", false},
                        {"normalized", found != added.end() && found->second->normalized},
                        {"special", found == added.end()}});
    }
  }
  return tokens;
}

OrderedJson byte_level_post_processor(const ByteLevelModel& model) {
  if (!model.adds_bos || !model.bos) {
    return byte_level_step(true);
  }
  const std::string& bos = model.pieces[static_cast<size_t>(*model.bos)].text;
  const OrderedJson first = {{"SpecialToken", {{"id", bos}, {"type_id", 0}}}};
  const OrderedJson text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const OrderedJson second_first = {{"SpecialToken", {{"id", bos}, {"type_id", 1}}}};
  const OrderedJson second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  const OrderedJson special = {{"id", bos},
                               {"ids", OrderedJson::array({*model.bos})},
                               {"tokens", OrderedJson::array({bos})}};
  return {{"type", "TemplateProcessing"},
          {"single", OrderedJson::array({first, text})},
          {"pair", OrderedJson::array({first, text, second_first, second})},
          {"special_tokens", {{bos, special}}}};
}

OrderedJson bpe_json(const ByteLevelModel& model) {
  OrderedJson bpe = {{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", nullptr},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", false},
                     {"byte_fallback", false},
                     {"ignore_merges", model.ignore_merges}};
  if (model.unknown) {
    bpe["unk_token"] = model.pieces[static_cast<size_t>(*model.unknown)].text;
  }
  OrderedJson::object_t
      vocab;  // appended without looking for equal keys, which are known to differ
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    static_cast<std::vector<OrderedJson::object_t::value_type>&>(vocab).emplace_back(
        model.pieces[id].text, id);
  }
  bpe["vocab"] = std::move(vocab);
  OrderedJson merges = OrderedJson::array();
  for (const BpeMerge& merge : model.merges) {
    merges.push_back({model.pieces[static_cast<size_t>(merge.left)].text,
                      model.pieces[static_cast<size_t>(merge.right)].text});
  }
  bpe["merges"] = std::move(merges);
  return bpe;
}

}  // namespace

std::string byte_level_json(const ByteLevelModel& model) {
  OrderedJson root = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  root["added_tokens"] = byte_level_added_tokens(model);
  root["normalizer"] = model.nfc ? OrderedJson{{"type", "NFC"}} : OrderedJson();
  root["pre_tokenizer"] = pre_tokenizer_json(model.patterns);
  root["post_processor"] = byte_level_post_processor(model);
  root["decoder"] = byte_level_step(true);
  root["model"] = bpe_json(model);
  return root.dump() + "\n";
}

}  // namespace specdec
