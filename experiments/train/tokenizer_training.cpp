#include "experiments/train/tokenizer_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/formats/sentencepiece_model.h"
#include "core/formats/tokenizer_json.h"
#include "core/formats/utf8.h"

namespace specdec {
namespace {

constexpr int kLongestNewlineRun = 3;
constexpr int kLongestSpaceRun = 8;
constexpr int kLongestTabRun = 2;

// Gives the trainer the texts line by line: it takes line ends for ends of sentences, and would
// drop lines with the characters it reserves.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& texts) {
    for (const std::string_view text : texts) {
      for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find_first_of("\r\n\t", begin), text.size());
        if (end > begin) {
          lines_.push_back(text.substr(begin, end - begin));
        }
        begin = end + 1;
      }
    }
    load();
  }

  bool empty() const { return lines_.empty(); }
  bool done() const override { return next_ >= lines_.size(); }
  void Next() override {  // NOLINT(readability-identifier-naming): the base class's name
    ++next_;
    load();
  }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void load() {
    if (!done()) {
      line_ = lines_[next_];
    }
  }

  std::vector<std::string_view> lines_;
  size_t next_ = 0;
  std::string line_;
};

std::string repeated(std::string_view part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) {
    text += part;
  }
  return text;
}

// In the order of their ids.
std::vector<std::string> user_defined_pieces() {
  std::vector<std::string> pieces = {"<start_of_turn>", "<end_of_turn>"};
  for (int run = 1; run <= kLongestNewlineRun; ++run) {
    pieces.push_back(repeated("\n", run));
  }
  for (int run = 2; run <= kLongestSpaceRun; ++run) {
    pieces.push_back(repeated(kSpaceMark, run));
  }
  for (int run = 1; run <= kLongestTabRun; ++run) {
    pieces.push_back(repeated("\t", run));
  }
  return pieces;
}

std::unordered_map<std::string, std::string> trainer_options(const TokenizerTraining& options) {
  return {{"model_type", "bpe"},
          {"vocab_size", std::to_string(options.vocab_size)},
          {"byte_fallback", "true"},
          {"character_coverage", "1.0"},
          {"normalization_rule_name", "identity"},
          {"add_dummy_prefix", "false"},
          {"remove_extra_whitespaces", "false"},
          {"split_digits", "true"},
          {"max_sentence_length", "1000000000"},
          {"num_threads", "1"},
          {"pad_id", "0"},
          {"eos_id", "1"},
          {"bos_id", "2"},
          {"unk_id", "3"},
          {"pad_piece", "<pad>"},
          {"eos_piece", "<eos>"},
          {"bos_piece", "<bos>"},
          {"unk_piece", "<unk>"},
          {"user_defined_symbols", fmt::format("{}", fmt::join(user_defined_pieces(), ","))},
          {"minloglevel", "2"}};
}

}  // namespace

void train_tokenizer(const TokenizerTraining& options, const std::filesystem::path& out_folder) {
  for (size_t i = 0; i < options.texts.size(); ++i) {
    if (!is_utf8(options.texts[i])) {
      throw Error(fmt::format("tokenizer training: text {} is not UTF-8.", i + 1));
    }
  }
  Lines lines(options.texts);
  if (lines.empty()) {
    throw Error("tokenizer training: there is no text to learn from.");
  }
  std::string serialized;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(trainer_options(options), &lines, &serialized);
  if (!status.ok()) {
    throw Error(
        fmt::format("tokenizer training: SentencePiece refuses a vocabulary of {} pieces: {}",
                    options.vocab_size, status.ToString()));
  }
  const SentencePieceModel model = parse_sentencepiece_model(serialized, "the trained tokenizer");
  std::error_code code;
  std::filesystem::create_directories(out_folder, code);  // a failure shows when writing
  write_file(out_folder / "tokenizer.model", serialized);
  write_file(out_folder / "tokenizer.json", tokenizer_json(model));
  write_file(out_folder / "tokenizer_config.json", tokenizer_config_json(model));
}

}  // namespace specdec
