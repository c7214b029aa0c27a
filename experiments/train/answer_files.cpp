#include "experiments/train/answer_files.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/formats/file_content.h"
#include "core/formats/strict_json.h"
#include "experiments/config/config_file.h"
#include "experiments/metrics/record_keys.h"
#include "experiments/train/training_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kLines = "answers.jsonl";
constexpr const char* kFeatures = "features.bf16";
constexpr const char* kIdentity = "answers.json";
constexpr size_t kLargestLines = size_t{1} << 36U;  // bytes

std::string record_text(const AnswerRecord& record) {
  const json out = {{"prompt", record.number},     {"own", record.own},
                    {"end", record.end},           {"temperature", record.temperature},
                    {"answer", record.answer},     {"row", record.first_row},
                    {"log_sums", record.log_sums}, {"tokens", record.tokens}};
  return out.dump() + "\n";
}

AnswerRecord parse_record(const std::string& line, const std::string& where) {
  try {
    const json in = parse_json_line(line);
    const RecordKeys keys(in);
    AnswerRecord record{.number = keys.count("prompt"),
                        .own = keys.flag("own"),
                        .temperature = keys.amount("temperature"),
                        .end = keys.text("end"),
                        .tokens = keys.tokens("tokens"),
                        .answer = keys.count("answer"),
                        .first_row = keys.count("row"),
                        .log_sums = {}};
    if (record.answer > std::ssize(record.tokens)) {
      keys.fail("answer",
                fmt::format("is {}, behind the {} 'tokens'", record.answer, record.tokens.size()));
    }
    for (const double sum : keys.numbers("log_sums")) {
      record.log_sums.push_back(static_cast<float>(sum));
    }
    const auto answered = std::ssize(record.tokens) - record.answer;
    if (std::ssize(record.log_sums) != answered) {
      keys.fail("log_sums", fmt::format("holds {} numbers for the {} tokens of the answer",
                                        record.log_sums.size(), answered));
    }
    if (record.answer == 0 && answered > 0) {
      keys.fail("answer", "is 0: there is no prompt before it");
    }
    return record;
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}: {}; remove the folder to make the answers anew.", where,
                            plain_json_message(error)));
  }
}

int64_t feature_rows(const AnswerRecord& record) {
  return std::max<int64_t>(0, static_cast<int64_t>(record.tokens.size()) - 1);
}

}  // namespace

AnswerWriter::AnswerWriter(fs::path folder, const std::string& identity, int64_t width)
    : folder_(std::move(folder)), made_(folder_), width_(width) {
  make_training_folder(made_, FolderWork::kAnswers);
  if (!fs::exists(folder_ / kIdentity)) {
    write_text_file(folder_ / kIdentity, identity);
  } else if (read_answer_identity(folder_) != identity) {
    throw Error(
        fmt::format("{} holds answers that were made with another target or other settings; remove "
                    "it, or name another folder with --set out=FOLDER.",
                    folder_.string()));
  }
  resume();
  lines_.open(folder_ / kLines, std::ios::app | std::ios::binary);
  features_.open(folder_ / kFeatures, std::ios::app | std::ios::binary);
  made_.keep();
}

void AnswerWriter::resume() {
  const auto bytes_of_rows = [&](int64_t rows) { return static_cast<uint64_t>(rows * width_ * 2); };
  for (const AnswerRecord& record : read_answer_records(folder_)) {
    done_.insert(record.number);
    answer_tokens_ += static_cast<int64_t>(record.log_sums.size());
    rows_ = std::max(rows_, record.first_row + feature_rows(record));
  }
  if (fs::exists(folder_ / kLines)) {
    const std::string text = read_file(folder_ / kLines);
    fs::resize_file(folder_ / kLines, text.rfind('\n') + 1);  // npos + 1 = 0
  }
  if (!fs::exists(folder_ / kFeatures)) {
    std::ofstream(folder_ / kFeatures).flush();
  }
  if (fs::file_size(folder_ / kFeatures) < bytes_of_rows(rows_)) {
    throw Error(fmt::format("{}: shorter than {} says; remove the folder to make the answers anew.",
                            (folder_ / kFeatures).string(), kLines));
  }
  fs::resize_file(folder_ / kFeatures, bytes_of_rows(rows_));
}

void AnswerWriter::add(AnswerRecord record, const at::Tensor& features) {
  record.first_row = rows_;
  if (const int64_t rows = feature_rows(record); rows > 0) {
    const at::Tensor stored = features.to(at::kBFloat16).contiguous();
    SPECDEC_CHECK(stored.size(0) == rows && stored.size(1) == width_, "features of other tokens");
    features_.write(static_cast<const char*>(stored.const_data_ptr()),
                    static_cast<std::streamsize>(stored.nbytes()));
    features_.flush();
    rows_ += rows;
  }
  lines_ << record_text(record) << std::flush;
  if (!lines_ || !features_) {
    throw Error(fmt::format("{}: cannot be written; is the disk full?", folder_.string()));
  }
  done_.insert(record.number);
  answer_tokens_ += static_cast<int64_t>(record.log_sums.size());
}

std::vector<AnswerRecord> read_answer_records(const fs::path& folder) {
  std::vector<AnswerRecord> records;
  refuse_irregular(folder / kLines);
  std::ifstream stream(folder / kLines);
  int64_t number = 0;
  for (std::string line; std::getline(stream, line) && !stream.eof();) {
    const std::string where = fmt::format("{}:{}", (folder / kLines).string(), ++number);
    records.push_back(parse_record(line, where));
  }
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.number < b.number; });
  return records;
}

std::vector<std::vector<Token>> read_generated_tokens(const fs::path& file) {
  std::vector<std::vector<Token>> all;
  std::istringstream stream(read_text_file(file, kLargestLines));
  for (std::string line; std::getline(stream, line);) {
    try {
      const json parsed = parse_json_line(line);
      all.push_back(RecordKeys(parsed).tokens("tokens"));
    } catch (const std::exception& error) {
      throw Error(fmt::format("{}:{}: no 'tokens' as a run's generations.jsonl has them: {}",
                              file.string(), all.size() + 1, plain_json_message(error)));
    }
  }
  return all;
}

at::Tensor map_answer_features(const fs::path& folder, int64_t width) {
  const fs::path file = folder / kFeatures;
  if (!fs::is_regular_file(file)) {
    throw Error(
        fmt::format("{}: is missing; remove the folder to make the answers anew.", file.string()));
  }
  const auto values = static_cast<int64_t>(fs::file_size(file) / 2);
  return at::from_file(file.string(), /*shared=*/false, values / width * width, at::kBFloat16)
      .view({-1, width});
}

AnswerIdentity parse_answer_identity(const fs::path& folder) {
  const std::string where = (folder / kIdentity).string();
  const json parsed = parse_strict_json(read_answer_identity(folder), where);
  try {
    const RecordKeys keys(parsed);
    return {
        .target = keys.text("target"),
        .layers = keys.counts("layers"),
        .suppressed = keys.has("suppressed") ? keys.tokens("suppressed") : std::vector<Token>()};
  } catch (const Error& error) {
    throw Error(
        fmt::format("{}: {}; remove the folder to make the answers anew.", where, error.what()));
  }
}

std::string read_answer_identity(const fs::path& folder) {
  if (!fs::exists(folder / kIdentity)) {
    throw Error(fmt::format("{} holds no answers of a target: make them with specdec answers.",
                            folder.string()));
  }
  return read_text_file(folder / kIdentity);
}

}  // namespace specdec
