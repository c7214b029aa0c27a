#include "core/formats/sentencepiece_model.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <unordered_set>

#include "core/error.h"
#include "core/formats/file_content.h"
#include "core/formats/utf8.h"

namespace specdec {
namespace {

// One field of a protocol buffer message: a number, or a run of bytes.
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // varint and fixed fields
  std::string_view bytes;  // length-delimited fields
  bool is_bytes = false;
};

// Walks the fields of one message; only what SentencePiece's files use (no groups).
class MessageReader {
 public:
  MessageReader(std::string_view message, const std::string& where)
      : rest_(message), where_(where) {}

  bool next(Field& field) {
    if (rest_.empty()) {
      return false;
    }
    const uint64_t tag = varint();
    field = {.number = tag >> 3, .value = 0, .bytes = {}, .is_bytes = false};
    switch (tag & 7U) {
      case 0:
        field.value = varint();
        return true;
      case 1:
        field.value = fixed(8);
        return true;
      case 2:
        field.bytes = take(varint());
        field.is_bytes = true;
        return true;
      case 5:
        field.value = fixed(4);
        return true;
      default:
        fail();
    }
  }

 private:
  [[noreturn]] void fail() const {
    throw WeightsError(fmt::format(
        "{}: not a SentencePiece model, or damaged. Copy or download the file again.", where_));
  }

  std::string_view take(uint64_t count) {
    if (count > rest_.size()) {
      fail();
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7FU) << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    fail();
  }

  uint64_t fixed(size_t count) {
    const std::string_view bytes = take(count);
    uint64_t value = 0;
    for (size_t i = count; i-- > 0;) {
      value = (value << 8) | static_cast<unsigned char>(bytes[i]);
    }
    return value;
  }

  std::string_view rest_;
  const std::string& where_;
};

// What the file says of training and normalisation, with the format's defaults.
struct Settings {
  uint64_t model_type = 1;  // 1 = unigram, 2 = BPE
  bool byte_fallback = false;
  bool space_as_suffix = false;
  bool dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
  bool has_charsmap = false;
};

void read_trainer_spec(std::string_view message, const std::string& where, Settings& settings) {
  MessageReader reader(message, where);
  Field field;
  while (reader.next(field)) {
    if (field.number == 3) {
      settings.model_type = field.value;
    } else if (field.number == 24) {
      settings.space_as_suffix = field.value != 0;
    } else if (field.number == 35) {
      settings.byte_fallback = field.value != 0;
    }
  }
}

void read_normalizer_spec(std::string_view message, const std::string& where, Settings& settings) {
  MessageReader reader(message, where);
  Field field;
  while (reader.next(field)) {
    if (field.number == 2) {
      settings.has_charsmap = !field.bytes.empty();
    } else if (field.number == 3) {
      settings.dummy_prefix = field.value != 0;
    } else if (field.number == 4) {
      settings.remove_extra_spaces = field.value != 0;
    } else if (field.number == 5) {
      settings.escape_spaces = field.value != 0;
    }
  }
}

SentencePiece read_piece(std::string_view message, const std::string& where, size_t id) {
  SentencePiece piece;
  uint64_t type = 1;
  MessageReader reader(message, where);
  Field field;
  while (reader.next(field)) {
    if (field.number == 1 && field.is_bytes) {
      piece.text = field.bytes;
    } else if (field.number == 2 && !field.is_bytes) {
      const auto bits = static_cast<uint32_t>(field.value);
      std::memcpy(&piece.score, &bits, sizeof bits);
    } else if (field.number == 3 && !field.is_bytes) {
      type = field.value;
    }
  }
  if (piece.text.empty() || !is_utf8(piece.text) || !std::isfinite(piece.score)) {
    throw WeightsError(fmt::format("{}: piece {} is empty, not UTF-8 or has no finite score. {}",
                                   where, id, "Copy or download the file again."));
  }
  if (type < 1 || type > 6 || type == 5) {
    throw WeightsError(
        fmt::format("{}: piece {} has type {}, which is not supported.", where, id, type));
  }
  piece.type = static_cast<PieceType>(type);
  return piece;
}

void check_settings(const Settings& settings, const std::string& where) {
  const char* problem = nullptr;
  if (settings.model_type != 2) {
    problem = "it is not a BPE model";
  } else if (!settings.byte_fallback) {
    problem = "it has no byte fallback";
  } else if (settings.remove_extra_spaces || !settings.escape_spaces || settings.space_as_suffix) {
    problem = "it does not keep spaces as they are";
  } else if (settings.has_charsmap) {
    problem = "it normalises characters";
  }
  if (problem != nullptr) {
    throw WeightsError(
        fmt::format("{}: only tokenizers of Gemma's and Llama 2's kind are supported, but {}.",
                    where, problem));
  }
}

void check_pieces(const SentencePieceModel& model, const std::string& where) {
  std::unordered_set<std::string_view> seen;
  seen.reserve(model.pieces.size());
  size_t bytes = 0;
  size_t unknowns = 0;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    if (!seen.insert(piece.text).second) {
      throw WeightsError(fmt::format("{}: piece {} (\"{}\") comes twice.", where, id, piece.text));
    }
    if (piece.type == PieceType::kByte) {
      ++bytes;
      if (!byte_piece_value(piece.text)) {
        throw WeightsError(fmt::format("{}: piece {} (\"{}\") should be a byte such as <0x0A>.",
                                       where, id, piece.text));
      }
    }
    unknowns += piece.type == PieceType::kUnknown ? 1 : 0;
  }
  if (bytes != 256 || unknowns != 1) {
    throw WeightsError(
        fmt::format("{}: {} byte pieces and {} unknown pieces; a tokenizer of Gemma's "
                    "or Llama 2's kind has 256 and 1.",
                    where, bytes, unknowns));
  }
}

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& where,
                                             const TokenizerConfig& config) {
  refuse_placeholder(bytes, where);
  SentencePieceModel model;
  Settings settings;
  MessageReader reader(bytes, where);
  Field field;
  while (reader.next(field)) {
    if (field.number == 1) {
      model.pieces.push_back(read_piece(field.bytes, where, model.pieces.size()));
    } else if (field.number == 2) {
      read_trainer_spec(field.bytes, where, settings);
    } else if (field.number == 3) {
      read_normalizer_spec(field.bytes, where, settings);
    }
  }
  if (model.pieces.empty()) {
    throw WeightsError(where + ": not a SentencePiece model: it has no pieces.");
  }
  check_settings(settings, where);
  check_pieces(model, where);
  model.adds_bos = config.adds_bos.value_or(true);
  model.prefix_space = settings.dummy_prefix ? PrefixSpace::kAlways : PrefixSpace::kNone;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto id = static_cast<Token>(i);
    const SentencePiece& piece = model.pieces[i];
    if (piece.type == PieceType::kUnknown) {
      model.unk = id;
    } else if (piece.type == PieceType::kControl) {
      if (piece.text == "<bos>" || piece.text == "<s>") {
        model.bos = id;
      } else if (piece.text == "<eos>" || piece.text == "</s>") {
        model.eos = id;
      } else if (piece.text == "<pad>") {
        model.pad = id;
      }
    }
  }
  return model;
}

namespace {
constexpr std::string_view kDigits = "0123456789ABCDEF";
}  // namespace

std::optional<unsigned char> byte_piece_value(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') {
    return std::nullopt;
  }
  const size_t high = kDigits.find(piece[3]);
  const size_t low = kDigits.find(piece[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) {
    return std::nullopt;
  }
  return static_cast<unsigned char>(high * 16 + low);
}

std::string byte_piece(unsigned char value) { return fmt::format("<0x{:02X}>", value); }

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  result.reserve(text.size());
  size_t position = 0;
  while (true) {
    const size_t found = text.find(from, position);
    result += text.substr(position, found - position);
    if (found == std::string_view::npos) {
      return result;
    }
    result += to;
    position = found + from.size();
  }
}

}  // namespace specdec
